"""Small trials and searches, and ways to see what they did and what they left behind."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from runs import CASES, ROOT, differences, records

from rlframe.config.compile import parse_value
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.tune import make_tuner
from rlframe.tune.trial import CHECKPOINT

CPUS = 2
"""Of the Ray that the tests of a file share."""
RATE = 'policy.learn.learning_rate'
SCORED = {'env.env_id': 'zoo:ScoredEnv', 'env.kwargs.score': 1.0}
"""Options: an env whose return is told."""
ENVIRONMENT = {
    'RAY_AIR_NEW_OUTPUT': '0',
    'RAY_USAGE_STATS_ENABLED': '0',
    'TUNE_FORCE_TRIAL_CLEANUP_S': '10',
    'TUNE_MAX_PENDING_TRIALS_PG': '16',
}
"""What Tune is told in tests."""
RESULTS = 'RLFRAME_TEST_RAY_RESULTS'
"""Environment variable with the folder of trials outside of Tune: two test processes share one home."""
MAY_DIFFER = ('wall_time', 'time', 'date', 'timestamp', 'pid', 'hostname', 'node_ip', 'trial_id', 'config')
"""Starts of the keys of results that no two runs share."""


def case_options(case: str) -> dict[str, Any]:
    """Returns the options of a case of ``runs.CASES``, by dotted keys."""
    pairs = (word.partition('=') for word in CASES[case][2:])
    return {key: parse_value(value) for key, _, value in pairs}


def trial_config(case: str = 'dqn naive', options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the config of a trial of a case of ``runs.CASES``: a file by its path, and options."""
    return {'config': str(ROOT / CASES[case][1]), **case_options(case), **(options or {})}


def comparable(result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what must be the same in the results of two equal runs, with NaN as a text."""
    kept = {key: value for key, value in result.items() if not key.startswith(MAY_DIFFER)}
    return {key: 'nan' if value != value else value for key, value in kept.items()}


def saved_state(folder: Path) -> dict[str, Any]:
    """Returns everything that a trial saved into a folder but for times."""
    state, _ = load_checkpoint(folder / CHECKPOINT)
    state['progress'] |= {'wall_time': 0}
    return state


def assert_same_state(one: Path, other: Path) -> None:
    """Makes sure that two trials saved the same bits."""
    state = saved_state(one)
    assert state['progress']['train_iter'] > 0
    assert differences(state, saved_state(other)) == []


def learning_rates(policy: Any) -> list[float]:
    """Returns the step sizes that the optimizers of a policy use."""
    found = [*policy.update.optimizers.values()]
    assert found, 'no optimizer'
    return [optimizer.learning_rate for optimizer in found]


def generators(tree: Any, path: str = '') -> dict[str, Any]:
    """Returns the states of numpy's generators in a tree, by where they are."""
    if not isinstance(tree, dict):
        return {}
    if 'bit_generator' in tree:
        return {path: tree['state']}
    return {k: v for name, below in tree.items() for k, v in generators(below, f'{path}.{name}').items()}


def search(
    folder: Path,
    space: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Any:
    """Searches in the Ray of the test, with results under a folder; options are those that all trials have in common."""
    given = {**case_options('dqn naive'), **(options or {})}
    tuner = make_tuner(
        str(ROOT / CASES['dqn naive'][1]),
        space,
        overrides=[f'{key}={json.dumps(value)}' for key, value in given.items()],
        folder=folder / 'search',
        **arguments,
    )
    return tuner.fit()


def command(pid: int) -> str:
    """Returns the command line of a process; empty if it has ended."""
    try:
        return Path(f'/proc/{pid}/cmdline').read_text().replace('\0', ' ')
    except OSError:
        return ''


def run_records(run: Path) -> list[dict[str, Any]]:
    """Returns the metrics of a run folder but for times."""
    return records(run)


def ray_results() -> set[Path]:
    """Returns what lies in the folder that Ray writes to where nothing else is said."""
    folder = Path.home() / 'ray_results'
    return set(folder.iterdir()) if folder.is_dir() else set()


def has_free_cpus(seconds: float = 30) -> bool:
    """Returns whether all CPUs of the Ray of the test are free, or become so meanwhile."""
    until = time.monotonic() + seconds
    while not (free := ray.available_resources().get('CPU', 0) >= CPUS) and time.monotonic() < until:
        time.sleep(0.05)
    return free
