"""What can only be seen while a run runs: rows 40 to 45 and 67 of the table of bad inputs, from Python and the command line."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import config_pair
from runs import DQN, ROOT, child_processes, finish, train

from rlframe.entry.__main__ import main
from rlframe.errors import EnvContractError, EpisodeTooLongError, NonFiniteError, RLFrameError
from rlframe.pipeline import serial_pipeline

BROKEN = 'broken_envs:BrokenEnv'
FEW = ('--env-step', '200')


def broken(fault: str, at: int = 57, **kwargs: Any) -> dict[str, Any]:
    """Returns options of an env that is wrong far beyond the steps that are checked in full."""
    return {'env.env_id': BROKEN, 'env.kwargs': {'fault': fault, 'at': at, **kwargs}}


PLACE = 'env 0, episode 12, step 2'
CASES: dict[str, tuple[type[RLFrameError], dict[str, Any], tuple[str, ...]]] = {
    '40 shape': (EnvContractError, broken('obs of 5'), (PLACE, 'shape (5,)', 'declared is (4,)')),
    '40 axis': (EnvContractError, broken('obs with an axis too many'), (PLACE, 'shape (1, 4)')),
    '40 number': (EnvContractError, broken('obs is a number'), (PLACE, 'shape ()')),
    '40 reset': (EnvContractError, broken('reset: obs of 5', 20), ('env 0, episode 20', 'shape (5,)')),
    '41 object': (EnvContractError, broken('obs of objects'), (PLACE, 'dtype object', 'float32')),
    '41 text': (EnvContractError, broken('obs of texts', 2), ('env 0, episode 1, step 2', 'dtype <U1')),
    '43 nan': (NonFiniteError, broken('reward nan'), (PLACE, 'reward is nan')),
    '43 inf': (NonFiniteError, broken('reward inf'), (PLACE, 'reward is inf')),
    '43 array': (EnvContractError, broken('reward array'), (PLACE, 'array of shape (1,)', 'one number')),
    '43 none': (EnvContractError, broken('reward none'), (PLACE, 'reward None')),
    '43 text': (EnvContractError, broken('reward text'), (PLACE, "reward '1.5' (str)")),
    '44 int': (EnvContractError, broken('flag int', 2), ('episode 1, step 2', 'terminated=1 (int)', 'bool')),
    'obs nan': (NonFiniteError, broken('obs nan'), (PLACE, 'obs is [', 'nan')),
    'reset nan': (NonFiniteError, broken('reset: obs nan', 20), ('env 0, episode 20, step 0', 'obs is [')),
    '45 loss': (
        NonFiniteError,
        {'policy.learn.learning_rate': 1e30},
        ('train_iter ', 'total_loss', 'gradient norm', 'learning rate 1e+30', 'checkpoint', 'grad_clip_norm'),
    ),
    '67 endless, collected': (
        EpisodeTooLongError,
        {
            'env.env_id': BROKEN,
            'env.kwargs': {'length': 150},
            'policy.collect.collector.max_episode_len': 100,
        },
        ('policy.collect.collector.max_episode_len', 'more than 100 env steps', 'TimeLimit'),
    ),
}
OFTEN = {'43 nan', '45 loss'}
"""Cases of which every variation is tried every time."""


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Checks that no thread and no process outlives a run."""
    before, processes = set(threading.enumerate()), child_processes()
    yield
    assert not multiprocessing.active_children()
    assert not [thread for thread in threading.enumerate() if thread not in before]
    assert child_processes() <= processes


def overrides(options: dict[str, Any]) -> list[str]:
    return [
        f'{key}={value!r}' if isinstance(value, dict) else f'{key}={value}' for key, value in options.items()
    ]


def assert_nothing_bad_is_kept(folder: Path) -> None:
    """Checks that no half-written file is left and that the text log was closed."""
    assert not list(folder.rglob('*.tmp*')) and not list(folder.rglob('.tmp*'))
    assert (folder / 'log.txt').exists()


