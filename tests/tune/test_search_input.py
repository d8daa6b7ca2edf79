"""Every bad input to a search is told what is wrong before Ray starts, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from error_texts import raises
from ray import tune
from ray.tune.search.sample import Categorical, Float, Integer
from runs import CASES, ROOT

from rlframe.backend.ray import session as ray_session
from rlframe.config import compile_config, read_config
from rlframe.entry.tune import _interruptible
from rlframe.errors import (
    CheckpointError,
    ConfigError,
    EnvError,
    ExperimentExistsError,
    IncompatibleError,
    MissingDependencyError,
    ResourceError,
)
from rlframe.tune import make_tuner, parse_domain, restore_tuner
from rlframe.tune.schedulers import MAKERS, make_scheduler
from rlframe.tune.space import described, ends, flat_space
from rlframe.tune.trial import SCHEDULERS

CONFIG = str(ROOT / CASES['dqn naive'][1])
RATE = {'policy.learn.learning_rate': tune.loguniform(1e-4, 1e-2)}
BUDGET: dict[str, Any] = {'max_env_step': 1000}


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and no Ray: whoever starts one fails."""
    import ray

    def refuse(*args: Any, **kwargs: Any) -> None:
        pytest.fail('Ray is started before everything is checked')

    # the lazy module keeps what it once read of Ray, so it reads before Ray is replaced
    for module in (ray_session.ray, ray):
        monkeypatch.setattr(module, 'init', refuse)
        monkeypatch.setattr(module, 'is_initialized', lambda: False)
    folder = tmp_path / 'cwd'
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


# domains


@pytest.mark.parametrize(
    ('text', 'kind', 'expected'),
    [
        ('uniform(0,1)', Float, [0, 1]),
        (' loguniform( 1e-4 , 1e-2 ) ', Float, [1e-4, 1e-2]),
        ('quniform(0,1,0.25)', Float, [0, 1]),
        ('qloguniform(1e-4,1e-2,5e-5)', Float, [1e-4, 1e-2]),
        ('randint(1,10)', Integer, [1, 9]),
        ('lograndint(1,10)', Integer, [1, 9]),
        ('qrandint(8,64,8)', Integer, [8, 64]),
        ('uniform(-1,-0.5)', Float, [-1, -0.5]),
        ('choice(32,64)', Categorical, [32, 64]),
        ('choice([32,64])', Categorical, [32, 64]),
        ('choice([32,64],[128])', Categorical, [[32, 64], [128]]),
        ('choice(true,false)', Categorical, [True, False]),
        ('choice(adam,rmsprop)', Categorical, ['adam', 'rmsprop']),
        ("choice('adam',null)", Categorical, ['adam', None]),
        ('grid(1,2)', dict, [1, 2]),
    ],
)
def test_domain_is_read_from_text(text: str, kind: type, expected: list[Any]) -> None:
    domain = parse_domain(text)
    assert isinstance(domain, kind)
    assert ends(domain) == expected
    assert [type(value) for value in ends(domain)][-1] is type(expected[-1]) or kind is Float
    assert described(domain)
    if kind is not dict and kind is not Categorical:
        assert all(expected[0] <= domain.sample() <= expected[-1] for _ in range(50))


@pytest.mark.parametrize(
    'text',
    [
        *('', '0.1', 'uniform', 'uniform(', 'uniform(1)', 'uniform(a,b)', 'uniform(1,0)', 'loguniform(0,1)'),
        *('randint(0.5,2)', 'randint(5,5)', 'choice()', 'grid()', 'uniform(0,1))'),
        *('uniform(0,nan)', 'uniform(a=1)', 'choice(*[1])', 'uniform(0,1,q=2)', 'uniform(0,1);uniform(0,1)'),
        *('__import__("os").system("true")', 'uniform(true,2)', 'loguniform(none,1)'),
    ],
)
def test_text_that_is_no_domain_is_refused_with_examples(text: str) -> None:
    with raises(ConfigError):
        parse_domain(text, '--search x')
    with raises(ConfigError):
        parse_domain('unifrom(0,1)')


def test_domain_runs_no_code(cwd: Path) -> None:
    for text in ("choice(open('x','w'))", "uniform(0, __import__('pathlib').Path('x').touch())"):
        with contextlib.suppress(ConfigError):
            parse_domain(text)
    assert list(cwd.iterdir()) == []


# make_tuner

