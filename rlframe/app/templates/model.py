"""A custom network: a Q-network with layer normalization.

    rlframe train --env CartPole-v1 --policy dqn "import_names=['new_model']" policy.model.type=new_model

Its options are those of the section policy.model of a config. Networks of policies other than DQN's family have other
outputs: see rlframe/model/actor_critic.py for PPO and A2C, rlframe/model/qac.py for SAC, DDPG and TD3.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from rlframe.data import EnvSpec
from rlframe.model.core import MLP
from rlframe.registry import MODEL_REGISTRY


@MODEL_REGISTRY.register('new_model')
class NewModel(nn.Module):
    """Values each action of a discrete space."""

    def __init__(
        self, spec: EnvSpec, encoder_hidden_size_list: Sequence[int] = (128, 128), **others: Any
    ) -> None:  # ``others``: options of policy.model that a config sets and this network does not have
        super().__init__()
        space: Any = spec.action_space
        # reads any observation space
        self.body = MLP(spec.observation_space, encoder_hidden_size_list, 'relu')
        self.norm = nn.LayerNorm(self.body.out_size)
        self.head = nn.Linear(self.body.out_size, int(space.n))

    def forward(self, obs: Any) -> torch.Tensor:
        """Maps observations [B, ...] to values [B, A]."""
        values: torch.Tensor = self.head(self.norm(self.body(obs)))
        return values
