"""Networks of policies that learn from recorded data."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from torch import nn

from rlframe.data.timestep import EnvSpec
from rlframe.model.core import MLP
from rlframe.model.encoder import Obs, images_of
from rlframe.model.q_net import QNet
from rlframe.model.qac import QAC, QCritics, action_size, gaussian_of
from rlframe.registry import MODEL_REGISTRY

LOG_STD_BOUNDS = (-5.0, 2.0)
"""Least and largest log standard deviation of an actor."""
LATENT_BOUND = 0.5
"""Latent numbers of actions to choose from lie between minus this and this."""


def flat_value(output: torch.Tensor) -> torch.Tensor:
    """Returns values, [B, 1], as [B]."""
    return output.squeeze(1)


def of_most(value: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Returns the action of the largest value in each row, of [B, K] and [B, K, A] float32 [B, A]."""
    index = value.argmax(1)[:, None, None].expand(-1, 1, actions.shape[2])
    return actions.gather(1, index).squeeze(1)


def of_several(net: Any, features: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
    """Returns what a network makes of features, [B, F], with each of several rows behind them, [B, K, R]: float32 [B, K, A]."""
    several = features[:, None].expand(-1, read.shape[1], -1)
    output: torch.Tensor = net(torch.cat([several, read], 2).flatten(0, 1))
    return output.unflatten(0, (-1, read.shape[1]))


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
        images = images_of(options)
        layers = encoder_hidden_size_list, activation, 1
        self.value = MLP(spec.observation_space, *layers, head=flat_value, **images)


class ActionVAE(nn.Module):
    """A variational autoencoder of actions given features of observations, with twice as many latent numbers as an action has."""

    def __init__(self, encoder: MLP, actions: int, hidden_sizes: Any, activation: str) -> None:
        super().__init__()
        self.encoder = encoder
        self.latent = 2 * actions
        features = encoder.out_size
        inputs = gymnasium.spaces.Box(-torch.inf, torch.inf, (features + actions,))
        latents = gymnasium.spaces.Box(-torch.inf, torch.inf, (features + self.latent,))
        self.encode = MLP(inputs, hidden_sizes, activation, 2 * self.latent, head=gaussian_of)
        self.decode = MLP(latents, hidden_sizes, activation, actions, head=torch.tanh)

    def forward(
        self, features: torch.Tensor, action: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the distance of decoded actions to actions, and the divergence of latent from normal numbers, means of all."""
        mean, log_std = self.encode(torch.cat([features, action], 1))
        latent = torch.addcmul(mean, log_std.exp(), noise)
        decoded = self.decode(torch.cat([features, latent], 1))
        divergence = -0.5 * (1 + 2 * log_std - mean.square() - (2 * log_std).exp()).mean()
        return nn.functional.mse_loss(decoded, action), divergence


@MODEL_REGISTRY.register('bcq')
class BCQNet(QAC):
    """A ``QAC`` whose actor perturbs the actions of a ``vae``; it takes the best of those of fixed latent numbers.

    ``phi`` is the largest perturbation, ``choices`` the number of actions to choose from. Source: Fujimoto et al. (2019).
    """

    latents: torch.Tensor

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Any = (256, 256),
        activation: str = 'relu',
        phi: float = 0.05,
        choices: int = 100,
        **options: Any,
    ) -> None:
        sizes = encoder_hidden_size_list
        own = {'actor': 'deterministic', 'encoder_hidden_size_list': sizes, 'activation': activation}
        super().__init__(spec, **options | own)
        images = images_of(options)
        actions = action_size(spec)
        encoder = MLP(spec.observation_space, [], activation, None, **images)
        self.vae = ActionVAE(encoder, actions, sizes, activation)
        read = gymnasium.spaces.Box(-torch.inf, torch.inf, (encoder.out_size + actions,))
        self.actor = MLP(read, sizes, activation, actions, head=torch.tanh)
        self.phi = phi
        latents = torch.randn(choices, self.vae.latent).clamp(-LATENT_BOUND, LATENT_BOUND)
        self.register_buffer('latents', latents)

    def features_of(self, obs: Obs) -> torch.Tensor:
        """Returns what the autoencoder and the actor read of observations, float32 [B, features]."""
        features: torch.Tensor = self.vae.encoder(obs)
        return features

    def decoded(self, features: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
        """Returns the actions of latent numbers [B, K, L] of each observation, float32 [B, K, A]."""
        return of_several(self.vae.decode, features, latents)

    def made(self, actor: Any, obs: Obs, latents: torch.Tensor) -> torch.Tensor:
        """Returns actions of latent numbers [B, K, L], float32 [B, K, A], changed by the actor or its target network."""
        with torch.no_grad():
            features = self.features_of(obs)
            action = self.decoded(features, latents.clamp(-LATENT_BOUND, LATENT_BOUND))
        return (action + self.phi * of_several(actor, features, action)).clamp(-1, 1)

    def forward(self, obs: Obs) -> torch.Tensor:
        """Returns the best of some actions that the data could hold, float32 [B, A]."""
        count = self.features_of(obs).shape[0]
        action = self.made(self.actor, obs, self.latents.expand(count, -1, -1))
        return of_most(self.critic.values_of_several(obs, action)[0], action)


@MODEL_REGISTRY.register('imitating_q_net')
class ImitatingQNet(QNet):
    """A ``QNet`` with ``imitator``, which maps observations [B, ...] to logits of recorded actions, float32 [B, A]."""

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Any = (128, 128, 64),
        activation: str = 'relu',
        **options: Any,
    ) -> None:
        super().__init__(spec, encoder_hidden_size_list, activation, **options)
        images = images_of(options)
        layers = encoder_hidden_size_list, activation, action_size(spec)
        self.imitator = MLP(spec.observation_space, *layers, **images)


@MODEL_REGISTRY.register('energy')
class EnergyNet(nn.Module):
    """Energies of actions, and the search for the least one by numbers that are drawn once.

    Source:
        Florence et al., Implicit Behavioral Cloning (2021), algorithm 1.
    """

    start: torch.Tensor
    pick: torch.Tensor
    noise: torch.Tensor

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Any = (256, 256),
        activation: str = 'relu',
        samples: int = 256,
        rounds: int = 3,
        spread: float = 0.33,
        **images: Any,
    ) -> None:
        super().__init__()
        actions = action_size(spec)
        self.critic = QCritics(spec, encoder_hidden_size_list, activation, 1, **images)
        scale = spread * 0.5 ** torch.arange(rounds - 1).view(-1, 1, 1)
        self.register_buffer('start', torch.rand(samples, actions) * 2 - 1)
        self.register_buffer('pick', torch.rand(rounds - 1, samples).sort(1).values)
        self.register_buffer('noise', torch.randn(rounds - 1, samples, actions) * scale)

    def energy(self, obs: Obs, actions: torch.Tensor) -> torch.Tensor:
        """Returns the energies of several actions in each state, [B, K, A] to float32 [B, K]."""
        value: torch.Tensor = self.critic.values_of_several(obs, actions)[0]
        return value

    def forward(self, obs: Obs) -> torch.Tensor:
        """Returns the action of the least energy that is found, float32 [B, A]."""
        count = self.critic.encoder(obs).shape[0]
        actions = self.start.expand(count, -1, -1)
        energy = self.energy(obs, actions)
        for pick, noise in zip(self.pick, self.noise, strict=True):
            share = (-energy).softmax(1).cumsum(1)[:, None, :-1]
            chosen = (share < pick[:, None]).sum(2)  # as often as their energies are low
            index = chosen[:, :, None].expand_as(actions)
            actions = (actions.gather(1, index) + noise).clamp(-1, 1)
            energy = self.energy(obs, actions)
        return of_most(-energy, actions)
