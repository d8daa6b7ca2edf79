"""Replays recorded episodes in an env from their seeds, and compares observations and rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.recording import Episodes, Recording
from rlframe.data.timestep import Array
from rlframe.errors import EnvStartError

if TYPE_CHECKING:
    from rlframe.envs.base_env import EnvFactory

EPISODES, STEPS = 3, 1000
"""Episodes that are replayed, and env steps of each, at most."""


def replay_problems(
    recording: Recording, factory: EnvFactory, episodes: Episodes
) -> tuple[str, list[dict[str, Any]]]:
    """Replays some episodes.

    Args:
        recording: The data.
        factory: Creates the env.
        episodes: Its episodes.

    Returns:
        What was replayed, in words, and the problems that were found.
    """
    seeds = recording.facts.get('seeds')
    if not seeds or factory.only_vector or len(seeds) != len(episodes.start):
        return 'spaces fit; without the seeds of its episodes nothing can be replayed', []
    try:
        env = factory.create()
    except Exception as error:
        raise EnvStartError(f'the env cannot be created: {error}', where='--env') from error
    problems = []
    count = min(EPISODES, len(seeds))
    for number in range(count):
        problems += _replay(
            recording, env, int(seeds[number]), int(episodes.start[number]), int(episodes.length[number])
        )
    env.close()
    if problems:
        return f'spaces fit, and of {count} episodes that were replayed some differ', problems[:1]
    return f'spaces fit, and {count} episodes that were replayed from their seeds are the same', []


def _replay(recording: Recording, env: Any, seed: int, start: int, length: int) -> list[dict[str, Any]]:
    """Returns the first difference between an episode and the env."""
    length = min(length, STEPS)
    columns = recording.columns
    action, obs = columns['action'][start : start + length], columns['obs'][start : start + length]
    reward = columns['reward'][start : start + length]
    seen = env.reset(seed=seed)[0]
    rewards = np.zeros(length)
    for t in range(length):
        if obs.dtype.names is None and not np.allclose(obs[t], seen, rtol=1e-4, atol=1e-5):
            return [
                _problem(
                    'obs',
                    start + t,
                    f'the env gives {np.asarray(seen).tolist()} there: another env, or another version',
                )
            ]
        seen, rewards[t], terminated, truncated, _ = env.step(action[t])
        if terminated or truncated:
            break
    return _of_rewards(reward, rewards.astype(np.float32), start)


def _of_rewards(reward: Array, rewards: Array, start: int) -> list[dict[str, Any]]:
    differs = ~np.isclose(reward, rewards, rtol=1e-4, atol=1e-5)
    if not differs.any():
        return []
    first = int(differs.argmax())
    text = f'the env gives {rewards[first]:g} there, not {reward[first]:g}'
    if len(reward) > 2 and np.allclose(reward[1:], rewards[:-1], rtol=1e-4, atol=1e-5):
        text = 'each is that of the row before: rewards lie a row too late'
    elif len(reward) > 2 and np.allclose(reward[:-1], rewards[1:], rtol=1e-4, atol=1e-5):
        text = 'each is that of the row after: rewards lie a row too early'
    elif rewards[first] and np.allclose(
        reward, rewards * (reward[first] / rewards[first]), rtol=1e-3, atol=1e-5
    ):
        text = f'each is {reward[first] / rewards[first]:.4g} times that of the env: another unit'
    return [_problem('reward', start + first, text)]


def _problem(column: str, row: int, text: str) -> dict[str, Any]:
    return {'column': column, 'row': row, 'count': 1, 'text': text}
