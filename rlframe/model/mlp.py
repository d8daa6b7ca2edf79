"""Multi-layer perceptrons that know how to read an observation space."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import gymnasium
import torch
from torch import nn

ACTIVATIONS = {
    'relu': torch.relu_,
    'tanh': torch.tanh,
    'gelu': nn.functional.gelu,
    'silu': nn.functional.silu,
}


class ObsToVector:
    """Makes float32 vectors of observations: a Box is flattened, a Discrete one-hot encoded."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self._classes = int(space.n) if isinstance(space, gymnasium.spaces.Discrete) else 0
        self._start = int(space.start) if isinstance(space, gymnasium.spaces.Discrete) else 0
        self.size = self._classes or int(torch.tensor(space.shape or (1,)).prod())
        """Length of a vector."""

    def __call__(self, obs: torch.Tensor) -> torch.Tensor:
        """Maps [B, ...] to float32 [B, size]."""
        if self._classes:
            return nn.functional.one_hot(obs.long() - self._start, self._classes).float()
        return obs if obs.dim() == 2 and obs.dtype is torch.float32 else obs.flatten(1).float()


class MLP(nn.Module):
    """Hidden layers with an activation behind each and, with ``out_size``, a linear layer at the end.

    Args:
        space: What it reads.
        hidden_sizes: Widths of the hidden layers.
        activation: Nonlinearity behind each.
        out_size: Width of the last layer; without one the last hidden layer is the output.
    """

    def __init__(
        self,
        space: gymnasium.Space[Any],
        hidden_sizes: Sequence[int],
        activation: str,
        out_size: int | None = None,
    ) -> None:
        super().__init__()
        self.read = ObsToVector(space)
        sizes = [self.read.size, *hidden_sizes, *([] if out_size is None else [out_size])]
        self.layers = nn.ModuleList(nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(sizes))
        self.out_size = sizes[-1]
        """Width of the output."""
        self._activation, self._activated = ACTIVATIONS[activation], len(hidden_sizes)
        self._parameters_of_layers()

    def _parameters_of_layers(self) -> None:
        """Lists the very parameters of the layers: a small network spends a fifth of its time on calls of modules."""
        self._steps = [(layer.weight, layer.bias) for layer in self.layers]

    def _apply(self, fn: Any, recurse: bool = True) -> MLP:
        super()._apply(fn, recurse)
        self._parameters_of_layers()  # another device or dtype may have made new ones
        return self

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Maps [B, ...] to float32 [B, out_size]."""
        features = self.read(obs)
        for i, (weight, bias) in enumerate(self._steps):
            features = nn.functional.linear(features, weight, bias)
            if i < self._activated:
                features = self._activation(features)
        return features
