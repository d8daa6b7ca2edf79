"""SimbaV2's networks: features and weights of length 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import torch
from torch import nn

from rlframe.data.timestep import EnvSpec
from rlframe.model.core import to_unit_rows
from rlframe.model.encoder import ACTIVATIONS, Obs, images_of, make_reader, vector_space
from rlframe.model.qac import QAC, action_size
from rlframe.registry import MODEL_REGISTRY

SHIFT = 3.0
"""Appended to the input before it gets length 1, so that its length is not lost."""
WIDER = 4
"""Times that the hidden layer of a block is wider than the block."""
LOG_STD_RANGE = (-10.0, 2.0)
"""Least and largest log standard deviation of an actor."""
to_sphere = partial(nn.functional.normalize, dim=1, eps=1e-8)
"""Divides rows by their length."""


class UnitLinear(nn.Linear):
    """A linear layer without bias, of orthogonal weights at first, whose rows have length 1."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)
        nn.init.orthogonal_(self.weight)
        with torch.no_grad():
            to_unit_rows(self.unit_rows)

    @property
    def unit_rows(self) -> list[torch.Tensor]:
        """Weights whose rows have length 1; an optimizer keeps it so."""
        return [self.weight]


class Scaler(nn.Module):
    """Multiplies each feature by a learned number, ``init`` at first, that moves as fast as one of the size ``scale``."""

    def __init__(self, size: int, init: float, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), scale))
        self._factor = init / scale

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Maps [B, size] to the same shape."""
        return features * (self.weight * self._factor)


class SphereBlock(nn.Module):
    """Moves features on the sphere towards the output of two layers, by a learned share for each."""

    def __init__(self, size: int, activation: str, share: float) -> None:
        super().__init__()
        self.widen, self.narrow = UnitLinear(size, WIDER * size), UnitLinear(WIDER * size, size)
        scale = math.sqrt(2 / size) / math.sqrt(WIDER)
        self.scaler = Scaler(WIDER * size, scale, scale)
        self.share = Scaler(size, share, 1 / math.sqrt(size))
        self._activation = ACTIVATIONS[activation]

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Maps [B, size] of length 1 to the same."""
        hidden = self._activation(self.scaler(self.widen(features)))
        output = to_sphere(self.narrow(hidden))
        return to_sphere(features + self.share(output - features))


class SphereHead(nn.Module):
    """Two linear layers from features to numbers, [B, size] to [B, outputs]; the second has a bias."""

    def __init__(self, size: int, outputs: int) -> None:
        super().__init__()
        self.first, self.last = UnitLinear(size, size), UnitLinear(size, outputs)
        self.scaler = Scaler(size, 1.0, 1.0)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Returns the numbers."""
        output: torch.Tensor = self.last(self.scaler(self.first(features))) + self.bias
        return output


class SphereMLP(nn.Module):
    """Residual blocks on the sphere, and heads that read what the last one gives.

    It reads observations of any space, as ``MLP`` does. ``widths`` names the width of each block; all are equal. With
    ``head``, a call returns what that makes of the outputs of ``heads`` heads, float32 [B, outputs] each.

    Source:
        Lee et al., Hyperspherical Normalization for Scalable Deep Reinforcement Learning (2025), section 4.
    """

    def __init__(
        self,
        space: gymnasium.Space[Any],
        widths: Sequence[int],
        activation: str,
        outputs: int,
        heads: int = 1,
        head: Callable[..., Any] | None = None,
        **images: Any,
    ) -> None:
        super().__init__()
        size = widths[0]
        self.read = make_reader(space, activation, **images)
        self.embed = UnitLinear(self.read.size + 1, size)
        scale = math.sqrt(2 / size)
        self.scaler = Scaler(size, scale, scale)
        self.blocks = nn.Sequential(*(SphereBlock(size, activation, 1 / (len(widths) + 1)) for _ in widths))
        self.heads = nn.ModuleList(SphereHead(size, outputs) for _ in range(heads))
        self._head = head

    def forward(self, obs: Obs) -> Any:
        """Maps [B, ...], or a dict of such."""
        features = self.read(obs)
        shift = torch.full_like(features[:, :1], SHIFT)
        features = to_sphere(torch.cat([features, shift], 1))
        features = self.blocks(to_sphere(self.scaler(self.embed(features))))
        outputs = [head(features) for head in self.heads]
        return outputs[0] if self._head is None else self._head(*outputs)


def bounded_gaussian(mean: torch.Tensor, spread: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the mean and the log standard deviation of a Gaussian, [B, A] each, of two outputs; the second is squashed."""
    least, most = LOG_STD_RANGE
    return mean, least + (most - least) * 0.5 * (1 + spread.tanh())


@MODEL_REGISTRY.register('sphere_qac')
class SphereQAC(QAC):
    """A Gaussian actor and categorical critics by ``SphereMLP``; their ``atoms`` are returns whose logits critics give."""

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (128,),
        activation: str = 'relu',
        critic_hidden_size_list: Sequence[int] | None = None,
        atoms: int = 101,
        critic_num: int = 2,
        **options: Any,
    ) -> None:
        super().__init__(spec, encoder_hidden_size_list=[], atoms=atoms, critic_num=critic_num, **options)
        images = images_of(options)
        widths = encoder_hidden_size_list
        actions = action_size(spec)
        self.actor = SphereMLP(
            spec.observation_space, widths, activation, actions, heads=2, head=bounded_gaussian, **images
        )
        read = vector_space(self.critic.encoder.out_size + actions)
        own = widths if critic_hidden_size_list is None else critic_hidden_size_list
        self.critic.nets = nn.ModuleList(SphereMLP(read, own, activation, atoms) for _ in range(critic_num))
