"""DQN for observations with an action mask, as small as can be."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
import torch

from rlframe.data import Batch
from rlframe.policy.dqn import DQNPolicy
from rlframe.registry import POLICY_REGISTRY


@POLICY_REGISTRY.register('masked_dqn')
class MaskedDQNPolicy(DQNPolicy):
    """Sees the field ``observation``, flat, and chooses among the actions of the field ``action_mask``."""

    def __init__(self, cfg: Any = None, spec: Any = None, **kwargs: Any) -> None:
        size = int(np.prod(spec.observation_space['observation'].shape))
        box = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        super().__init__(cfg, dataclasses.replace(spec, observation_space=box), **kwargs)

    def _process_transition(self, obs: Any, output: Batch, timestep: Any) -> dict[str, Any]:
        timestep = timestep._replace(obs=flat(timestep.obs))
        return super()._process_transition(flat(obs), output, timestep)

    def _tensor(self, column: Any) -> Any:
        if column.dtype == np.int8:  # an observation
            column = column[:, : -self._spec.action_space.n].astype(np.float32)
        return super()._tensor(column)

    def _legal(self, obs: Any) -> Any:
        mask = obs[:, -self._spec.action_space.n :] > 0
        return torch.from_numpy(mask | ~mask.any(1, keepdims=True))

    def _next_output(self, data: Batch) -> Any:
        obs = self._tensor(data['next_obs'])
        best = self._model(obs).masked_fill(~self._legal(data['next_obs']), -torch.inf).argmax(1)
        return self._target_model(obs).gather(1, best[:, None])[:, 0]

    def _q_value(self, obs: Any) -> Any:
        obs = flat(obs)
        return super()._q_value(obs).masked_fill(~self._legal(obs), -torch.inf)

    def _forward_collect(self, obs: Any, env_id: Any, eps: float = 0.0, **settings: Any) -> Batch:
        action = self._q_value(obs).argmax(1).numpy()
        chance = np.where(obs['action_mask'] > 0, self._rng.random(obs['action_mask'].shape), -1.0)
        action = np.where(self._rng.random(len(action)) < eps, chance.argmax(1), action)
        return Batch.unchecked({'action': action}, len(action))


def flat(obs: Any) -> Any:
    """Returns observation and mask side by side, int8 [n, size + A]."""
    seen = obs['observation'].reshape(len(obs), -1).astype(np.int8)
    return np.concatenate([seen, obs['action_mask'].astype(np.int8)], 1)
