"""Networks of reward models that learn from demonstrations: what they read of rows, and hidden layers behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import torch
from torch import nn

from rlframe.data.timestep import Batch, EnvSpec, FloatArray, to_tensor
from rlframe.model.core import MLP
from rlframe.model.encoder import Flatten, OneHot, Reader, make_reader, vector_space
from rlframe.reward_model.network import on_device

CLIP = 10.0
"""Largest distance from the mean of the demonstrations, in standard deviations."""
FLAT = 1e-4
"""Standard deviation below which a number does not vary."""


class Bounded(Flatten):
    """Reads continuous actions, which an env cuts to its bounds, [-1, 1] to a network."""

    def __call__(self, obs: torch.Tensor) -> torch.Tensor:
        return super().__call__(obs).clamp(-1, 1)


def action_reader(space: Any) -> Reader:
    """Returns the reader of actions as a network means them: classes, which count from 0, one-hot, others as numbers."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return OneHot(gymnasium.spaces.Discrete(space.n))
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return OneHot(gymnasium.spaces.MultiDiscrete(space.nvec))
    return Bounded(space) if isinstance(space, gymnasium.spaces.Box) else Flatten(space)


class Features(nn.Module):
    """Reads columns of rows as vectors side by side, in units of the demonstrations.

    Numbers are shifted by their mean and divided by their standard deviation, and at most ``CLIP`` away from 0. Classes are
    one-hot, images are read by convolutions, or as numbers.

    Args:
        spec: Spaces of the env.
        rows: The demonstrations.
        reads: Columns to read.
        has_convolutions: Whether images are read by convolutions.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(
        self,
        spec: EnvSpec,
        rows: Batch,
        reads: Sequence[str] = ('obs', 'action'),
        has_convolutions: bool = False,
    ) -> None:
        super().__init__()
        self._reads = tuple(reads)
        reader = make_reader(spec.observation_space, 'relu', None if has_convolutions else [])
        actions = action_reader(spec.action_space)
        self._readers: dict[str, Any] = {'obs': reader, 'next_obs': reader, 'action': actions}
        self.parts = nn.ModuleList(part for part in (reader, actions) if isinstance(part, nn.Module))
        """Readers that have parameters or buffers."""
        self.size = sum(self._readers[name].size for name in reads)
        """Length of a vector."""
        self.register_buffer('mean', torch.zeros(self.size))
        self.register_buffer('std', torch.ones(self.size))
        self._measure(tensors(rows, self._reads))

    @torch.no_grad()
    def _measure(self, rows: dict[str, Any]) -> None:
        """Sets mean and standard deviation of what the demonstrations have as numbers."""
        start = 0
        for name in self._reads:
            reader = self._readers[name]
            own = slice(start, start + reader.size)
            if not isinstance(reader, OneHot) and not _is_trained(reader):
                std, mean = torch.std_mean(reader(rows[name]), 0, correction=0)
                self.mean[own] = mean
                self.std[own] = torch.where(std > FLAT, std, torch.ones_like(std))
            start = own.stop

    def forward(self, rows: dict[str, Any]) -> torch.Tensor:
        """Maps columns [B, ...] to float32 [B, size]."""
        vectors = [self._readers[name](rows[name]) for name in self._reads]
        whole = vectors[0] if len(vectors) == 1 else torch.cat(vectors, 1)
        return ((whole - self.mean) / self.std).clamp(-CLIP, CLIP)

    @torch.no_grad()
    def vectors(self, rows: Batch) -> FloatArray:
        """Reads rows, [M, ...], as arrays, float32 [M, size]."""
        found: FloatArray = self(tensors(rows, self._reads)).numpy()
        return found


def _is_trained(reader: Any) -> bool:
    return isinstance(reader, nn.Module) and any(True for _ in reader.parameters())


def tensors(rows: Batch, reads: Sequence[str], device: Any = 'cpu') -> dict[str, Any]:
    """Returns columns of rows as tensors on a device; those with fields become dicts of tensors."""
    return {name: on_device(to_tensor(rows[name]), device) for name in reads}


class RewardNet(nn.Module):
    """Hidden layers behind ``Features``; images are read by convolutions.

    Args:
        spec: Spaces of the env.
        rows: The demonstrations.
        reads: Columns to read.
        hidden_sizes: Widths of the hidden layers.
        out_size: Numbers that come out.
        activation: Nonlinearity behind each hidden layer.
    """

    def __init__(
        self,
        spec: EnvSpec,
        rows: Batch,
        reads: Sequence[str],
        hidden_sizes: Sequence[int],
        out_size: int = 1,
        activation: str = 'relu',
    ) -> None:
        super().__init__()
        self.features = Features(spec, rows, reads, has_convolutions=True)
        """What the layers read."""
        space = vector_space(self.features.size)
        self.layers = MLP(space, hidden_sizes, activation, out_size)
        """The layers: float32 [B, size] to [B, out_size]."""

    def forward(self, rows: dict[str, Any]) -> torch.Tensor:
        """Maps columns [B, ...] to float32 [B, out_size], or [B] if there is one number."""
        out: torch.Tensor = self.layers(self.features(rows))
        return out.squeeze(1) if out.shape[1] == 1 else out