Space = dict[str, Any]
REFUSED: dict[str, tuple[Space, dict[str, Any]]] = {
    'unknown option': ({'policy.learn.lr': tune.uniform(0, 1)}, {}),
    'unknown option drawn by a function': ({'policy.learn.lr': tune.sample_from(lambda spec: 1)}, {}),
    'impossible lower end': ({'policy.learn.batch_size': tune.randint(0, 9)}, {}),
    'impossible choice': ({'policy.learn.nan_policy': tune.choice(['raise', 'rise'])}, {}),
    'a name of ours': ({'metric': 'x'}, {}),
    'interval': (RATE, {'interval': 0}),
    'empty interval': ({'policy.learn.learning_rate': tune.uniform(1, 0)}, {}),
    'folder that is no path': (RATE, {'folder': 's3://bucket/mine'}),
    'mode': (RATE, {'mode': 'maximum'}),
    'unknown search': (RATE, {'search': 'optunna'}),
    'pbt over a network': (
        {'policy.model.encoder_hidden_size_list': tune.choice([[8], [16]])},
        {'scheduler': 'pbt'},
    ),
    'pbt over nothing': ({}, {'scheduler': 'pbt'}),
    'pbt over a function': (
        {'policy.learn.learning_rate': tune.sample_from(lambda spec: 0.1)},
        {'scheduler': 'pbt'},
    ),
    'optuna over a grid': ({'policy.learn.learning_rate': tune.grid_search([0.1])}, {'search': 'optuna'}),
}


@pytest.mark.parametrize('what', REFUSED)
def test_bad_search_is_refused_before_anything_starts(what: str, cwd: Path) -> None:
    space, options = REFUSED[what]
    with raises(ConfigError):
        make_tuner(CONFIG, space, **{**BUDGET, **options})
    assert list(cwd.iterdir()) == []


def test_results_folder_that_exists_is_refused_and_stays(cwd: Path) -> None:
    (cwd / 'mine').mkdir()
    with raises(ExperimentExistsError):
        make_tuner(CONFIG, RATE, folder='mine', **BUDGET)
    assert [path.name for path in cwd.rglob('*')] == ['mine']


def test_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, 'find_spec', lambda name, *a: None if name == 'optuna' else found(name, *a)
    )
    with raises(MissingDependencyError):
        make_tuner(CONFIG, RATE, **BUDGET, search='optuna')


def test_score_on_data_is_compared_by_its_own_name() -> None:
    config = str(ROOT / 'configs' / 'cartpole_bc.py')
    overrides = ['evaluator.type=metric', 'evaluator.data=rlframe.envs.cartpole_expert:held_out']
    with raises(ConfigError):
        make_tuner(config, RATE, overrides=overrides)
    with raises(ConfigError):
        make_tuner(config, RATE, overrides=overrides, metric='accuracy')
    with pytest.raises(pytest.fail.Exception, match='Ray is started'):
        make_tuner(config, RATE, overrides=overrides, metric='eval/accuracy')


@pytest.mark.parametrize('path', ['nowhere', '.'])
def test_there_must_be_a_search_to_go_on_with(path: str) -> None:
    with raises(ConfigError):
        restore_tuner(path)


@pytest.mark.parametrize('saved', ['experiment_state-1.json', 'basic-variant-state-1.json', 'nothing.json'])
def test_search_killed_before_it_was_saved_does_not_begin_anew_without_its_options(
    saved: str, tmp_path: Path
) -> None:
    (tmp_path / 'tuner.pkl').touch()
    (tmp_path / saved).touch()
    with raises(CheckpointError):
        restore_tuner(tmp_path)


# the command line

