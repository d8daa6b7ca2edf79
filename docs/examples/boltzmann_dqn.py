"""A custom policy: DQN that explores by sampling ``softmax(Q / temperature)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rlframe.data import Array, Batch, IntArray
from rlframe.policy.dqn import DQNPolicy
from rlframe.policy.parts.options import linear_decay
from rlframe.registry import POLICY_REGISTRY


@POLICY_REGISTRY.register('boltzmann_dqn')
class BoltzmannDQNPolicy(DQNPolicy):
    """DQN that explores by sampling ``softmax(Q / temperature)`` instead of epsilon-greedy."""

    config = dict(other=dict(temperature=dict(start=1.0, end=0.1, decay=10000)))  # decay in env steps

    def get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {'temperature': linear_decay(info['envstep'], **self._cfg.other.temperature)}

    def forward_collect(
        self, obs: Array, env_id: IntArray, temperature: float = 1.0, **settings: Any
    ) -> Batch:
        logit = self.q_value(obs) / temperature  # [n, A]
        action = torch.distributions.Categorical(logits=logit).sample()  # [n]
        return self.actions.batch(action.numpy())
