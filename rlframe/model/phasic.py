"""The network of phasic policy gradients: a policy that can also value states, and a critic apart from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from rlframe.data.observation import lacks_part, without_part
from rlframe.data.timestep import EnvSpec
from rlframe.model.actor_critic import initialise, log_std_of, weight_layers, with_log_std
from rlframe.model.core import MLP
from rlframe.model.distributions import distribution_for
from rlframe.model.encoder import Obs
from rlframe.registry import MODEL_REGISTRY


class PhasicPolicy(nn.Module):
    """An actor whose hidden layers also carry an auxiliary value head."""

    def __init__(self, encoder: MLP, spec: EnvSpec, log_std_init: float) -> None:
        super().__init__()
        distribution = distribution_for(spec.action_space)
        self.encoder = encoder
        self.actor = nn.Linear(encoder.out_size, distribution.size)
        self.auxiliary = nn.Linear(encoder.out_size, 1)
        self.log_std = log_std_of(distribution, log_std_init)
        initialise(weight_layers(encoder))
        initialise([self.actor], 0.01)
        initialise([self.auxiliary], 1.0)

    def logit(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to the parameters of the action distribution, float32 [B, S]."""
        return with_log_std(self.actor(self.encoder(obs)), self.log_std)

    def forward(self, obs: Obs) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps observations [B, ...] to ``logit`` and the values of the auxiliary head, float32 [B]."""
        features = self.encoder(obs)
        return with_log_std(self.actor(features), self.log_std), self.auxiliary(features).squeeze(1)


@MODEL_REGISTRY.register('phasic_actor_critic')
class PhasicActorCritic(nn.Module):
    """A policy with an auxiliary value head, and a critic that shares no layer with it.

    ``logit``, ``value`` and the arguments are those of ``ActorCritic``; ``policy`` returns logits and auxiliary values.

    Source:
        Cobbe et al., Phasic Policy Gradient (2021), figure 1.
    """

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (64, 64),
        activation: str = 'tanh',
        log_std_init: float = 0.0,
        conv_layers: Sequence[Sequence[int]] | None = None,
        image_layout: str = 'auto',
        critic_hidden_size_list: Sequence[int] | None = None,
        critic_obs: str | None = None,
    ) -> None:
        super().__init__()
        space = spec.observation_space
        sizes = encoder_hidden_size_list
        widths = sizes if critic_hidden_size_list is None else critic_hidden_size_list
        images = conv_layers, image_layout
        encoder = MLP(without_part(space, critic_obs), sizes, activation, None, *images)
        self.policy = PhasicPolicy(encoder, spec, log_std_init)
        is_blind = lacks_part(space, critic_obs)
        self.critic: Any = None if is_blind else MLP(space, widths, activation, 1, *images)
        if self.critic is not None:
            initialise(weight_layers(self.critic), 1.0)

    def logit(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to the parameters of the action distribution, float32 [B, S]."""
        return self.policy.logit(obs)

    def value(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to values of the critic, float32 [B]."""
        return self.critic(obs).squeeze(1)

    def forward(self, obs: Obs) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps observations [B, ...] to ``logit`` and ``value``."""
        return self.logit(obs), self.value(obs)
