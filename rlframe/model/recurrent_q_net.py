"""Q-network with a memory: encoder, LSTM and the heads of a Q-network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from rlframe.data.timestep import EnvSpec
from rlframe.model.mlp import MLP
from rlframe.model.q_net import QNet
from rlframe.registry import MODEL_REGISTRY


@MODEL_REGISTRY.register('recurrent_q_net')
class RecurrentQNet(nn.Module):
    """Computes the values of each step's actions from an LSTM's memory of the previous steps.

    Args:
        spec: Spaces of the env.
        encoder_hidden_size_list: Widths of the hidden layers in front of the LSTM.
        activation: Nonlinearity behind each.
        lstm_hidden_size: Units of the LSTM.
        dueling: Whether value and advantage have heads of their own.
        noisy: Whether the heads explore by noise in their weights.
        conv_layers: Channels, kernel size and stride of each convolution that reads images.
        image_layout: Position of the channels of images.

    Source:
        Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning (2019), section 2.3.
    """

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (128, 64),
        activation: str = 'relu',
        lstm_hidden_size: int = 64,
        dueling: bool = True,
        noisy: bool = False,
        conv_layers: Sequence[Sequence[int]] | None = None,
        image_layout: str = 'auto',
    ) -> None:
        super().__init__()
        sizes = encoder_hidden_size_list
        self.encoder = MLP(spec.observation_space, sizes, activation, None, conv_layers, image_layout)
        self.lstm = nn.LSTM(self.encoder.out_size, lstm_hidden_size, batch_first=True)
        output = gymnasium.spaces.Box(-1, 1, (lstm_hidden_size,), np.float32)
        self.head = QNet(
            EnvSpec(output, spec.action_space, name=spec.name), [], activation, dueling, 1, noisy
        )
        self.state_shape = (2, lstm_hidden_size)
        """Shape of the recurrent state of an episode, hidden and cell state; zeros before its first step."""

    def forward(self, obs: Any, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Values the actions of consecutive steps.

        Args:
            obs: Observations of T steps of each of B sequences, one sequence behind the other, [B * T, ...].
            state: Recurrent state before the first step of each sequence, float32 [B, 2, H].

        Returns:
            Values, float32 [B * T, A], and the recurrent state after the last step, float32 [B, 2, H].
        """
        features = self._features(obs, len(state))
        if features.shape[1] == 1:
            state = self._step(features.squeeze(1), state)
            return self.head(state[:, 0]), state
        hidden, cell = state.transpose(0, 1).contiguous().split(1)  # [1, B, H]
        output, after = self.lstm(features, (hidden, cell))
        return self.head(output.flatten(0, 1)), torch.cat(after).transpose(0, 1)

    def burn_in(self, obs: Any, state: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Runs the LSTM over steps only to compute its state.

        Args:
            obs: As for ``forward``.
            state: Recurrent state before the first real step, float32 [B, 2, H].
            mask: False for padding, which is skipped, bool [B, T].

        Returns:
            Recurrent state after the last real step, float32 [B, 2, H].
        """
        features = self._features(obs, len(state))
        for step, is_real in zip(features.unbind(1), mask.unbind(1), strict=True):
            state = torch.where(is_real[:, None, None], self._step(step, state), state)
        return state

    def _features(self, obs: Any, sequences: int) -> torch.Tensor:
        features: torch.Tensor = self.encoder(obs)
        return features.unflatten(0, (sequences, -1))  # [B, T, F]

    def _step(self, features: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Does one step; for a single one the cell alone is several times faster than the LSTM."""
        weights = self.lstm.all_weights[0]
        return torch.stack(torch.lstm_cell(features, state.unbind(1), *weights), 1)