COMMANDS: dict[str, tuple[str, ...]] = {
    'no config': (),
    'env and config': ('--env', 'CartPole-v1', '-c', CONFIG),
    'policy of a config': ('-c', CONFIG, '--policy', 'dqn'),
    'unknown policy': ('--env', 'CartPole-v1', '--policy', 'dqnn'),
    'policy that does not fit': ('--env', 'CartPole-v1', '--policy', 'td3'),
    'misspelt default': ('-c', CONFIG, '--search', 'defualt'),
    'default of nothing': (
        '-c',
        str(ROOT / 'configs' / 'cartpole_bc.py'),
        '--search',
        'default',
        'learning_rate=1e-3',
        'batch_size=8',
    ),
    'nothing to search': ('-c', CONFIG),
    'no such file': ('-c', 'nowhere.py', '-n', '2'),
    'out is a file': ('-c', CONFIG, '-n', '2', '--out', CONFIG),
    'out below a file': ('-c', CONFIG, '-n', '2', '--out', f'{CONFIG}/x'),
    'no domain': ('-c', CONFIG, '--search', 'policy.learn.learning_rate=0.1'),
    'no equals sign': ('-c', CONFIG, '--search', 'policy.learn.learning_rate'),
    'stop that is no number': ('-c', CONFIG, '-n', '2', '--stop', 'envstep=many'),
    'unknown scheduler': ('-c', CONFIG, '-n', '2', '--scheduler', 'ahsa'),
    'no budget': ('-c', CONFIG, '-n', '2', '--scheduler', 'hyperband', 'max_env_step=1e10'),
    'resume with a config': ('-c', CONFIG, '--resume', 'x'),
    'resume of nothing': ('--resume', 'nowhere'),
    'bad time budget': ('-c', CONFIG, '-n', '2', '--time-budget', '-1'),
}


@pytest.mark.parametrize('what', COMMANDS)
def test_bad_command_line_ends_with_2_and_writes_nothing(what: str, refused: Callable[..., str]) -> None:
    refused('tune', *COMMANDS[what])


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_search_in_order(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('TUNE_DISABLE_SIGINT_HANDLER', '0')
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), _interruptible() as stop:
        signal.raise_signal(number)
    assert stop.received == number and os.environ['TUNE_DISABLE_SIGINT_HANDLER'] == '1'
    assert signal.getsignal(number) == before


def test_schedulers_compare_by_the_budget_or_without_one_after_evaluations() -> None:
    assert tuple(MAKERS) == SCHEDULERS
    cfg = compile_config(*read_config(CONFIG), overrides=['max_env_step=2700'])
    hyperband, median, asha = (make_scheduler(name, cfg, RATE, 3) for name in ('hyperband', 'median', 'asha'))
    assert (hyperband._time_attr, hyperband._max_t_attr, hyperband._eta) == ('budget_parts', 27, 3)
    assert (median._time_attr, median._grace_period) == ('training_iteration', 3)
    assert (asha._time_attr, asha._max_t) == ('timesteps_total', 2700)
    cfg.max_env_step = 10**10
    without = make_scheduler('asha', cfg, {})
    assert (without._time_attr, without._max_t) == ('training_iteration', 4 * 27)


@pytest.mark.parametrize(
    ('options', 'error'),
    [
        ({'overrides': ['env.env_id=CartPole-v9']}, EnvError),
        ({'overrides': ['env.env_id=Pendulum-v1']}, IncompatibleError),
        ({'overrides': ['replay_buffer.replay_buffer_size=1e13']}, ResourceError),
    ],
)
def test_env_that_no_trial_can_use_is_told_before_ray_starts(
    options: Any, error: type[ConfigError], cwd: Path
) -> None:
    with raises(error):
        make_tuner(CONFIG, RATE, **BUDGET, **options)
    assert list(cwd.iterdir()) == []


def test_each_env_that_is_searched_over_is_made(cwd: Path) -> None:
    space = {'env.env_id': tune.choice(['CartPole-v1', 'CartPole-v9'])}
    with raises(EnvError):
        make_tuner(CONFIG, space, **BUDGET)


@pytest.mark.parametrize(
    'space',
    [
        {'policy.learn': {'batch_size': 8}, 'policy.learn.batch_size': tune.choice([16, 32])},
        {'collector.collect_print_freq': 8, 'policy.collect.collector.collect_print_freq': 16},
    ],
)
def test_option_that_is_set_nested_and_dotted_is_refused(space: Any, cwd: Path) -> None:
    with raises(ConfigError):
        make_tuner(CONFIG, {**RATE, **space}, **BUDGET)


def test_neighbours_may_be_set_nested_and_dotted() -> None:
    space = {'policy': {'learn': {'batch_size': 8}}, 'policy.learn.learning_rate': 0.1}
    assert flat_space(space) == {'policy.learn.batch_size': 8, 'policy.learn.learning_rate': 0.1}


@pytest.mark.parametrize('config', [None, (None,)])
def test_what_is_no_config_is_refused(config: Any) -> None:
    with raises(ConfigError):
        make_tuner(config, RATE, **BUDGET)
