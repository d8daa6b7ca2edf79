"""Runs, checkpoints and artifacts of somebody else are data, also where their configs are changed at random; one's own need no flag."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from error_texts import raises
from foreign import PAYLOAD, reseal, set_config, set_policy
from runs import ROOT
from tripwire import armed

import rlframe
from rlframe import config
from rlframe.app.scoring import Request, score
from rlframe.display.text import trust_flag
from rlframe.entry.__main__ import main
from rlframe.errors import RLFrameError
from rlframe.export import export_policy
from rlframe.export.artifact import open_source
from rlframe.pipeline import build
from rlframe.pipeline.resume import resume
from rlframe.registry import ENV_REGISTRY, REGISTRIES
from rlframe.run.read_checkpoint import verify_checkpoint
from rlframe.utils.seed import bit_generator_cls


@pytest.fixture
def run(small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it in an empty working directory that has a module beside each manifest."""
    folder = tmp_path / 'work' / small_run.name
    shutil.copytree(small_run, folder, symlinks=True)
    monkeypatch.chdir(folder.parent)
    monkeypatch.syspath_prepend(str(folder.parent))
    text = PAYLOAD.format(marker=str(tmp_path / 'marker'))
    for place in (folder.parent, newest(folder), folder / 'export' / 'artifact'):
        (place / 'payload.py').write_text(text, encoding='utf-8')
    monkeypatch.syspath_prepend(str(newest(folder)))
    return folder


def newest(run: Path) -> Path:
    return (run / 'ckpt' / 'latest').resolve()


def refused(call: Callable[[], Any], folder: Path, text: str = '') -> str:
    """Makes sure that a call is refused before anything beyond a folder is touched, and returns the error."""
    with armed(folder) as found, pytest.raises(RLFrameError) as caught:
        call()
    assert found == [] and 'payload' not in sys.modules
    assert text in str(caught.value)
    return str(caught.value)


RAY = {'runtime_env': {'py_executable': 'touch marker;python'}}
COLLECTOR, LEARNER = 'policy__collect__collector__', 'policy__learn__learner__'
ATTACKS: dict[str, dict[str, Any]] = {
    'ray.init': {f'{COLLECTOR}backend': 'ray', f'{COLLECTOR}ray_init_config': RAY},
    'env_id': {'env__env_id': 'payload:X'},
    'kwargs': {'env__kwargs': {'env_id': 'payload:X'}},
    'wrapper': {'env__wrappers': [{'type': 'RecordVideo', 'video_folder': '/tmp/x'}]},
    'init_from': {'policy__init_from': '/tmp/other'},
    'import_names at create': {'create_config__import_names': {'payload': 1}},
    'import_names in a hook': {f'{LEARNER}hook__x__import_names': ['payload']},
    'own model': {'policy__model__type': 'payload'},
    'own env': {'create_config__env__type': 'payload'},
}
"""One of each kind; tests/contract/test_reaches.py has every option."""
PLAYED = ('env_id', 'kwargs', 'wrapper', 'own', 'import_names at create')
"""How the names of attacks begin that also ``eval`` would act on."""


@pytest.mark.parametrize('attack', ATTACKS)
def test_foreign_config_reaches_nothing_on_resume_eval_and_export(run: Path, attack: str) -> None:
    path = set_config(newest(run), **ATTACKS[attack])
    work = run.parent
    refused(lambda: resume(run), work)
    refused(lambda: export_policy(path), work)
    before = sorted(work.rglob('*'))
    with armed(work) as found:
        code = main(['eval', str(path), '-n', '1'])
    assert found == [] and 'payload' not in sys.modules and not (work.parent / 'marker').exists()
    assert code == 2 or not attack.startswith(PLAYED)
    assert [p for p in sorted(work.rglob('*')) if '__pycache__' not in p.parts] == before


ARTIFACTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    'mapping': lambda said: said['policy'].update(import_names={'payload': 1}),
    'nested': lambda said: said['policy']['options']['model'].update(import_names=['payload']),
    'deep': lambda said: said['policy']['options']['learn'].update(x={'import_names': 'payload'}),
    'policy': lambda said: said['policy'].update(type='payload'),
    'list as type': lambda said: said['policy'].update(type=['payload']),
    'weights of others': lambda said: said['policy']['options'].update(init_from='/tmp/other'),
}


@pytest.mark.parametrize('attack', ARTIFACTS)
def test_foreign_artifact_imports_nothing(run: Path, attack: str) -> None:
    path = set_policy(run / 'export' / 'artifact', ARTIFACTS[attack])
    refused(lambda: rlframe.load(path), run.parent)
    assert not (run.parents[1] / 'marker').exists()


