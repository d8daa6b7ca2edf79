"""Q-networks: the value of every action of a discrete space."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from rlframe.data.timestep import EnvSpec
from rlframe.model.mlp import MLP
from rlframe.registry import MODEL_REGISTRY


@MODEL_REGISTRY.register('q_net')
class QNet(nn.Module):
    """Encoder and a head that values each action.

    Args:
        spec: Spaces of the env.
        encoder_hidden_size_list: Widths of the hidden layers.
        activation: Nonlinearity behind each.
        dueling: Whether value and advantage have heads of their own.

    Source:
        Dueling: Wang et al., Dueling Network Architectures for Deep Reinforcement Learning (2016), eq. 9.
    """

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (128, 128, 64),
        activation: str = 'relu',
        dueling: bool = True,
    ) -> None:
        super().__init__()
        actions = int(spec.action_space.n)
        self.encoder = MLP(
            spec.observation_space, encoder_hidden_size_list, activation, None if dueling else actions
        )
        self.advantage_head = nn.Linear(self.encoder.out_size, actions) if dueling else None
        self.value_head = nn.Linear(self.encoder.out_size, 1) if dueling else None

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Maps observations [B, ...] to values float32 [B, A]."""
        features = self.encoder(obs)
        if self.advantage_head is None or self.value_head is None:
            return features
        advantage = self.advantage_head(features)
        return advantage - advantage.mean(1, keepdim=True) + self.value_head(features)
