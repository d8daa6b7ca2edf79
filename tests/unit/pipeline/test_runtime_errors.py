"""What can only be seen while a run runs: beside rows 40 to 45 of the table of bad inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from error_texts import raises
from fakes import config_pair

from rlframe.errors import EnvContractError, NonFiniteError, RLFrameError
from rlframe.pipeline import serial_pipeline

pytestmark = pytest.mark.usefixtures('cwd', 'nothing_outlives')

BROKEN = 'broken_envs:BrokenEnv'


def broken(fault: str, at: int = 57, **kwargs: Any) -> dict[str, Any]:
    """Returns options of an env that is wrong far beyond the steps that are checked in full."""
    return {'env.env_id': BROKEN, 'env.kwargs': {'fault': fault, 'at': at, **kwargs}}


CASES: dict[str, tuple[type[RLFrameError], dict[str, Any]]] = {
    'reset': (EnvContractError, broken('reset: obs of 5', 20)),
    'inf': (NonFiniteError, broken('reward inf')),
    'loss': (NonFiniteError, {'policy.learn.learning_rate': 1e30}),
}
"""What ``bad_input_table`` does not have, and one with a loss; by PPO, as the table trains by DQN."""


def overrides(options: dict[str, Any]) -> list[str]:
    return [
        f'{key}={value!r}' if isinstance(value, dict) else f'{key}={value}' for key, value in options.items()
    ]


@pytest.mark.parametrize('case', CASES)
def test_the_error_is_named_and_nothing_bad_is_kept(case: str, cwd: Path) -> None:
    error, options = CASES[case]
    pair = config_pair('ppo', evaluator=dict(eval_freq=10**6), learn=dict(batch_size=16))
    with raises(error):
        serial_pipeline(pair, seed=1, max_env_step=5000, overrides=overrides(options))
    folder = cwd / 'toy_seed1'
    assert not list(folder.rglob('*.tmp*')) and not list(folder.rglob('.tmp*'))
    assert (folder / 'log.txt').exists()


def test_row_44_numpy_flags_are_as_good_as_python_ones(cwd: Path) -> None:
    pair = config_pair()
    serial_pipeline(pair, max_env_step=200, overrides=overrides({'env.env_id': BROKEN}))
    assert 'WARNING' not in (cwd / 'toy_seed0' / 'log.txt').read_text(encoding='utf-8')


def test_skipped_updates_are_shown_and_the_run_goes_on(cwd: Path) -> None:
    pair = config_pair(learn=dict(nan_policy='skip', learning_rate=1e30))
    serial_pipeline(pair, max_train_iter=40)
    lines = (cwd / 'toy_seed0' / 'metrics.jsonl').read_text(encoding='utf-8').splitlines()
    shares = [json.loads(line).get('train/skipped_share') for line in lines]
    assert max(share for share in shares if share is not None) == 1
    assert 'skipped' in (cwd / 'toy_seed0' / 'log.txt').read_text(encoding='utf-8')