def test_foreign_artifact_and_run_that_reach_nothing_need_no_flag(run: Path, capsys: Any) -> None:
    for path in (newest(run), run / 'ckpt' / 'best', run / 'export' / 'artifact'):
        reseal(path.resolve())
    with armed(run.parent) as found:
        assert rlframe.load(run).act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
        assert main(['eval', str(run), '-n', '1']) == 0
        assert main(['export', str(run)]) == 0
        assert main(['--resume', str(run), '--train-iter', '4']) == 0
    assert found == []
    assert 'trust' not in capsys.readouterr().err


def test_import_names_that_are_no_list_are_refused_even_where_trusted(run: Path) -> None:
    path = set_config(
        newest(run), policy__learn__learner__hook={'x': {'type': 'y', 'import_names': {'payload': 1}}}
    )
    assert 'not a list of module names' in refused(lambda: resume(path, trust=True), run.parent)
    path = set_policy(run / 'export' / 'artifact', ARTIFACTS['mapping'])
    assert 'not a list of module names' in refused(lambda: rlframe.load(path, trust=True), run.parent)


def test_a_user_may_trust_and_every_value_is_named_before_it_acts(run: Path, capsys: Any) -> None:
    (run.parent / 'trusted_part.py').write_text('import sys\nsys.stderr.write("acts\\n")\n', encoding='utf-8')
    kwargs = {'sutton_barto_reward': 'yes'}
    path = set_config(newest(run), create_config__import_names=['trusted_part'], env__kwargs=kwargs)
    sys.modules.pop('trusted_part', None)
    assert main(['eval', str(path), '-n', '1']) == 2
    err = capsys.readouterr().err
    assert "import_names=['trusted_part'] (code)" in err and f'env.kwargs={kwargs} (code)' in err
    assert '--trust' in err and 'acts' not in err
    assert main(['eval', str(path), '-n', '1', '--trust']) == 0
    err = capsys.readouterr().err
    assert err.index('trusting import_names') < err.index('acts')
    assert err.index('trusting env.kwargs') < err.index('acts')
    sys.modules.pop('trusted_part', None)
    resume(path, trust=True)
    resume(path, trust=True)


def test_what_the_command_line_repeats_is_the_users_own_word(run: Path, capsys: Any) -> None:
    figures = str(run.parent / 'figures')
    path = set_config(
        newest(run), policy__eval__evaluator__figure_path=figures, env__kwargs={'x': 'y', 'z': 'y'}
    )
    words = ['eval', str(path), '-n', '1']
    assert main([*words, f'evaluator.figure_path={figures}']) == 2
    assert 'env.kwargs' in (err := capsys.readouterr().err) and 'figure_path' not in err
    assert main([*words, 'evaluator.figure_path=none', "env.kwargs={'x': 'y'}"]) == 2, (
        'merged: z is not repeated'
    )
    assert "env.kwargs={'x': 'y', 'z': 'y'}" in capsys.readouterr().err
    assert main(
        [*words, 'evaluator.figure_path=none', "env.kwargs={'x': 1, 'z': 1}"]
    ) != 2 or 'trust' not in (capsys.readouterr().err)
    assert not (run.parent / 'figures').exists()


def test_resume_with_a_config_of_ones_own_takes_nothing_from_that_of_the_checkpoint(run: Path) -> None:
    path = set_config(newest(run), policy__eval__evaluator__figure_path='/tmp/figures')
    own = verify_checkpoint(run / 'ckpt' / 'best')['config']
    cfg = resume(path, (own['main_config'], own['create_config'])).cfg
    assert cfg.policy.eval.evaluator.figure_path is None


# what this user made


