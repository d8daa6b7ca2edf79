"""Config files: what is read, what is left behind, what is refused, what is written."""

from __future__ import annotations

import json
import math
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from error_texts import raises

from rlframe.config import compile_config, reader, split_config
from rlframe.config.reader import find_config, read_config, read_written
from rlframe.config.writer import write_total_config
from rlframe.errors import ConfigError, MissingDependencyError

PAIR = """main_config = dict(exp_name="x", env=dict(env_id="CartPole-v1"))
create_config = dict(policy=dict(type="dqn"))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], '__file__', None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def error_of(name: str | Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_config(name)
    return str(caught.value)


def test_python_config_is_executed_once_and_its_main_block_never() -> None:
    write(
        'c.py',
        PAIR
        + 'with open("ran", "a") as f:\n    f.write("x")\nif __name__ == "__main__":\n    raise SystemExit\n',
    )
    main, create = read_config('c.py')
    assert main['env']['env_id'] == 'CartPole-v1' and create['policy']['type'] == 'dqn'
    assert Path('ran').read_text() == 'x'


def test_nothing_stays_after_reading() -> None:
    write('a/helper.py', 'NAME = "from a"\n')
    write('b/helper.py', 'NAME = "from b"\n')
    path, modules = list(sys.path), set(sys.modules)
    for name in 'ab':
        text = 'import sys\nfrom helper import NAME\nsys.path.append("junk")\n'
        text += 'main_config = dict(exp_name=NAME)\ncreate_config = {}\n'
        assert read_config(write(f'{name}/c.py', text))[0]['exp_name'] == f'from {name}'
    assert sys.path == path and set(sys.modules) == modules


@pytest.mark.parametrize(
    ('create', 'suffix'),
    [
        ('dict(import_names=["own"])', '.py'),
        ('dict(policy=dict(type="p", import_names=["own"]))', '.json'),
    ],
)
def test_folder_stays_importable_for_import_names(folder: Path, create: str, suffix: str) -> None:
    if suffix == '.py':
        file = write('c.py', f'main_config = dict()\ncreate_config = {create}\n')
    else:
        file = write('c.json', json.dumps({'main_config': {}, 'create_config': eval(create)}))
    read_config(file)
    read_config(file)
    assert sys.path[0] == str(folder) and sys.path.count(str(folder)) == 1


def test_modules_of_folders_that_were_on_the_path_before_are_not_forgotten(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write('venv/installed_below.py', '')
    write('own_package/__init__.py', '')
    write('own_package/part.py', '')
    monkeypatch.syspath_prepend(folder / 'venv')
    sub = write('c.py', f'import installed_below, own_package.part\n{PAIR}')
    monkeypatch.chdir('/')
    read_config(folder / sub)
    assert 'installed_below' in sys.modules
    assert not {'own_package', 'own_package.part'} & set(sys.modules)
    (folder / 'beside.py').write_text('')
    monkeypatch.syspath_prepend(folder)
    (folder / 'd.py').write_text(f'import beside\n{PAIR}')
    read_config(folder / 'd.py')
    assert 'beside' in sys.modules


def test_dataclass_and_file_name_work_in_a_config() -> None:
    text = (
        'from __future__ import annotations\nimport dataclasses, pathlib\n'
        '@dataclasses.dataclass\nclass D:\n    x: int = 3\n'
        'main_config = dict(n=D().x, here=pathlib.Path(__file__).name)\ncreate_config = {}\n'
    )
    main, _ = read_config(write('c.py', text))
    assert main == {'n': 3, 'here': 'c.py'}


def test_missing_file_names_absolute_path_and_similar_files(folder: Path) -> None:
    write('cartpole_dqn.py', PAIR)
    text = error_of('cartpole_dnq.py')
    assert f'not found: {folder / "cartpole_dnq.py"}' in text and 'Nearest: cartpole_dqn.py' in text
    assert 'does not exist either' in error_of('nowhere/x.py')


def test_config_that_raises_is_named_with_line_and_type(folder: Path) -> None:
    path = list(sys.path)
    write('helper.py', 'def f():\n    raise SystemExit(3)\n')
    text = error_of(write('c.py', f'from helper import f\n{PAIR}f()\n'))
    assert f'{folder / "c.py"}:4' in text and 'SystemExit: 3' in text
    assert sys.path == path and 'helper' not in sys.modules


@pytest.mark.parametrize('name', ['a.json', 'a.py'])
def test_null_bytes_and_other_encodings_are_named_with_the_line(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b'main_config = {}\x00')
    assert name in error_of(name)
    (folder / name).write_bytes(b'\n\n"\xe9"\n')
    with raises(ConfigError):
        read_config(name)


def test_nesting_without_end_is_refused() -> None:
    deep = '{"main_config": {"a": %s}, "create_config": {}}'
    for count in (150, 100_000):
        assert 'nested too deeply' in error_of(write('a.json', deep % ('[' * count + ']' * count)))


def test_json() -> None:
    write('c.json', '{"main_config": {"a": {"__float__": "inf"}, "b": [1.5]}, "create_config": {}}')
    assert read_config('c.json')[0] == {'a': math.inf, 'b': [1.5]}
    for number in ('NaN', 'Infinity', '-Infinity'):
        text = f'{{"main_config": {{"a": [0, {{"b": {number}}}]}}, "create_config": {{}}}}'
        assert f'not JSON: {number} is not' in error_of(write('n.json', text))
    assert 'too large' in error_of(write('big.json', '{"main_config": {"a": 1e999}, "create_config": {}}'))
    assert 'not JSON' in error_of(write('digits.json', f'{{"main_config": {{"a": {"9" * 5000}}}}}'))
    assert 'is duplicated' in error_of(
        write('d.json', '{"main_config": {"a": 1, "a": 2}, "create_config": {}}')
    )
    text = error_of(write('e.json', '{\n "main_config": {,}\n}'))
    assert 'e.json:2' in text and text.splitlines()[1].strip() == '"main_config": {,}'
    assert 'main_config' in error_of(write('f.json', '[1]'))


@pytest.mark.slow
def test_json_beyond_the_limits_is_refused_and_says_how_to_raise_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deep = '{"main_config": {"a": %s}, "create_config": {}}'
    many = deep % ('[' + '[],' * 500_000 + '[]]')
    assert 'RLFRAME_MAX_CONFIG_VALUES=' in error_of(write('many.json', many))
    with open('long.json', 'wb') as file:
        file.truncate(2**40)  # without a block on the disk
    assert '1,099,511,627,776' in error_of('long.json')
    monkeypatch.setenv('RLFRAME_MAX_CONFIG_VALUES', '2000000')
    assert len(read_config('many.json')[0]['a']) == 500_001


def test_a_bomb_of_yaml_aliases_is_refused_before_it_is_written_out() -> None:
    pytest.importorskip('yaml')
    lines = ['main_config:', '  a0: &a0 [x, x]']
    lines += [f'  a{i}: &a{i} [{", ".join([f"*a{i - 1}"] * 9)}]' for i in range(1, 30)]
    text = error_of(write('bomb.yaml', '\n'.join([*lines, 'create_config: {}', ''])))
    assert 'aliases' in text and 'RLFRAME_MAX_CONFIG_VALUES' in text
    assert 'contains itself' in error_of(write('loop.yaml', 'main_config: &a {b: *a}\ncreate_config: {}\n'))


def test_a_written_config_is_json_by_the_standard_and_is_read_again(folder: Path) -> None:
    main = {'goal': math.inf, 'low': [-math.inf, math.nan]}
    write_total_config(folder, main, {})
    json.loads(Path('config.json').read_text(), parse_constant=pytest.fail)
    assert read_written(Path('config.json'))['main_config']['goal'] == math.inf
    found, _ = read_config('config.json')
    low = found['low']
    assert found['goal'] == math.inf and low[0] == -math.inf and math.isnan(low[1])


def test_yaml() -> None:
    pytest.importorskip('yaml')
    write('c.yaml', 'main_config:\n  a: &x [1, 2]\n  b: *x\ncreate_config:\n  policy: {type: dqn}\n')
    main, create = read_config('c.yaml')
    assert main == {'a': [1, 2], 'b': [1, 2]} and create == {'policy': {'type': 'dqn'}}
    text = error_of(write('d.yml', 'main_config:\n  a: 1\n  a: 2\ncreate_config: {}\n'))
    assert 'd.yml:3' in text and "'a' is duplicated" in text
    assert 'e.yml:2' in error_of(write('e.yml', 'main_config:\n\ta: 1\n'))
    assert 'bad key 1' in error_of(write('f.yml', 'main_config: {1: 2}\ncreate_config: {}\n'))
    assert 'main_config' in error_of(write('g.yml', '- 1\n'))


def test_yaml_without_pyyaml_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'yaml', None)
    with raises(MissingDependencyError):
        read_config(write('c.yaml', 'main_config: {}\n'))


def test_a_shipped_config_is_found_by_path_or_name_and_one_of_the_working_directory_comes_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = write('site/configs/cartpole_dqn.py', PAIR).parent.absolute()
    monkeypatch.setattr(reader, 'shipped_configs', lambda: shipped)
    (folder / 'cartpole_dqn').mkdir()  # a run folder of that name is no config
    for name in ('configs/cartpole_dqn.py', 'cartpole_dqn.py', 'cartpole_dqn'):
        assert find_config(name) == shipped / 'cartpole_dqn.py'
    assert 'configs/cartpole_dqn.py' in error_of('configs/cartpole_dnq.py')
    assert 'Nearest: configs/cartpole_dqn.py' in error_of('cartpole_dnq')
    own = write('configs/cartpole_dqn.py', PAIR)
    assert find_config(own) == folder / own
    write('cartpole_dqn.yaml', PAIR)
    assert find_config('cartpole_dqn') == folder / 'cartpole_dqn.yaml'


def test_total_config_reloads_equal(folder: Path) -> None:
    main: dict[str, Any] = {
        'exp_name': 'x"""y',
        'inf': [math.inf, -math.inf],
        'tuple': (1, (2.5,)),
        'long': 'word ' * 60,
        'nested': {'a-b': {'c': None, 'd': True, 'e': b'x'}},
        'cls': OrderedDict,
        'big': 10**10,
        'numpy': [numpy.float32(0.5), numpy.int64(3)],
    }
    create = {'policy': {'type': 'dqn'}, 'import_names': []}
    write_total_config(folder, main, create)
    source = Path('total_config.py').read_text()
    assert source.startswith('"""') and "float('inf')" in source and 'import collections\n' in source
    assert read_config('total_config.py') == (main, create)
    write_total_config('sub_total.py', main, create)
    assert Path('sub_total.py').read_text() == source
    assert sorted(p.name for p in folder.iterdir() if p.name.startswith('.')) == []


