"""Actor-critic networks, and actors alone, for every kind of action."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import nn

from rlframe.data.observation import lacks_part, without_part
from rlframe.data.timestep import EnvSpec
from rlframe.model.core import MLP, STATES_OF_CORE, RecurrentEncoder, Unroll
from rlframe.model.distributions import ActionDistribution, distribution_for
from rlframe.model.encoder import Obs, vector_space
from rlframe.registry import MODEL_REGISTRY

Sharing: TypeAlias = bool | Literal['images']
"""Layers that actor and critic share: all hidden layers, none, or the convolutions."""


@MODEL_REGISTRY.register('actor_critic')
class ActorCritic(nn.Module):
    """An actor and a critic, which share convolutions, all hidden layers or nothing.

    ``logit`` maps observations [B, ...] to the outputs of the actor float32 [B, S], the parameters of the distribution
    over actions; ``value`` maps them to values float32 [B].

    With ``share_encoder`` actor and critic are two linear layers on one encoder; ``'images'``: they have hidden layers of
    their own behind the same convolutions, if there are any. Hidden layers of the critic may have other widths,
    ``critic_hidden_size_list``. ``critic_obs`` is a part of the observations that only the critic reads: then nothing is
    shared, and without that part there is no critic. ``log_std_init`` is the logarithm of the standard deviations of continuous actions in the
    beginning, in units of [-1, 1]. ``conv_layers`` and ``image_layout`` are those of ``MLP``.

    Source:
        Orthogonal weights of gain sqrt(2), 0.01 for logits: Andrychowicz et al., What Matters for On-Policy Deep
        Actor-Critic Methods? (2021), choices C56 and C57.
    """

    def __init__(  # noqa: PLR0913  # each is an option of the network
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (64, 64),
        activation: str = 'tanh',
        share_encoder: Sharing = 'images',
        log_std_init: float = 0.0,
        conv_layers: Sequence[Sequence[int]] | None = None,
        image_layout: str = 'auto',
        critic_hidden_size_list: Sequence[int] | None = None,
        critic_obs: str | None = None,
    ) -> None:
        super().__init__()
        space = spec.observation_space
        sizes = encoder_hidden_size_list
        share_encoder = share_encoder if critic_obs is None else False
        images = conv_layers, image_layout
        distribution = distribution_for(spec.action_space)
        shared, own = ([], sizes) if share_encoder == 'images' else (sizes, [])
        encoder = MLP(space, shared, activation, None, *images) if share_encoder else None
        self.encoder = encoder if encoder is not None and weight_layers(encoder) else None
        if self.encoder is None:
            own = sizes
        else:
            space = vector_space(self.encoder.out_size)
            images = None, 'auto'
        self.actor = MLP(without_part(space, critic_obs), own, activation, distribution.size, *images)
        widths = own if critic_hidden_size_list is None else critic_hidden_size_list
        is_blind = lacks_part(space, critic_obs)
        self.critic: Any = None if is_blind else MLP(space, widths, activation, 1, *images)
        if self.encoder is not None:
            initialise(weight_layers(self.encoder))
        initialise(weight_layers(self.actor), 0.01)
        if self.critic is not None:
            initialise(weight_layers(self.critic), 1.0)
        self.log_std = log_std_of(distribution, log_std_init)

    def logit(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to the parameters of the action distribution, float32 [B, S]."""
        return with_log_std(self.actor(obs if self.encoder is None else self.encoder(obs)), self.log_std)

    def value(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to values, float32 [B]."""
        return self.critic(obs if self.encoder is None else self.encoder(obs)).squeeze(1)

    def forward(self, obs: Obs) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps observations [B, ...] to ``logit`` and ``value``."""
        features = obs if self.encoder is None else self.encoder(obs)
        return with_log_std(self.actor(features), self.log_std), self.critic(features).squeeze(1)


@MODEL_REGISTRY.register('actor')
class Actor(nn.Module):
    """An actor alone: observations [B, ...] to float32 [B, S], of continuous actions to their means [B, D].

    ``conv_layers`` and ``image_layout`` are those of ``MLP``.
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
        size = distribution_for(spec.action_space).size
        sizes = encoder_hidden_size_list
        self.actor = MLP(spec.observation_space, sizes, activation, size, conv_layers, image_layout)

    def forward(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to float32 [B, S]."""
        return self.actor(obs)


@MODEL_REGISTRY.register('stochastic_actor')
class StochasticActor(Actor):
    """An actor alone whose continuous actions have standard deviations of their own.

    Args:
        spec: Spaces of the env.
        log_std_init: Logarithm of the standard deviations of continuous actions in the beginning, in units of [-1, 1].
        options: Further arguments of ``Actor``.
    """

    def __init__(self, spec: EnvSpec, log_std_init: float = 0.0, **options: Any) -> None:
        super().__init__(spec, **options)
        initialise(weight_layers(self.actor), 0.01)
        self.log_std = log_std_of(distribution_for(spec.action_space), log_std_init)

    def logit(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to the parameters of the action distribution, float32 [B, S]."""
        return with_log_std(self.actor(obs), self.log_std)

    def forward(self, obs: Obs) -> torch.Tensor:
        """Maps observations as ``logit`` does."""
        return self.logit(obs)


@MODEL_REGISTRY.register('actor_q_critic')
class ActorQCritic(StochasticActor):
    """An actor of discrete actions, and a critic that values each, observations [B, ...] to float32 [B, A].

    ``options`` are arguments of ``Actor``, for both.
    """

    def __init__(self, spec: EnvSpec, **options: Any) -> None:
        super().__init__(spec, **options)
        self.critic = Actor(spec, **options)
        initialise(weight_layers(self.critic), 1.0)


def log_std_of(distribution: ActionDistribution, first: float) -> nn.Parameter | None:
    """Returns the logarithms of standard deviations that belong to a model, at first all the same; None if there are none."""
    count = distribution.log_std_size
    return nn.Parameter(torch.full((count,), first)) if count else None


def with_log_std(output: torch.Tensor, log_std: torch.Tensor | None) -> torch.Tensor:
    """Returns the parameters of the action distribution, [B, S]: the output of an actor, and these logarithms behind it."""
    return output if log_std is None else torch.cat([output, log_std.expand(output.shape[0], -1)], 1)


def weight_layers(module: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    """Returns the linear layers and convolutions inside a module, itself among them, in order."""
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]


def initialise(layers: Iterable[nn.Linear | nn.Conv2d], last_gain: float | None = None) -> None:
    """Initialises weights orthogonally and biases with 0.

    The gain of the last layer is ``last_gain``; by default sqrt(2), as for the others.
    """
    layers = list(layers)
    for layer in layers:
        is_last = last_gain is not None and layer is layers[-1]
        nn.init.orthogonal_(layer.weight, last_gain if is_last else 2**0.5)
        nn.init.zeros_(layer.bias)


@MODEL_REGISTRY.register('recurrent_actor_critic')
class RecurrentActorCritic(nn.Module):
    """An actor and a critic with a memory each, or with a common one.

    ``act`` and ``step`` act, ``value_step`` values one step: they map observations [B, ...] and recurrent states float32
    [B, P, H] to parameters of the action distribution float32 [B, S], or to values float32 [B], and to the states after the
    step. Calling the network does both for sequences.

    ``core`` is 'gru' or 'lstm'. With ``share_encoder`` actor and critic are two linear layers on one encoder and one core;
    ``'images'`` shares nothing here. The hidden layers in front of the critic's core may have other widths,
    ``critic_hidden_size_list``. ``log_std_init`` and ``critic_obs``: see ``ActorCritic``; ``images``: options of the encoder of images, see
    ``MLP``.
    """

    def __init__(  # noqa: PLR0913  # each is an option of the network
        self,
        spec: EnvSpec,
        core: str = 'lstm',
        core_hidden_size: int = 64,
        encoder_hidden_size_list: Sequence[int] = (64, 64),
        activation: str = 'tanh',
        share_encoder: Sharing = 'images',
        log_std_init: float = 0.0,
        critic_hidden_size_list: Sequence[int] | None = None,
        critic_obs: str | None = None,
        **images: Any,
    ) -> None:
        super().__init__()
        widths = encoder_hidden_size_list if critic_hidden_size_list is None else critic_hidden_size_list
        seen = dataclasses.replace(spec, observation_space=without_part(spec.observation_space, critic_obs))
        each = [(seen, encoder_hidden_size_list)]
        if share_encoder is not True and not lacks_part(spec.observation_space, critic_obs):
            each.append((spec, widths))
        self.memories = nn.ModuleList(
            RecurrentEncoder(read, own, activation, core, core_hidden_size, **images) for read, own in each
        )
        for memory in self.memories:
            initialise(weight_layers(memory))
        distribution = distribution_for(spec.action_space)
        self.actor = nn.Linear(core_hidden_size, distribution.size)
        self.critic = nn.Linear(core_hidden_size, 1)
        initialise([self.actor], 0.01)
        initialise([self.critic], 1.0)
        self.log_std = log_std_of(distribution, log_std_init)
        self._parts = STATES_OF_CORE[core]
        self.state_shape = (self._parts * len(self.memories), core_hidden_size)
        """Shape of the recurrent state of an episode: that of the actor's core, then that of the critic's."""

    def act(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Acts one step; of the recurrent state, only the part of the actor's core is read and changed."""
        parts = list(self._split(state))
        output, parts[0] = self.memories[0].step(obs, parts[0])
        return with_log_std(self.actor(output), self.log_std), torch.cat(parts, 1)

    def step(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Acts one step, like ``act``, and lets all cores see it."""
        steps = [
            memory.step(obs, part) for memory, part in zip(self.memories, self._split(state), strict=True)
        ]
        return with_log_std(self.actor(steps[0][0]), self.log_std), torch.cat(
            [after for _, after in steps], 1
        )

    def value_step(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Values one step; of the recurrent state, only the part of the critic's core is read and changed."""
        parts = list(self._split(state))
        output, parts[-1] = self.memories[-1].step(obs, parts[-1])
        return self.critic(output).squeeze(1), torch.cat(parts, 1)

    def forward(self, obs: Obs, unroll: Unroll) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps the observations of sequences, [R, ...], to action parameters float32 [R, S] and values float32 [R]."""
        parts = self._split(unroll.state)
        outputs = [memory(obs, unroll, part) for memory, part in zip(self.memories, parts, strict=True)]
        return with_log_std(self.actor(outputs[0]), self.log_std), self.critic(outputs[-1]).squeeze(1)

    def _split(self, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the state of each core."""
        return state.split(self._parts, 1)
