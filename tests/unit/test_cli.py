"""The command line: every bad input is told what is wrong and leaves nothing behind; signals, terminals and a light start."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rlframe.entry.__main__ import main
from rlframe.entry.verbs import VERBS
from rlframe.pipeline import serial as pipeline
from rlframe.registry import REGISTRIES
from rlframe.run.read_checkpoint import load_checkpoint

DQN, PPO = 'configs/cartpole_dqn.py', 'configs/cartpole_ppo.py'
ROOT = Path(__file__).parents[2]
Refused = Callable[..., str]


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    folder = tmp_path / 'cwd'
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def refused(cwd: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs a command line that must end with exit code 2, no traceback and nothing in the working directory."""

    def run(*words: str, code: int = 2) -> str:
        try:
            got = main(list(words))
        except SystemExit as error:
            got = error.code  # type: ignore[assignment]
        out, err = capsys.readouterr()
        assert got == code, err
        assert 'Traceback' not in err and out == ''
        assert list(cwd.iterdir()) == []
        return err

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for config files, which is not the working directory."""
    made = tmp_path / 'configs'
    made.mkdir()
    return made


def config(folder: Path, text: str, name: str = 'mine.py') -> str:
    (folder / name).write_text(text, encoding='utf-8')
    return str(folder / name)


def pair(main_config: str, create_config: str = "dict(policy=dict(type='dqn'))") -> str:
    return f"nan, inf = float('nan'), float('inf')\nmain_config = {main_config}\ncreate_config = {create_config}\n"


def assert_says(text: str, words: tuple[str, ...]) -> None:
    for word in words:
        assert word in text, text


# config files: rows 1 to 5, 63, 66 of the table of bad inputs


def test_missing_file_names_the_absolute_path_and_similar_files(refused: Refused, folder: Path) -> None:
    config(folder, '', 'cartpole.py')
    error = refused('-c', str(folder / 'cartpol.py'))
    assert_says(error, ('not found', str(folder / 'cartpol.py'), 'cartpole.py'))
    assert_says(refused('-c', 'configs/cartpole_dq.py'), (str(Path.cwd()), 'configs/cartpole_dqn.py'))


@pytest.mark.parametrize(('name', 'text', 'word'), [('a.txt', 'x = 1', "'.txt'"), ('a.py', ' ', 'is empty')])
def test_wrong_kind_of_file_names_path_and_suffixes(
    refused: Refused, folder: Path, name: str, text: str, word: str
) -> None:
    assert_says(refused('-c', config(folder, text, name)), (word, str(folder / name), '.py, .json, .yaml'))


def test_directory_is_no_config(refused: Refused, folder: Path) -> None:
    assert_says(refused('-c', str(folder)), ('is a directory', str(folder), '.py, .json, .yaml'))


def test_syntax_error_shows_line_source_and_caret(refused: Refused, folder: Path) -> None:
    path = config(folder, 'x = 1\nmain_config = dict(a=\n')
    assert_says(refused('-c', path), (f'{path}:2', 'SyntaxError', 'main_config = dict(a=', '^'))


def test_config_that_raises_is_named_with_line_and_type(refused: Refused, folder: Path) -> None:
    path = config(folder, 'x = 1\nmain_config = unknown_name\n')
    assert_says(refused('-c', path), (f'{path}:2', 'NameError', 'unknown_name'))


def test_missing_names_are_listed_with_those_present(refused: Refused, folder: Path) -> None:
    path = config(folder, 'main_config = {}\nsomething = 1\n')
    assert_says(refused('-c', path), ('create_config', "'main_config', 'something'", path))


@pytest.mark.parametrize(
    ('key', 'words'),
    [
        ("{3: 'a'}", ('3', 'keys are text', 'int')),
        ("{'items': 1}", ("'items'", 'reserved', 'EasyDict')),
        ("{'update': 1}", ("'update'", 'reserved')),
    ],
)
def test_impossible_keys_are_refused(
    refused: Refused, folder: Path, key: str, words: tuple[str, ...]
) -> None:
    assert_says(
        refused('-c', config(folder, pair(f"dict(env=dict(env_id='CartPole-v1', kwargs={key}))"))), words
    )


# options: rows 6 to 12, 22, 25 to 28, 30, 32, 62, 64, 65, 68


@pytest.mark.parametrize(
    ('override', 'words'),
    [
        ('policy.learn.lerning_rate=1', ('policy.learn.lerning_rate', 'Did you mean policy.learn.learning_rate?')),
        ('policy.batch_size=64', ('policy.batch_size', 'policy.learn.batch_size')),
        ("policy.learn.learning_rate='3e-4'", ('policy.learn.learning_rate', "type str; got '3e-4'", 'float', 'text')),
        ('policy.learn.learning_rate=0', ('policy.learn.learning_rate', 'got 0', '> 0')),
        ('policy.learn.learning_rate=-1', ('policy.learn.learning_rate', 'got -1', '> 0')),
        ('policy.learn.learning_rate=inf', ('policy.learn.learning_rate', 'got inf', 'number')),
        ('policy.discount_factor=1.5', ('policy.discount_factor', 'got 1.5', '[0, 1]')),
        ('env.collector_env_num=True', ('env.collector_env_num', 'a bool is not a number', 'int')),
        ('env.collector_env_num=0', ('env.collector_env_num', 'got 0', 'int in [1, inf)')),
        ('env.collector_env_num=-3', ('env.collector_env_num', 'got -3', 'int in [1, inf)')),
        ('env.collector_env_num=2.5', ('env.collector_env_num', 'got 2.5', 'int in [1, inf)')),
        ('policy.model.obs_shape=5', ('policy.model.obs_shape', 'got 5', 'expected [4]', 'Leave it out')),
        ('policy.model.action_shape=3', ('policy.model.action_shape', 'got 3', 'expected [2]', 'Leave it out')),
        ('policy.collect.n_sample=-1', ('policy.collect.n_sample', 'got -1', 'int or None in [1, inf)')),
        ('policy.collect.n_sample=0', ('policy.collect.n_sample', 'got 0', 'int or None in [1, inf)')),
        ('policy.collect.n_episode=4', ('exactly one', 'n_sample (', 'n_episode (4)')),
        ('policy.collect.n_sample=none', ('exactly one', 'n_sample (None)', 'n_episode (None)')),
        ('policy.collect.unroll_len=4', ('policy.collect.unroll_len', 'DQNPolicy', 'got 4')),
        ('policy.learn.batch_size=30000', ('policy.learn.batch_size', '30000', 'replay_buffer_size')),
        ('replay_buffer=none', ('off-policy', "'dqn'", 'create_config.replay_buffer')),
        ('collector.backend=rays', ('policy.collect.collector.backend', "'rays'", "'local'")),
        ('seed=-1', ('seed', 'got -1', '[0, 4294967296)')),
        ('seed=abc', ('seed', "got 'abc'", '[0, 4294967296)')),
        (f'seed={2**40}', ('seed', str(2**40), '[0, 4294967296)')),
        ('exp_name=../../x', ('exp_name', '../../x', 'A-Z a-z 0-9')),
        ('replay_buffer.replay_buffer_size=1e12', ('replay_buffer_size', 'GiB', 'free', 'At most')),
        ('env.n_evaluator_episode=0', ('env.n_evaluator_episode', 'got 0', '[1, inf)')),
        ('env.stop_value=high', ('env.stop_value', "'high'", 'float')),
        ('policy.type=dqnn', ('policy.type', "policy 'dqnn'", "'dqn'?", "'ppo', ", 'import_names')),
        ("policy.learn.learner.hook.x={'type': 'nope'}", ('policy.learn.learner.hook.x', "'nope'", 'log_show')),
        ('nonsense', ("'nonsense'", 'key=value')),
    ],
)  # fmt: skip
def test_impossible_option_is_refused_with_key_value_and_range(
    refused: Refused, override: str, words: tuple[str, ...]
) -> None:
    assert_says(refused('-c', DQN, override), words)


def test_nan_is_no_learning_rate(refused: Refused, folder: Path) -> None:
    path = config(
        folder, pair("dict(env=dict(env_id='CartPole-v1'), policy=dict(learn=dict(learning_rate=nan)))")
    )
    assert_says(refused('-c', path), ('policy.learn.learning_rate', 'got nan', 'number'))


def test_all_mistakes_are_reported_together(refused: Refused) -> None:
    error = refused('-c', DQN, 'policy.learn.batchsize=1', 'policy.discount_factor=2', 'env.stop_value=x')
    assert_says(error, ('3 mistakes', 'policy.learn.batch_size?', 'policy.discount_factor', 'env.stop_value'))


def test_missing_env_id_is_named_with_an_example(refused: Refused, folder: Path) -> None:
    error = refused('-c', config(folder, pair('dict(env=dict(stop_value=1))')))
    assert_says(error, ('env.env_id', 'required', "'CartPole-v1'"))


def test_on_policy_n_sample_must_be_divisible_by_the_envs(refused: Refused) -> None:
    error = refused('-c', PPO, 'policy.collect.n_sample=1020')
    assert_says(error, ('policy.collect.n_sample', '1020', '8', '1016 or 1024'))


def test_on_policy_takes_no_replay_buffer(refused: Refused) -> None:
    assert_says(
        refused('-c', PPO, 'replay_buffer.type=naive'), ('on-policy', "'ppo'", 'create_config.replay_buffer')
    )


@pytest.mark.parametrize('option', ['policy.cuda=True', 'policy.device=cuda'])
def test_cuda_without_a_gpu_is_refused(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)
    words = [option] if 'cuda=' in option else [option, 'policy.cuda=none']
    error = refused('-c', DQN, *words)
    assert_says(
        error, ('DeviceError', option.partition('=')[0], 'cuda.is_available()=False', "policy.device='auto'")
    )


# envs and components: rows 14 to 19


def test_unknown_env_id_names_its_neighbours(refused: Refused) -> None:
    assert_says(
        refused('-c', DQN, 'env.env_id=CartPole-v9'), ('EnvError', "'CartPole-v9'", '`v1`', "'CartPole-v1'?")
    )


@pytest.mark.parametrize(
    ('package', 'env_id', 'extra'),
    [
        ('ale_py', 'ALE/Pong-v5', 'atari'),
        ('minigrid', 'MiniGrid-Empty-5x5-v0', 'minigrid'),
        ('minatar', 'MinAtar/Breakout-v1', 'minatar'),
        ('Box2D', 'LunarLander-v3', 'box2d'),
        ('mujoco', 'HalfCheetah-v5', 'mujoco'),
    ],
)
def test_env_of_a_missing_package_says_how_to_install_it(
    refused: Refused, package: str, env_id: str, extra: str
) -> None:
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f'{package} is installed')
    error = refused('-c', DQN, f'env.env_id={env_id}')
    assert_says(error, ('MissingDependencyError', env_id, f'pip install "rlframe[{extra}]"'))


def test_name_that_is_registered_twice_names_both_places(
    refused: Refused, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, 'path', list(sys.path))
    for name in ('cli_one', 'cli_two'):
        source = "from rlframe.registry import POLICY_REGISTRY\n\n@POLICY_REGISTRY.register('twice')\nclass P:\n    pass\n"
        config(folder, source, f'{name}.py')
        monkeypatch.delitem(sys.modules, name, raising=False)
    create = "dict(import_names=['cli_one', 'cli_two'], policy=dict(type='dqn'))"
    error = refused('-c', config(folder, pair("dict(env=dict(env_id='CartPole-v1'))", create)))
    del REGISTRIES['policy']._classes['twice']
    assert_says(error, ("'twice'", 'cli_one.py:3', 'cli_two.py:3'))


def test_policy_for_discrete_actions_refuses_continuous_ones(refused: Refused) -> None:
    error = refused('-c', DQN, 'env.env_id=Pendulum-v1')
    assert_says(error, ('IncompatibleError', 'Discrete', 'Box(-2.0, 2.0, (1,), float32)', 'fit'))


@pytest.mark.parametrize('name', ['sac', 'td3', 'ddpg'])
def test_policy_for_continuous_actions_refuses_discrete_ones(refused: Refused, name: str) -> None:
    error = refused('-c', f'configs/pendulum_{name}.py', 'env.env_id=CartPole-v1')
    assert_says(error, ('IncompatibleError', 'CartPole-v1', 'Supported: Box', 'dqn', 'sac_discrete'))


# runs: rows 29, 31, 51


def test_buffer_that_never_fills_is_an_error_that_names_the_remedy(
    cwd: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, 'MAX_IDLE_ROUNDS', 3)
    sizes = ('policy.nstep=1', 'policy.collect.n_sample=8', 'policy.learn.batch_size=64')
    assert main(['-c', DQN, 'env.n_evaluator_episode=1', *sizes]) == 1
    error = capsys.readouterr().err
    assert_says(error, ('BufferUnderflowError', '32', '64', 'policy.random_collect_size'))
    assert 'Traceback' not in error


def test_pointless_limits_warn_with_the_consequence(cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ('env.n_evaluator_episode=1', 'policy.collect.n_sample=8', 'evaluator.eval_freq=500')
    assert main(['-c', DQN, '--train-iter', '5', '--env-step', '4', *quick]) == 0
    error = capsys.readouterr().err
    assert_says(
        error, ('rlframe: warning: ', 'eval_freq (500) > max_train_iter (5)', 'will not be evaluated')
    )
    assert_says(error, ('max_env_step (4) < policy.collect.n_sample (8)', 'one round'))
    assert 'nothing read it' not in error


def test_run_folder_that_exists_is_refused_by_name(cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cwd / 'mine').mkdir()
    assert main(['-c', DQN, '--exp-name', 'mine']) == 2
    assert_says(capsys.readouterr().err, ('ExperimentExistsError', str(cwd / 'mine'), '--exp-name'))
    assert list((cwd / 'mine').iterdir()) == []


# the command line itself: row 69


@pytest.mark.parametrize(
    ('words', 'told'),
    [
        (['train'], ('usage: rlframe train', '-c/--config')),
        (['-c', DQN, '--bogus'], ('usage: rlframe', 'unrecognized arguments: --bogus')),
        (['-c', DQN, '--seedd=1'], ("'--seed'?",)),
        (['tune', '--env', 'CartPole-v1'], ('unrecognized arguments: --env.', "'--env-step'?")),
        (['tune', '-c', DQN, '--sch', '1'], ("'--scheduler'?",)),
        (['-c', DQN, '--env-step', 'many'], ('--env-step', "'many'", 'whole number')),
        (['-c', DQN, '--env-step', '1.5'], ('--env-step', "'1.5'", 'whole number')),
        (['-c', DQN, '--env-step', 'inf'], ('--env-step', "'inf'", 'whole number')),
        (['-c', DQN, '--train-iter', '0'], ('--train-iter', "'0'", 'whole number')),
        (['-c', DQN, '--seed', 'x'], ('--seed', "'x'")),
        (['trian', '-c', DQN], ("'trian'", "'train'?")),
        ([DQN], (f"'{DQN}'", '-c FILE')),
        (['list', 'polcy'], ("'polcy'", "'policy'")),
        (['list', 'policy', 'dqnn'], ("'dqnn'", "'dqn'?")),
        (['eval', 'nowhere'], ('CheckpointNotFoundError', 'nowhere', 'no such file')),
        (['eval', '.'], ('CheckpointNotFoundError', 'manifest.json', 'found []')),
        (['eval', '.', '--episodes', '0'], ('--episodes', 'got 0', '>= 1')),
        (['eval', '.', '--seed', '-1'], ('--seed', 'got -1', '[0, 4294967296)')),
        (['eval', '.', '--video', __file__], ('--video', __file__, 'a folder')),
    ],
)
def test_bad_command_line_is_refused(refused: Refused, words: list[str], told: tuple[str, ...]) -> None:
    assert_says(refused(*words), told)


def test_a_command_line_without_words_lists_the_verbs(cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match='2'):
        main([])
    out, err = capsys.readouterr()
    assert_says(out, VERBS)
    assert err == '' and list(cwd.iterdir()) == []


@pytest.mark.parametrize('verb', VERBS)
def test_no_option_of_a_verb_can_be_shortened(verb: str) -> None:
    assert not VERBS[verb].parser(verb).allow_abbrev


@pytest.mark.parametrize(
    'words',
    [
        [],
        ['list'],
        ['list', 'policy'],
        ['explain', 'policy.learn.batch_size'],
        ['check-config', 'cartpole_dqn', '--no-env'],
    ]
    + [[verb, '--help'] for verb in VERBS],
)
def test_output_that_nobody_reads_ends_a_verb_quietly(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, 'w') as unread:
        monkeypatch.setattr(sys, 'stdout', unread)
        assert main(words) == 141
    assert capsys.readouterr().err == ''


def test_a_closed_pipe_that_is_not_the_output_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = mock.Mock(side_effect=BrokenPipeError)
    monkeypatch.setitem(VERBS, 'list', VERBS['list']._replace(run=broken))
    with pytest.raises(BrokenPipeError):
        main(['list'])


def test_a_process_whose_output_is_closed_leaves_no_traceback(cwd: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    for verb in ('list', '--help'):
        process = start('-m', 'rlframe.entry', verb, stdout=writer, env={'PYTHONUNBUFFERED': ''})
        _, err = process.communicate()
        assert (process.returncode, err) == (141, '')
    os.close(writer)


def test_overrides_may_stand_between_flags(refused: Refused) -> None:
    error = refused('-c', DQN, 'policy.discount_factor=2', '--seed', '1', 'policy.nstep=0')
    assert_says(error, ('2 mistakes', 'policy.discount_factor', 'policy.nstep'))


def test_debug_shows_where_an_error_came_from() -> None:
    with pytest.raises(KeyError, match='dqnn'):
        main(['-c', DQN, '--debug', 'policy.type=dqnn'])


def test_list_shows_names_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['list']) == 0
    assert_says(capsys.readouterr().out, ('dqn, ppo', 'gym_vector', 'advanced, elastic, episode, naive'))
    assert main(['list', 'policy', 'dqn']) == 0
    shown = capsys.readouterr().out
    assert_says(shown, ('policy.learn.batch_size = 64', 'int in [1, inf) (transitions)', 'Deep Q-network'))
    assert max(map(len, shown.splitlines())) <= 80
    for kind, registry in REGISTRIES.items():
        for name in registry.names():
            if registry.is_builtin(name):
                assert main(['list', kind, name]) == 0


# as processes


def start(*words: str, **options: Any) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get('PYTHONPATH')])])
    environment = {**os.environ, 'PYTHONPATH': path, 'COLUMNS': '100', **options.pop('env', {})}
    pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, **options}
    return subprocess.Popen([sys.executable, *words], text=True, env=environment, **pipes)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


@pytest.mark.parametrize(
    ('words', 'told'),
    [
        (['-c', 'missing.py'], 'missing.py'),
        (['-c', DQN, 'policy.learn.lerning_rate=1'], 'learning_rate?'),
        pytest.param(
            ['-c', DQN, 'env.env_id=Pendulum-v1'], 'Box(-2.0, 2.0, (1,), float32)', marks=pytest.mark.slow
        ),
    ],
)
def test_a_process_ends_with_2_one_message_and_no_file(cwd: Path, words: list[str], told: str) -> None:
    code, out, err = finish(start('-m', 'rlframe.entry', *words))
    assert (code, out) == (2, '') and told in err and err.startswith('rlframe: ') and err.count('\n') == 1
    assert list(cwd.iterdir()) == []


@pytest.mark.parametrize(
    ('words', 'code', 'heavy'),
    [
        (['--help'], 0, ('numpy', 'rich', 'easydict')),
        (['train', '--help'], 0, ('gymnasium',)),
        (['--version'], 0, ('numpy', 'rich', 'easydict')),
        (['-c', 'missing.py'], 2, ('gymnasium',)),
        (['-c', DQN, 'policy.learn.lr=1'], 2, ('gymnasium',)),
        (['list', 'policy', 'ppo'], 0, ('gymnasium',)),
    ],
)
def test_help_lists_and_config_errors_import_nothing_heavy(
    words: list[str], code: int, heavy: tuple[str, ...]
) -> None:
    names = ('torch', 'ray', 'numba', 'tensorboardX', 'safetensors', 'matplotlib', *heavy)
    program = (
        'import sys\nfrom rlframe.entry.__main__ import main\n'
        f'try:\n    code = main({words!r})\nexcept SystemExit as error:\n    code = error.code\n'
        f'print([name for name in {names!r} if name in sys.modules], code)'
    )
    _, out, err = finish(start('-c', program))
    assert out.splitlines()[-1] == f'[] {code}', err


LONG = (
    *('-m', 'rlframe.entry', '-c', DQN, 'env.stop_value=1e9', 'env.n_evaluator_episode=1'),
    *('policy.nstep=1', 'policy.collect.n_sample=8'),
)
"""A training that does not end by itself."""


def wait_until_training(folder: Path, process: subprocess.Popen[str]) -> None:
    """Returns once a record of a train iteration is there."""
    file, limit = folder / 'metrics.jsonl', time.monotonic() + 60
    while time.monotonic() < limit and process.poll() is None:
        lines = file.read_text(encoding='utf-8').splitlines()[:-1] if file.exists() else []
        if any(json.loads(line).get('train_iter', 0) > 0 for line in lines):
            return
        time.sleep(0.02)
    pytest.fail(f'no training: {process.communicate()}')


@pytest.mark.parametrize(
    ('number', 'code'), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGTERM, 143)]
)
def test_signal_saves_a_checkpoint_and_names_the_folder(cwd: Path, number: signal.Signals, code: int) -> None:
    process = start(*LONG, 'exp_name=stopped')
    wait_until_training(cwd / 'stopped_seed0', process)
    process.send_signal(number)
    got, out, err = finish(process)
    assert got == code, err
    assert 'interrupted and saved' in out and 'eval stopped_seed0\n' in out
    assert 'a second signal' in err and 'Traceback' not in err
    state, manifest = load_checkpoint(cwd / 'stopped_seed0' / 'ckpt' / 'latest')
    assert state['progress']['envstep'] > 0 and state['progress'] == manifest['progress']
    assert {'policy', 'collector', 'replay_buffer', 'evaluator', 'rng'} <= set(state)


def test_second_signal_ends_the_process_at_once(cwd: Path) -> None:
    process = start(*LONG, 'policy.collect.n_sample=20000000')  # a round of minutes
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline().startswith('dqn on 8 envs')
    process.send_signal(signal.SIGINT)
    while 'a second signal' not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130


SHORT = (*LONG, '--env-step', '300')


def test_without_a_terminal_there_are_plain_lines(cwd: Path) -> None:
    code, out, err = finish(start(*SHORT))
    assert code == 0 and '\x1b' not in out + err and '\r' not in out + err
    assert 6 <= out.count('\n') <= 10 and re.search(
        r'^\d:\d\d \| env steps 304 \| .*/s \| updates \d+', err, re.MULTILINE
    )


class Terminal:
    """A pseudo-terminal whose output is read until its last writer is gone."""

    def __init__(self) -> None:
        self._master, self.slave = pty.openpty()
        self._parts: list[bytes] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._master, 4096)
            except OSError:  # how Linux says that the other end was closed
                return
            if not part:
                return
            self._parts.append(part)

    def text(self) -> str:
        os.close(self.slave)
        self._thread.join()
        os.close(self._master)
        return b''.join(self._parts).decode()


@pytest.mark.parametrize('no_color', [pytest.param('', marks=pytest.mark.slow), '1'])
def test_on_a_terminal_a_live_line_is_drawn_and_the_cursor_comes_back(cwd: Path, no_color: str) -> None:
    terminal = Terminal()
    environment = {'TERM': 'xterm-256color', 'NO_COLOR': no_color}
    process = start(*SHORT, stdout=terminal.slave, stderr=terminal.slave, env=environment)
    code, _, _ = finish(process)
    shown = terminal.text()
    assert code == 0, shown
    assert_says(shown, ('dqn on 8 envs', 'env steps 304', '\x1b[2K', 'not solved', 'eval cartpole_dqn_seed0'))
    assert shown.rindex('\x1b[?25h') > shown.rindex('\x1b[?25l')
    if no_color:
        assert not re.search(r'\x1b\[[0-9;]*3[0-9][0-9;]*m', shown)


@pytest.mark.slow
def test_a_dumb_terminal_gets_plain_lines(cwd: Path) -> None:
    terminal = Terminal()
    process = start(*SHORT, stdout=terminal.slave, stderr=terminal.slave, env={'TERM': 'dumb'})
    code, _, _ = finish(process)
    shown = terminal.text()
    assert code == 0 and '\x1b' not in shown and 'env steps 304' in shown
