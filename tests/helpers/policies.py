"""The policies whose contracts tests try."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlframe.config.rules import learns_from_data as learns_from_data
from rlframe.data import Batch
from rlframe.registry import POLICY_REGISTRY


def recorded_transitions(manager: Any, player: Any, steps: int = 8) -> Batch:
    """Returns what a player sees and does in the envs of a manager, in order of time, episode after episode."""
    rows: dict[int, list[Batch]] = {i: [] for i in manager.ready}
    episode, episodes = 0, dict(enumerate(rows))
    for _ in range(steps):
        obs, env_id = manager.obs.copy(), manager.ready
        action = player.forward(obs, env_id)['action']
        step = manager.step(action, env_id)
        columns = dict(
            obs=obs, next_obs=step.obs.copy(), action=action, reward=step.reward.astype(np.float32)
        )
        columns |= dict(terminated=step.terminated, truncated=step.truncated)
        columns['episode'] = np.array([episodes[i] for i in env_id])
        for i, row in enumerate(env_id):
            rows[row].append(Batch(columns)[i : i + 1])
        if step.done.any():
            for i in env_id[step.done]:
                episode += 1
                episodes[i] = len(rows) + episode
            manager.reset(env_id[step.done])
    return Batch.cat([batch for own in rows.values() for batch in own])


def needs_data(policy: str) -> bool:
    """Whether a policy acts, and needs recorded data beside that."""
    return bool(getattr(POLICY_REGISTRY.get(policy), 'needs_data', False))


def given_data(policy: str, data: Any) -> dict[str, Any]:
    """Returns the options of a replay buffer that begins with data, for a policy that needs some."""
    return dict(init_from=data) if needs_data(policy) else {}


def round_of(policy: str, n_sample: int) -> dict[str, int]:
    """Returns how much a round collects: so many samples, unless it is whole episodes by default."""
    collect = POLICY_REGISTRY.get(policy).default_config().collect
    return {} if collect.get('n_episode') else dict(n_sample=n_sample)


SAME = ('mdqn', 'rainbow', 'a2c', 'appo', 'ddpg', 'tqc', 'redq', 'droq')
"""Names of a policy with other defaults, whose switches tests/unit/policy tries; a toy is all that they need."""


def tried_policies() -> list[str]:
    """Returns the names of all other policies."""
    return [name for name in POLICY_REGISTRY.names() if name not in SAME]


ACTORS = ('dqn', 'pdqn', 'r2d2', 'ppo', 'bc', 'td3', 'sac', 'sac_discrete')
"""Policies that act differently; each other one acts as one of them does."""


def acting_policies() -> list[str]:
    """Returns these, and the policies of modules that ``RLFRAME_IMPORT`` names."""
    return [
        name for name in POLICY_REGISTRY.names() if name in ACTORS or not POLICY_REGISTRY.is_builtin(name)
    ]


def slow_unless_it_acts_alone(names: list[str]) -> list[Any]:
    """Returns names of policies as cases; those that act as another one does, but for a part of its network, are marked slow."""
    quick = (*acting_policies(), 'c51', 'iqn', 'dt', 'ibc', 'bcq', 'qmix', 'mappo', 'reppo')
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]
