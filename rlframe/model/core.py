"""Recurrent cores, the memory of a network: a GRU or an LSTM between an encoder and the heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from rlframe.data.timestep import EnvSpec
from rlframe.model.encoder import Obs
from rlframe.model.mlp import MLP

STATES_OF_CORE = {'gru': 1, 'lstm': 2}
"""Vectors in the recurrent state of each kind of core, P."""


class Unroll(NamedTuple):
    """Rows of several sequences as places in a padded block [L, B]: step ``step[r]`` of sequence ``sequence[r]``."""

    step: torch.Tensor
    """Step of each row within its sequence, int64 [R]."""
    sequence: torch.Tensor
    """Sequence of each row, int64 [R]."""
    length: int
    """Steps of the longest sequence, L."""
    state: torch.Tensor
    """Recurrent state before the first step of each sequence, float32 [B, P, H]."""


class Core(nn.Module):
    """A GRU or an LSTM of one layer.

    A recurrent state is float32 [B, P, H]: the hidden state and, of an LSTM, the cell state. It is zero before the
    first step of an episode.

    Args:
        kind: 'gru' or 'lstm'.
        in_size: Features of a step.
        hidden_size: Units, H.

    Source:
        Hochreiter & Schmidhuber, Long Short-Term Memory (1997); Cho et al., Learning Phrase Representations using RNN
        Encoder-Decoder (2014), section 2.3. Orthogonal weights, biases of 0: Huang et al., The 37 Implementation
        Details of Proximal Policy Optimization (2022), detail 2 of the LSTM.
    """

    def __init__(self, kind: str, in_size: int, hidden_size: int) -> None:
        super().__init__()
        self._is_lstm = kind == 'lstm'
        self.rnn = (nn.LSTM if self._is_lstm else nn.GRU)(in_size, hidden_size)
        for name, parameter in self.rnn.named_parameters():
            if 'weight' in name:
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)
        self.state_shape = (STATES_OF_CORE[kind], hidden_size)
        """Shape of the recurrent state of an episode, (P, H)."""

    def step(self, features: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Does one step of each of several episodes: a cell alone is several times faster than ``unroll``.

        Args:
            features: float32 [B, F].
            state: Recurrent state before the step, float32 [B, P, H].

        Returns:
            The output, float32 [B, H], and the recurrent state after the step.
        """
        weights = self.rnn.all_weights[0]
        if self._is_lstm:
            after = torch.stack(torch.lstm_cell(features, state.unbind(1), *weights), 1)
        else:
            after = torch.gru_cell(features, state[:, 0], *weights).unsqueeze(1)
        return after[:, 0], after

    def unroll(self, features: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Goes through all steps of sequences.

        Args:
            features: float32 [L, B, F].
            state: Recurrent state before the first steps, float32 [B, P, H].

        Returns:
            Outputs, float32 [L, B, H].
        """
        parts: Any = state.transpose(0, 1).contiguous().split(1)  # P of [1, B, H]
        output: torch.Tensor = self.rnn(features, parts if self._is_lstm else parts[0])[0]
        return output

    def forward(self, features: torch.Tensor, unroll: Unroll, state: torch.Tensor) -> torch.Tensor:
        """Goes through sequences of different lengths.

        The sequences are padded behind their ends, where nothing is read: padding has no influence.

        Args:
            features: Features of the rows, float32 [R, F].
            unroll: Places of the rows.
            state: Recurrent state before the first steps, float32 [B, P, H].

        Returns:
            Outputs of the rows, float32 [R, H].
        """
        shape = unroll.length, len(state), features.shape[1]
        padded = features.new_zeros(shape).index_put((unroll.step, unroll.sequence), features)
        return self.unroll(padded, state)[unroll.step, unroll.sequence]


class RecurrentEncoder(nn.Module):
    """Hidden layers and a core behind them.

    Args:
        spec: Spaces of the env.
        hidden_sizes: Widths of the hidden layers in front of the core.
        activation: Nonlinearity behind each.
        core: 'gru' or 'lstm'.
        core_hidden_size: Units of the core, H.
        images: Options of the encoder of images; see ``MLP``.
    """

    def __init__(
        self,
        spec: EnvSpec,
        hidden_sizes: Sequence[int],
        activation: str,
        core: str,
        core_hidden_size: int,
        **images: Any,
    ) -> None:
        super().__init__()
        self.encoder = MLP(spec.observation_space, hidden_sizes, activation, None, **images)
        self.core = Core(core, self.encoder.out_size, core_hidden_size)

    def step(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps observations [B, ...] and recurrent states to outputs, float32 [B, H], and the states after the step."""
        return self.core.step(self.encoder(obs), state)

    def forward(self, obs: Obs, unroll: Unroll, state: torch.Tensor) -> torch.Tensor:
        """Maps the observations of sequences, [R, ...], to float32 [R, H]; see ``Core``."""
        output: torch.Tensor = self.core(self.encoder(obs), unroll, state)
        return output
