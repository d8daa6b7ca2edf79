"""The replay buffer of a checkpoint as recorded data: its rows, ordered by episode."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.recording import STEP, Recording
from rlframe.data.timestep import Array, BoolArray, IntArray
from rlframe.errors import ConfigError


def replay_recording(state: Any, policy: Any, where: str) -> Recording:
    """Returns the rows of a replay buffer as a recording, whose actions are those of the env.

    Args:
        state: State of the replay buffer in a checkpoint.
        policy: The policy that filled it, which knows how it stores actions.
        where: The checkpoint, for errors.

    Raises:
        ConfigError: If there is no replay buffer, or its rows are no single env steps.
    """
    if state is None:
        raise ConfigError(
            'this checkpoint has no replay buffer',
            where=where,
            remedy="Name ckpt/latest of an off-policy run that keeps it (checkpoint.replay_buffer='every'), or record the"
            ' policy: without --replay.',
        )
    kind, storage = state.get('kind'), state.get('storage', {})
    columns = storage.get('columns') if kind == 'RingStorage' else None
    if columns is None or not set(STEP) <= columns.keys():
        raise ConfigError(
            f'this replay buffer holds {kind or "nothing"}, not single env steps',
            where=where,
            remedy='Record the next run as it trains: policy.collect.record=DATA.',
        )
    if 'value_gamma' in columns:
        raise ConfigError(
            'the rewards in this replay buffer are sums over n steps',
            where=where,
            expected='policy.nstep=1',
            remedy='Record the next run as it trains: policy.collect.record=DATA.',
        )
    rows = {name: np.asarray(columns[name]) for name in STEP}
    done = rows['terminated'] | rows['truncated']
    if {'env_id', 'episode_step'} <= columns.keys():
        begins = np.asarray(columns['episode_step']) == 0
        chain = _by_env(np.asarray(columns['env_id']), begins)
    else:
        chain = _by_observation(rows['obs'], rows['next_obs'], done)
    order = np.argsort(chain, kind='stable')
    rows = {name: column[order] for name, column in rows.items()}
    rows['action'] = policy.env_action(rows['action'])
    is_last = np.append(chain[order][1:] != chain[order][:-1], True)
    rows['truncated'] = rows['truncated'] | (
        is_last & ~rows['terminated']
    )  # episodes that were still running
    return Recording(rows | {'episode': chain[order]}, {}, where, 'replay buffer')


def _by_env(env_id: IntArray, begins: BoolArray) -> IntArray:
    """Returns the episode of each row, [n], by its env and the rows that begin an episode; in order of their first rows."""
    chain = np.zeros(len(env_id), np.int64)
    running: dict[int, int] = {}
    count = 0
    for row, (env, is_first) in enumerate(zip(env_id.tolist(), begins.tolist(), strict=True)):
        if is_first or env not in running:
            running[env] = count
            count += 1
        chain[row] = running[env]
    return chain


def _by_observation(obs: Array, next_obs: Array, done: BoolArray) -> IntArray:
    """Returns the episode of each row, [n]: a row goes on with the oldest episode that waits for its observation."""
    chain = np.zeros(len(obs), np.int64)
    waiting: dict[bytes, list[int]] = {}
    count = 0
    for row, is_last in enumerate(done.tolist()):
        found = waiting.get(obs[row].tobytes())
        if found:
            chain[row] = found.pop(0)
        else:
            chain[row] = count
            count += 1
        if not is_last:
            waiting.setdefault(next_obs[row].tobytes(), []).append(int(chain[row]))
    return chain
