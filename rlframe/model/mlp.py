"""Multi-layer perceptrons that know how to read an observation space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import torch
from torch import nn

ACTIVATIONS = {'relu': nn.ReLU, 'tanh': nn.Tanh, 'gelu': nn.GELU, 'silu': nn.SiLU}


class ObsToVector(nn.Module):
    """Makes float32 vectors of observations: a Box is flattened, a Discrete one-hot encoded."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__()
        self._classes = int(space.n) if isinstance(space, gymnasium.spaces.Discrete) else 0
        self._start = int(space.start) if isinstance(space, gymnasium.spaces.Discrete) else 0
        self.size = self._classes or int(torch.tensor(space.shape or (1,)).prod())
        """Length of a vector."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Maps [B, ...] to float32 [B, size]."""
        if self._classes:
            return nn.functional.one_hot(obs.long() - self._start, self._classes).float()
        return obs.flatten(1).float()


def mlp(
    in_size: int, hidden_sizes: Sequence[int], activation: str, out_size: int | None = None
) -> nn.Sequential:
    """Returns hidden layers with an activation behind each and, with ``out_size``, a linear layer at the end."""
    layers: list[nn.Module] = []
    for size in hidden_sizes:
        layers += [nn.Linear(in_size, size), ACTIVATIONS[activation]()]
        in_size = size
    if out_size is not None:
        layers.append(nn.Linear(in_size, out_size))
    return nn.Sequential(*layers)