def test_ones_own_run_needs_no_flag_whatever_it_names(
    cwd: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (cwd / 'own_envs.py').write_text(
        'from gymnasium.envs.classic_control import CartPoleEnv\n'
        'from gymnasium.wrappers import TimeLimit\n'
        'def make(**kwargs): return TimeLimit(CartPoleEnv(**kwargs), 50)\n',
        encoding='utf-8',
    )
    config = ROOT / 'configs' / 'cartpole_dqn.py'
    words = [
        'env.env_id=own_envs:make',
        'env.stop_value=1e9',
        'env.evaluator_env_num=1',
        'env.n_evaluator_episode=1',
    ]
    try:
        assert main(['-c', str(config), '--exp-name', 'mine', '--train-iter', '3', *words]) == 0
        out = capsys.readouterr().out
        assert 'eval mine\n' in out
        assert main(['eval', 'mine', '-n', '1']) == 0
        assert main(['export', 'mine']) == 0
        assert main(['--resume', 'mine', '--train-iter', '6']) == 0
        shutil.move('mine', 'moved')
        assert main(['eval', 'moved', '-n', '1']) == 0, 'moved, and nothing changed'
        monkeypatch.setenv('RLFRAME_TRUST_KEY', 'of somebody else, of somebody else')
        assert main(['eval', 'moved', '-n', '1']) == 2
        assert "env.env_id='own_envs:make' (code)" in capsys.readouterr().err
    finally:
        sys.modules.pop('own_envs', None)


def test_without_a_key_the_printed_commands_say_trust_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = {'main_config': {'env': {'env_id': 'CartPole-v1'}}, 'create_config': {'policy': {'type': 'dqn'}}}
    named = {**plain, 'main_config': {'env': {'env_id': 'payload:X'}}}
    monkeypatch.setenv('RLFRAME_TRUST_KEY', 'k' * 32)
    assert [trust_flag(plain), trust_flag(named)] == ['', '']
    monkeypatch.setenv('RLFRAME_TRUST_KEY', 'too short')
    assert [trust_flag(plain), trust_flag(named)] == ['', ' --trust']


def test_one_changed_byte_makes_a_run_foreign(run: Path) -> None:
    path = newest(run)
    assert verify_checkpoint(path).is_own
    assert not verify_checkpoint(set_config(path, seed=1)).is_own
    assert not verify_checkpoint(set_config(path, seed=0)).is_own, 'the keyed hash was not kept'


def test_shipped_wrappers_of_a_foreign_run_need_no_flag(run: Path) -> None:
    wrappers = [
        {'type': 'minigrid.wrappers:ImgObsWrapper'},
        'FlattenObservation',
        {'type': 'TimeLimit', 'max_episode_steps': 9},
    ]
    path = set_config(newest(run), env__env_id='MiniGrid-Empty-5x5-v0', env__wrappers=wrappers)
    resume(path)


@pytest.mark.slow
def test_a_command_in_a_foreign_folder_imports_nothing_from_it(run: Path, tmp_path: Path) -> None:
    path = set_config(newest(run), env__env_id='payload:X')
    command = [sys.executable, '-m', 'rlframe.entry', 'eval', '.']
    done = subprocess.run(command, cwd=path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and 'UnsafeCheckpointError' in done.stderr, done.stderr
    assert not (tmp_path / 'marker').exists()


def test_packages_that_an_env_needs_do_not_come_from_a_foreign_folder(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = set_config(newest(run), env__env_id='ALE/Nowhere-v5')
    text = (path / 'payload.py').read_text(encoding='utf-8')
    (run.parent / 'ale_py.py').write_text(text, encoding='utf-8')
    kept = [entry for entry in sys.path if Path(entry).absolute() not in (run.parent, path)]
    for first in ('', str(run.parent)):
        monkeypatch.setattr(sys, 'path', [first, *kept])
        with armed(run.parent):
            assert main(['eval', str(path), '-n', '1']) != 0
        found = getattr(sys.modules.get('ale_py'), '__file__', '')  # the installed package, if there is one
        assert not Path(found).is_relative_to(run.parents[1]) and not (run.parents[1] / 'marker').exists()
    monkeypatch.setattr(sys, 'path', kept)
    assert main(['eval', str(run / 'ckpt' / 'best'), '-n', '1']) == 0
    assert sys.path[0] == str(run.parent), 'for runs of ones own it is there'


def test_state_of_a_checkpoint_names_generators_of_numpy_only() -> None:
    assert not any(bit_generator_cls(name)() is None for name in ('PCG64', 'MT19937', 'Philox', 'SFC64'))
    for name in ('test', 'seed', 'default_rng', 'Generator', '__init__', ['PCG64'], None):
        with raises(ValueError):
            bit_generator_cls(name)


def test_undeclared_options_of_a_foreign_config_cannot_be_set(run: Path) -> None:
    """Not even of a component that the user names; what a class declares is judged by what it says."""
    (run.parent / 'open_parts.py').write_text(
        'from rlframe.registry import ENV_REGISTRY\n'
        'from rlframe.utils.field import Configurable, Field\n'
        'ENV_REGISTRY.register("open_env", type("OpenEnv", (), {}))\n'
        'config = dict(level=Field(1), map_file=Field("", reaches="file"))\n'
        'ENV_REGISTRY.register("closed_env", type("ClosedEnv", (Configurable,), dict(config=config)))\n',
        encoding='utf-8',
    )
    main_config = {'env': {'level': 3, 'map_file': '/tmp/x'}}
    create: dict[str, Any] = {'import_names': ['open_parts'], 'policy': {'type': 'dqn'}}

    def found(kind: str, *overrides: str) -> list[str]:
        data = {'main_config': main_config, 'create_config': {**create, 'env': {'type': kind}}}
        return [each.key for each in config.reaching_values(data, overrides)]

    try:
        assert found('open_env')[:2] == ['import_names', 'env.type'] and 'open_parts' not in sys.modules
        given = ("import_names=['open_parts']", 'env.type=open_env')
        assert found('open_env', *given) == ['env.level', 'env.map_file']
        assert found('open_env', *given, 'env.level=3', 'env.map_file=none') == []
        assert found('closed_env', given[0], 'env.type=closed_env') == ['env.map_file']
    finally:
        sys.modules.pop('open_parts', None)
        for name in ('open_env', 'closed_env'):
            ENV_REGISTRY._classes.pop(name, None)


def test_configs_of_ding_in_a_foreign_checkpoint_are_judged_by_what_they_are_translated_to(run: Path) -> None:
    values = dict(
        create_config__env__type='cartpole',
        create_config__collector={'type': 'zergling', 'import_names': ['dizoo.x']},
        policy__learn__learner__hook={'load_ckpt_before_run': '/tmp/other'},
    )
    path = set_config(newest(run), **values)
    for overrides in ([], ['env.type=gym'], ['env.type=gym', 'collector.type=sample']):
        text = refused(lambda overrides=overrides: resume(path, overrides=overrides), run.parent)
        assert '/tmp/other' in text


def test_env_that_the_user_hands_over_needs_no_trust(run: Path) -> None:
    path = set_config(newest(run), env__env_id='payload:X')

    class Factory:
        """A factory of envs."""

        def __call__(self, **kwargs: Any) -> Any:
            return gymnasium.make('CartPole-v1', **kwargs)

    refused(lambda: score(path, Request(1)), run.parent, "env.env_id='payload:X'")
    assert len(score(path, Request(1, env=Factory()))[0]) == 1
    export_policy(path, env=Factory())
    figures = set_config(path, policy__eval__evaluator__figure_path='/tmp/figures')
    refused(lambda: score(figures, Request(1, env=Factory())), run.parent, 'figure_path')


BAIT: tuple[Any, ...] = (
    'cartpole', 'zergling', ['dizoo.classic_control.cartpole.envs.cartpole_env'], ['ding.x', 'payload'],
    'payload', 'payload:X', 'payload:1', 'payload:', 'payload: X', ':payload', 'payload.X',
    'payload:CartPole-v1', 'antigravity', 'this', 'this:s', '../payload', '/elsewhere/file', '~/file',
    'file:///x', 'http://localhost/x', ['payload'], ('payload',), ['payload:X'], {'payload': 1}, {1: 'payload'},
    [['payload']], [{'import_names': 'payload'}], {'type': 'payload:X'}, [{'type': 'payload:X'}],
    {'type': 'payload', 'import_names': ['payload']}, [None], ['RecordVideo'],
    [{'type': 'RecordVideo', 'video_folder': '/elsewhere'}], {'xml_file': 'payload'},
    {'load_ckpt_before_run': '/elsewhere'}, {'x': {'type': 'load_ckpt', 'load_path': '/elsewhere'}},
    {'x': {'type': 'payload', 'import_names': {'payload': 1}}},
    {'runtime_env': {'py_executable': 'touch X;python'}}, {'address': '127.0.0.1:6379'}, {'address': 'auto'},
    'ray', None, True, False, 0, 1, -1, 2**31, 0.5, float('inf'), float('nan'), '', 'x', [], {}, 'auto',
    'GymV26Environment-v0',
)  # fmt: skip
KEYS = (
    'import_names', 'type', 'env_id', 'kwargs', 'wrappers', 'data', 'hook', 'init_from', 'figure_path',
    'backend', 'ray_init_config', 'remote_configs', 'remote_config', 'set_buffer_size',
    'enable_track_used_data', 'load_path', 'cfg_type', 'model', 'collector', 'evaluator', 'manager',
    'replay_buffer', 'render', 'x', 'exp_name', 'seed',
)  # fmt: skip
HARMLESS = {'discount_factor': 0.5, 'double': False, 'nstep': 2, 'batch_size': 4, 'learning_rate': 0.01}
"""Valid values of options that reach nothing."""
TYPES = sorted({name for registry in REGISTRIES.values() for name in registry.names()})


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of every value in a tree."""
    pairs = tree.items() if isinstance(tree, Mapping) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in pairs:
        yield (*path, name)
        yield from places(value, (*path, name))


def mutated(tree: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Returns a copy with one to three changes: values replaced, keys added, taken away or put elsewhere."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        found = list(places(tree))
        *above, name = rng.choice(found)
        section = tree
        for step in above:
            section = section[step]
        kind = rng.random()
        if kind < 0.5:
            section[name] = copy.deepcopy(rng.choice(BAIT))
        elif kind < 0.8:
            target = section[name] if isinstance(section[name], dict) else section
            if isinstance(target, dict):
                target[rng.choice(KEYS)] = copy.deepcopy(rng.choice(BAIT))
        elif kind < 0.9 and isinstance(section, dict):
            section['type'] = rng.choice(TYPES)
        elif kind < 0.95:
            del section[name]
        elif isinstance(section, dict):
            section[rng.choice(KEYS)] = section.pop(name)
        if not tree:
            break
    return tree


def harmlessly_changed(tree: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Returns a copy in which one option has another valid value, which reaches nothing."""
    tree, chosen = copy.deepcopy(tree), rng.choice(sorted(HARMLESS))
    (path,) = (path for path in places(tree) if path[-1] == chosen)
    *above, name = path
    section = tree
    for step in above:
        section = section[step]
    section[name] = HARMLESS[name]
    return tree


@pytest.fixture
def work(small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a copy of a run, and a module that must not be imported."""
    folder = tmp_path / 'work'
    shutil.copytree(small_run, folder / 'run', symlinks=True)
    (folder / 'payload.py').write_text(PAYLOAD.format(marker=str(tmp_path / 'marker')), encoding='utf-8')
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def act_on(what: str, path: Path) -> None:
    """Does what a command would do with a checkpoint or an artifact, up to the end of evaluation and export."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        if what == 'resume':
            build.make_factory(resume(path).cfg)
        elif what == 'eval':
            score(path, Request(1))
        elif what == 'export':
            open_source(path)
        else:
            rlframe.load(path)


def check_mutations(work: Path, number: int, seed: int) -> dict[str, int]:
    """Makes sure that changed configs reach nothing; returns how many were refused, and how many passed.

    One in nine is changed harmlessly, so that some of each kind pass, whatever the generator draws for the others.
    """
    rng, counts = random.Random(seed), {'refused': 0, 'done': 0}
    checkpoint, artifact = (work / 'run' / 'ckpt' / 'latest').resolve(), work / 'run' / 'export' / 'artifact'
    facts, said = verify_checkpoint(checkpoint), json.loads((artifact / 'policy.json').read_text())
    for i in range(number):
        what = ('resume', 'eval', 'export', 'load')[i % 4]
        change = mutated if i % 9 else harmlessly_changed
        if what == 'load':
            changed = {**said, 'policy': change(said['policy'], rng)}
            if any(not isinstance(place[-1], str | int) for place in places(changed)):
                continue
            set_policy(artifact, lambda now, changed=changed: now.update(changed))
            path = artifact
        else:
            changed = {'config': change(facts['config'], rng)}
            path = reseal(checkpoint, lambda now, changed=changed: now.update(changed))
        with armed(work.parent) as found:
            try:
                act_on(what, path)
                counts['done'] += 1
            except RLFrameError:
                counts['refused'] += 1
        assert found == [] and 'payload' not in sys.modules, (i, what, changed)
    assert not (work.parent / 'marker').exists()
    assert sorted(entry.name for entry in work.iterdir() if entry.name != '__pycache__') == [
        'payload.py',
        'run',
    ]
    return counts


@pytest.mark.slow
def test_changed_configs_reach_nothing(work: Path) -> None:
    number = int(os.environ.get('RLFRAME_EXAMPLES', '100'))
    counts = check_mutations(work, number, seed=0)
    assert counts['refused'] > 0.3 * number and counts['done'] > 0.05 * number, 'both ways are gone'


@pytest.mark.slow
def test_the_tripwire_sees_what_it_must(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check, changed configs do reach something, and the wire tells."""
    monkeypatch.setattr(config, 'check_trust', lambda *args, **kwargs: None)
    checkpoint = (work / 'run' / 'ckpt' / 'latest').resolve()

    def edit(facts: dict[str, Any]) -> None:
        facts['config']['main_config']['env']['env_id'] = 'payload:X'

    with armed(work.parent) as found, raises(RLFrameError):
        act_on('eval', reseal(checkpoint, edit))
    sys.modules.pop('payload')
    assert 'import of payload' in found and (work.parent / 'marker').exists()
    with armed(work) as found:
        (work.parent / 'other').write_text('x')
        os.system('true')
    assert len(found) == 2 and 'os.system' in found[1]
