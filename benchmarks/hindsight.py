"""Measures what sampling with hindsight costs beside a uniform batch of the same rows; one JSON line for each case.

usage: python benchmarks/hindsight.py

Batches of 256 from 100,000 steps, as many at a time as the configs `fetch_sac` and `bitflip_dqn` draw, or one. Both buffers are drawn
from in turns; times are medians in microseconds, for all batches of a call; `rewards` is the part in which goals are rewarded.
"""

from __future__ import annotations

import argparse
import json
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from rlframe.data import Array, Batch
from rlframe.worker.replay_buffer import create_buffer

STEPS, BATCH, TURNS = 100_000, 256, 1000


class Near:
    """Rewards of FetchReach."""

    seconds = 0.0

    def reward(self, achieved: Array, desired: Array) -> Array:
        began = perf_counter()
        found: Array = -(np.linalg.norm(achieved - desired, axis=-1) > 0.05).astype(np.float32)
        self.seconds += perf_counter() - began
        return found

    def terminated(self, achieved: Array, desired: Array) -> None:
        return None


class Same(Near):
    """Rewards and ends of BitFlip."""

    def reward(self, achieved: Array, desired: Array) -> Array:
        return self.terminated(achieved, desired).astype(np.float32)

    def terminated(self, achieved: Array, desired: Array) -> Any:
        began = perf_counter()
        found = (achieved == desired).all(-1)
        self.seconds += perf_counter() - began
        return found


CASES = {
    'fetch': (Near, 50, 'f8', 10, 3, (1, 8)),
    'bits': (Same, 15, 'f4', 15, 15, (1, 4)),
}
"""Rewards, steps of an episode, and type and sizes of observations and goals; batches at a time."""


def episode(goals: Any, length: int, number: str, size: int, goal_size: int) -> Batch:
    """Returns an episode of random numbers in which no goal is reached."""
    dtype = np.dtype(
        [
            (name, number, (n,))
            for name, n in (('observation', size), ('achieved_goal', goal_size), ('desired_goal', goal_size))
        ]
    )
    rng = np.random.default_rng(0)
    obs = np.zeros(length + 1, dtype)
    for name in dtype.names or ():
        obs[name] = rng.normal(size=obs[name].shape)
    ends = np.arange(length) == length - 1
    reward = goals.reward(obs['achieved_goal'][1:], obs['desired_goal'][1:])
    columns = {'reward': reward, 'terminated': ends & False, 'truncated': ends}
    return Batch(obs=obs[:-1], next_obs=obs[1:], action=rng.normal(size=(length, 4)), **columns)


def measured(case: str, nstep: int, count: int) -> dict[str, Any]:
    """Returns medians of both buffers in turns."""
    kind, length, *sizes, _ = CASES[case]
    goals = kind()
    episodes = [episode(goals, length, *sizes)] * (STEPS // length)
    hindsight = create_buffer(
        'naive', replay_buffer_size=STEPS, hindsight=dict(strategy='future', nstep=nstep)
    )
    hindsight.hindsight.goals = goals  # type: ignore[attr-defined]
    uniform = create_buffer('naive', replay_buffer_size=STEPS)
    hindsight.push(episodes, 0)
    uniform.push(Batch.cat(episodes), 0)
    times: dict[str, list[float]] = {'uniform': [], 'hindsight': [], 'rewards': []}
    for _ in range(TURNS):
        goals.seconds = 0.0
        for name, buffer in (('uniform', uniform), ('hindsight', hindsight)):
            began = perf_counter()
            list(buffer.batches(count, BATCH, 0))
            times[name].append(perf_counter() - began)
        times['rewards'].append(goals.seconds)
    found = {name: round(median(seconds) * 1e6, 1) for name, seconds in times.items()}
    return {
        'case': case,
        'nstep': nstep,
        'batches': count,
        **found,
        'ratio': round(found['hindsight'] / found['uniform'], 2),
    }


def main() -> None:
    """Prints a line for each case."""
    argparse.ArgumentParser(description=__doc__.partition('\n')[0]).parse_args()
    for name, (*_, counts) in CASES.items():
        for at_once in counts:
            print(json.dumps(measured(name, 1, at_once)))
        print(json.dumps(measured(name, 3, counts[-1])))


if __name__ == '__main__':
    main()