def test_what_no_source_gives_is_written_as_text_and_said(folder: Path) -> None:
    write_total_config(folder, {'env': {'env_id': lambda: None}}, {})
    source = Path('total_config.py').read_text()
    assert '# Written as text, because it cannot be written as code: main_config.env.env_id' in source
    assert '<lambda>' in read_config('total_config.py')[0]['env']['env_id']


def test_an_override_may_replace_a_class_of_a_complete_config() -> None:
    """Whose sections state the defaults of the class before; what the user chose for that one is still refused."""
    complete = split_config(compile_config(*read_config('configs/cartpole_dqn.py')))
    for override in ('env_manager.type=gym_vector', 'replay_buffer.type=advanced', 'policy.type=c51'):
        compile_config(*complete, overrides=[override])
    complete[0]['env']['manager']['max_restarts'] = 7
    with raises(ConfigError):
        compile_config(*complete, overrides=['env_manager.type=gym_vector'])


@pytest.mark.parametrize(
    ('given', 'override', 'device', 'cuda'),
    [
        ({'cuda': True}, 'policy.device=cpu', 'cpu', None),
        ({'device': 'cuda:1'}, 'policy.cuda=true', 'cuda:1', True),  # they agree
        ({'device': 'cpu'}, 'policy.cuda=true', 'auto', True),
        ({'cuda': False}, {'policy': {'device': 'cuda:1'}}, 'cuda:1', None),
        # a contradiction, which the policy refuses
        ({'cuda': False}, {'policy.device': 'cpu', 'policy.cuda': True}, 'cpu', True),
    ],
)
@pytest.mark.parametrize('is_complete', [False, True])
def test_an_override_of_the_device_replaces_it_by_whichever_name_it_has(
    given: dict[str, Any], override: Any, device: str, cuda: bool | None, is_complete: bool
) -> None:
    main, create = read_config('configs/cartpole_dqn.py')
    del main['policy']['cuda']
    main['policy'].update(given)
    if is_complete:  # as the config of a run, which a resumed one overrides
        main, create = split_config(compile_config(main, create))
    policy = compile_config(
        main, create, overrides=[override] if isinstance(override, str) else override
    ).policy
    assert (policy.device, policy.cuda) == (device, cuda)


def test_overrides_may_be_dotted_keys_and_sections() -> None:
    pair = read_config('configs/cartpole_dqn.py')
    overrides = {'collector.backend': 'ray', 'policy': {'learn': {'batch_size': 32}}, 'seed': 5}
    cfg = compile_config(*pair, overrides=overrides)
    assert (cfg.policy.collect.collector.backend, cfg.policy.learn.batch_size, cfg.seed) == ('ray', 32, 5)
    assert cfg.policy.learn.learning_rate == 2e-3
    with raises(ConfigError):
        compile_config(*pair, overrides={'policy learn': 1})
