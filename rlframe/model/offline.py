"""Networks of policies that learn from recorded data."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rlframe.data.timestep import EnvSpec
from rlframe.model.core import MLP
from rlframe.model.encoder import Obs
from rlframe.model.qac import IMAGES, QAC, action_size
from rlframe.registry import MODEL_REGISTRY

LOG_STD_BOUNDS = (-5.0, 2.0)
"""Least and largest log standard deviation of an actor."""


def flat_value(output: torch.Tensor) -> torch.Tensor:
    """Returns values, [B, 1], as [B]."""
    return output.squeeze(1)


class NormalActor(nn.Module):
    """A Gaussian whose mean is in [-1, 1], and whose log standard deviation, 0 at first, is a parameter.

    It maps observations [B, ...] to the mean and the log standard deviation, float32 [B, A] each. ``net`` gives the mean.
    """

    def __init__(self, net: nn.Module, actions: int) -> None:
        super().__init__()
        self.net = net
        self.log_std = nn.Parameter(torch.zeros(actions))

    def forward(self, obs: Obs) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns mean and log standard deviation."""
        mean = self.net(obs)
        return mean, self.log_std.clamp(*LOG_STD_BOUNDS).expand_as(mean)


@MODEL_REGISTRY.register('normal_qac')
class NormalQAC(QAC):
    """A ``QAC`` whose actor is a ``NormalActor``."""

    def __init__(self, spec: EnvSpec, **options: Any) -> None:
        super().__init__(spec, **options | {'actor': 'deterministic'})
        self.actor = NormalActor(self.actor, action_size(spec))


@MODEL_REGISTRY.register('iql')
class IQLNet(NormalQAC):
    """A ``NormalQAC`` with ``value``, which maps observations [B, ...] to values of states, float32 [B]."""

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Any = (256, 256),
        activation: str = 'relu',
        **options: Any,
    ) -> None:
        own = {'encoder_hidden_size_list': encoder_hidden_size_list, 'activation': activation}
        super().__init__(spec, **own, **options)
        images = {name: options[name] for name in IMAGES if name in options}
        layers = encoder_hidden_size_list, activation, 1
        self.value = MLP(spec.observation_space, *layers, head=flat_value, **images)
