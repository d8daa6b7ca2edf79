"""Actor-critic networks for discrete actions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from rlframe.data.timestep import EnvSpec
from rlframe.model.encoder import Obs
from rlframe.model.mlp import MLP
from rlframe.registry import MODEL_REGISTRY


@MODEL_REGISTRY.register('actor_critic')
class ActorCritic(nn.Module):
    """An actor and a critic that share nothing.

    ``actor`` maps observations [B, ...] to logits float32 [B, A], ``critic`` to values float32 [B, 1].

    Args:
        spec: Spaces of the env.
        encoder_hidden_size_list: Widths of the hidden layers of either.
        activation: Nonlinearity behind each.
        conv_layers: Channels, kernel size and stride of each convolution that reads images.
        image_layout: Where the channels of images are.

    Source:
        Orthogonal weights of gain sqrt(2), 0.01 for logits: Andrychowicz et al., What Matters for On-Policy Deep
        Actor-Critic Methods? (2021), choices C56 and C57.
    """

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (64, 64),
        activation: str = 'tanh',
        conv_layers: Sequence[Sequence[int]] | None = None,
        image_layout: str = 'auto',
    ) -> None:
        super().__init__()
        space, sizes = spec.observation_space, encoder_hidden_size_list
        images = conv_layers, image_layout
        self.actor = MLP(space, sizes, activation, int(spec.action_space.n), *images)
        self.critic = MLP(space, sizes, activation, 1, *images)
        for net, gain in ((self.actor, 0.01), (self.critic, 1.0)):
            for layer in net.modules():
                if isinstance(layer, nn.Linear | nn.Conv2d):
                    nn.init.orthogonal_(layer.weight, gain if layer is net.layers[-1] else 2**0.5)
                    nn.init.zeros_(layer.bias)

    def forward(self, obs: Obs) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps observations [B, ...] to logits [B, A] and values [B]."""
        return self.actor(obs), self.critic(obs).squeeze(1)