@pytest.mark.parametrize(
    ('policy', 'case'),
    [
        *(('ppo', case) for case in CASES),
        # the test of the command line trains by DQN
        *(pytest.param('dqn', case, marks=[] if case in OFTEN else pytest.mark.slow) for case in CASES),
    ],
)
def test_python_raises_the_named_error(case: str, policy: str, cwd: Path) -> None:
    error, options, words = CASES[case]
    pair = config_pair(policy, evaluator=dict(eval_freq=10**6), learn=dict(batch_size=16))
    with pytest.raises(error) as caught:
        serial_pipeline(pair, seed=1, max_env_step=5000, overrides=overrides(options))
    for word in words:
        assert word in str(caught.value)
    assert_nothing_bad_is_kept(cwd / 'toy_seed1')


@pytest.mark.parametrize('case', CASES)
def test_command_line_says_it_in_one_line_and_returns_1(
    case: str, cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error, options, words = CASES[case]
    given = [str(ROOT / word) if word.startswith('configs/') else word for word in DQN]
    code = main([*given, '--env-step', '5000', *overrides(options)])
    err = capsys.readouterr().err
    assert code == 1 and 'Traceback' not in err
    (line,) = [line for line in err.splitlines() if line.startswith('rlframe: ') and error.__name__ in line]
    for word in words:
        assert word in line
    assert_nothing_bad_is_kept(cwd / 'cartpole_dqn_seed0')


@pytest.mark.parametrize('manager', ['subprocess', 'gym_vector'])
@pytest.mark.parametrize(
    'case', [pytest.param('40 shape', marks=pytest.mark.slow), '43 nan', '43 none', 'reset nan']
)
def test_other_managers_say_the_same(manager: str, case: str, cwd: Path) -> None:
    error, options, words = CASES[case]
    pair = config_pair(manager=manager, evaluator=dict(eval_freq=10**6))
    with pytest.raises(error) as caught:
        serial_pipeline(pair, max_env_step=5000, overrides=overrides(options))
    for word in words:
        assert word in str(caught.value)


def test_what_is_told_of_is_on_stderr_and_in_the_text_log_once(cwd: Path) -> None:
    for name, fault, words in (
        ('41', 'float64', ('dtype float64', 'float32', 'converted')),
        ('42', 'out of bounds', ('lies in [10, 40]', '[-1, 1]')),
    ):
        words_of_run = [*DQN, *FEW, '--exp-name', f'row{name}', *overrides(broken(fault, 1))]
        _, err = finish(train(cwd, *words_of_run))
        log = (cwd / f'row{name}' / 'log.txt').read_text(encoding='utf-8')
        for text in (err, log):
            # one manager collects, another one evaluates
            assert 1 <= text.count('EnvContractWarning: BrokenEnv: ') <= 2, text
            for word in words:
                assert word in text


def test_row_44_numpy_flags_are_as_good_as_python_ones(cwd: Path) -> None:
    pair = config_pair()
    serial_pipeline(pair, max_env_step=200, overrides=overrides({'env.env_id': BROKEN}))
    assert 'WARNING' not in (cwd / 'toy_seed0' / 'log.txt').read_text(encoding='utf-8')


def test_skipped_updates_are_shown_and_the_run_goes_on(cwd: Path) -> None:
    import json

    pair = config_pair(learn=dict(nan_policy='skip', learning_rate=1e30))
    serial_pipeline(pair, max_train_iter=40)
    lines = (cwd / 'toy_seed0' / 'metrics.jsonl').read_text(encoding='utf-8').splitlines()
    shares = [json.loads(line).get('train/skipped_share') for line in lines]
    assert max(share for share in shares if share is not None) == 1
    assert 'skipped' in (cwd / 'toy_seed0' / 'log.txt').read_text(encoding='utf-8')
