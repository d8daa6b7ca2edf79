"""REPPO's networks: an actor that carries its two multipliers, and a critic that also predicts what follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from rlframe.data.timestep import EnvSpec
from rlframe.model.core import MLP, NormedMLP
from rlframe.model.encoder import Obs, images_of, vector_space
from rlframe.model.qac import action_size, gaussian_of
from rlframe.registry import MODEL_REGISTRY


class BoundActor(nn.Module):
    """A Gaussian actor with the weights of its entropy and of its divergence, which are learned as it is.

    It maps observations [B, ...] to mean and log standard deviation, float32 [B, A] each.
    """

    def __init__(self, net: nn.Module, init_alpha: float, init_kl_weight: float) -> None:
        super().__init__()
        self.net = net
        self.log_alpha = nn.Parameter(torch.tensor(math.log(init_alpha)))
        self.log_kl_weight = nn.Parameter(torch.tensor(math.log(init_kl_weight)))

    def forward(self, obs: Obs) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns mean and log standard deviation."""
        mean, log_std = self.net(obs)
        return mean, log_std


class PredictiveCritic(nn.Module):
    """A categorical critic of actions that predicts its own features of the next step, and the reward, from its features."""

    def __init__(
        self, spec: EnvSpec, hidden_sizes: Sequence[int], activation: str, atoms: int, **images: Any
    ) -> None:
        super().__init__()
        self.encoder = MLP(spec.observation_space, [], activation, None, **images)
        size = hidden_sizes[-1]

        def net(inputs: int, sizes: Sequence[int], outputs: int | None) -> NormedMLP:
            space = vector_space(inputs)
            return NormedMLP(space, sizes, activation, outputs, norm='layer')

        self.features = net(self.encoder.out_size + action_size(spec), hidden_sizes, None)
        self.head = net(size, [size], atoms)
        self.prediction = net(size, [size], size + 1)

    def forward(self, obs: Obs, action: torch.Tensor) -> torch.Tensor:
        """Returns the logits of the returns of actions, float32 [B, atoms]."""
        logit: torch.Tensor = self.head(self.features_of(obs, action))
        return logit

    def features_of(self, obs: Obs, action: torch.Tensor) -> torch.Tensor:
        """Returns features of observations and actions, float32 [B, F]."""
        features: torch.Tensor = self.features(torch.cat([self.encoder(obs), action], 1))
        return features


@MODEL_REGISTRY.register('reppo')
class REPPONet(nn.Module):
    """A ``BoundActor`` and a ``PredictiveCritic`` that share nothing; both have layer norms.

    Source:
        Voelcker et al., Relative Entropy Pathwise Policy Optimization (2025), section 4.
    """

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (128, 128),
        activation: str = 'silu',
        atoms: int = 151,
        init_alpha: float = 0.01,
        init_kl_weight: float = 0.01,
        **options: Any,
    ) -> None:
        super().__init__()
        images = images_of(options)
        sizes = encoder_hidden_size_list
        net = NormedMLP(
            spec.observation_space,
            sizes,
            activation,
            2 * action_size(spec),
            norm='layer',
            head=gaussian_of,
            **images,
        )
        self.actor = BoundActor(net, init_alpha, init_kl_weight)
        self.critic = PredictiveCritic(spec, sizes, activation, atoms, **images)
