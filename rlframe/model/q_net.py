"""Q-networks: the value of every action of a discrete space, or a distribution of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from rlframe.data.timestep import EnvSpec
from rlframe.model.encoder import Obs
from rlframe.model.mlp import MLP
from rlframe.model.noisy import NoisyLinear
from rlframe.registry import MODEL_REGISTRY


@MODEL_REGISTRY.register('q_net')
class QNet(nn.Module):
    """Encoder and a head that values each action.

    Args:
        spec: Spaces of the env.
        encoder_hidden_size_list: Widths of the hidden layers.
        activation: Nonlinearity behind each.
        dueling: Whether value and advantage have heads of their own.
        atoms: Numbers that describe the return of an action: 1 is its mean, more are a distribution.
        noisy: Whether the heads explore by noise in their weights.
        conv_layers: Channels, kernel size and stride of each convolution that reads images.
        image_layout: Position of the channels of images.

    Source:
        Dueling: Wang et al., Dueling Network Architectures for Deep Reinforcement Learning (2016), eq. 9; for
        distributions as in Hessel et al., Rainbow (2018), atom by atom.
    """

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (128, 128, 64),
        activation: str = 'relu',
        dueling: bool = True,
        atoms: int = 1,
        noisy: bool = False,
        conv_layers: Sequence[Sequence[int]] | None = None,
        image_layout: str = 'auto',
    ) -> None:
        super().__init__()
        space: Any = spec.action_space
        self._actions, self._atoms = int(space.n), atoms
        is_plain = not dueling and not noisy
        size = self._actions * atoms
        self.encoder = MLP(
            spec.observation_space,
            encoder_hidden_size_list,
            activation,
            size if is_plain else None,
            conv_layers,
            image_layout,
        )
        linear = NoisyLinear if noisy else nn.Linear
        self.advantage_head = None if is_plain else linear(self.encoder.out_size, size)
        self.value_head = linear(self.encoder.out_size, atoms) if dueling else None

    def forward(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to values float32 [B, A], or with several atoms to [B, A, atoms]."""
        features = self.encoder(obs)
        if self.advantage_head is not None:
            advantage = self._shaped(self.advantage_head(features))
            if self.value_head is None:
                return advantage
            value = self.value_head(features)
            value = value if self._atoms == 1 else value.unsqueeze(1)
            return advantage - advantage.mean(1, keepdim=True) + value
        return self._shaped(features)

    def _shaped(self, flat: torch.Tensor) -> torch.Tensor:
        return flat if self._atoms == 1 else flat.unflatten(1, (self._actions, self._atoms))
