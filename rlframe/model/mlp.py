"""Multi-layer perceptrons that take observations of any supported space."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import gymnasium
import torch
from torch import nn

from rlframe.model.encoder import ACTIVATIONS, Obs, make_reader


class _Live:
    """Weights and biases of layers as they are when they are gone through."""

    def __init__(self, layers: nn.ModuleList) -> None:
        self._layers = layers

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return ((layer.weight, layer.bias) for layer in self._layers)


class MLP(nn.Module):
    """Hidden layers with an activation behind each and, with ``out_size``, a linear layer at the end.

    It reads observations of any space: those with parts field by field, classes one-hot, images by convolutions. An
    action mask among the fields is not read.

    Args:
        space: Space of the input.
        hidden_sizes: Widths of the hidden layers.
        activation: Nonlinearity behind each, and behind each convolution.
        out_size: Width of the last layer; without one the last hidden layer is the output.
        conv_layers: Channels, kernel size and stride of each convolution that reads images; see ``make_reader``.
        image_layout: Position of the channels in the shape of an image: ``'hwc'``, ``'chw'`` or ``'auto'``.

    Raises:
        IncompatibleError: If the convolutions do not fit the space.
    """

    _steps: Iterable[tuple[Any, Any]]

    def __init__(
        self,
        space: gymnasium.Space[Any],
        hidden_sizes: Sequence[int],
        activation: str,
        out_size: int | None = None,
        conv_layers: Sequence[Sequence[int]] | None = None,
        image_layout: str = 'auto',
    ) -> None:
        super().__init__()
        self.read = make_reader(space, activation, conv_layers, image_layout)
        sizes = [self.read.size, *hidden_sizes, *([] if out_size is None else [out_size])]
        self.layers = nn.ModuleList(nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(sizes))
        self.out_size = sizes[-1]
        """Width of the output."""
        self._activation, self._activated = ACTIVATIONS[activation], len(hidden_sizes)
        self._parameters_of_layers()

    def trace_layers(self) -> None:
        """Prepares for being exported: the parameters of the layers are asked for anew in each pass."""
        self._steps = _Live(self.layers)

    def _parameters_of_layers(self) -> None:
        """Lists the very parameters of the layers: a small network spends a fifth of its time on calls of modules."""
        self._steps = [(layer.weight, layer.bias) for layer in self.layers]

    def _apply(self, fn: Any, recurse: bool = True) -> MLP:
        super()._apply(fn, recurse)
        self._parameters_of_layers()  # another device or dtype may have made new ones
        return self

    def forward(self, obs: Obs) -> torch.Tensor:
        """Maps [B, ...], or a dict of such, to float32 [B, out_size]."""
        features = self.read(obs)
        for i, (weight, bias) in enumerate(self._steps):
            features = nn.functional.linear(features, weight, bias)
            if i < self._activated:
                features = self._activation(features)
        return features
