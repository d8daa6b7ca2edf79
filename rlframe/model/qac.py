"""Actors and Q-critics of policies that learn both, and the distributions that actors act by."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from rlframe.data.composite import unit_size
from rlframe.data.observation import lacks_part, without_part
from rlframe.data.timestep import EnvSpec
from rlframe.model.core import MLP, STATES_OF_CORE, NormedMLP, RecurrentEncoder, Remembered, ResidualMLP
from rlframe.model.distributions import LOG_STD_RANGE
from rlframe.model.encoder import Obs, images_of, vector_space
from rlframe.registry import MODEL_REGISTRY

AT_ONCE = 2048
"""Rows of the passes over many actions on a CPU: larger ones get new memory from the system each time."""
INSIDE = 1 - 1e-6
"""Largest action whose density is asked for: that of 1 has no bound."""


def gaussian_of(output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the mean and the log standard deviation of a Gaussian, [B, A] each, of an actor's output, [B, 2 A]."""
    mean, log_std = output.chunk(2, 1)
    return mean, log_std.clamp(*LOG_STD_RANGE)


HEADS: dict[str, tuple[Any, int]] = {
    'categorical': (None, 1),
    'deterministic': (torch.tanh, 1),
    'gaussian': (gaussian_of, 2),
}
"""Kind of actor to its head, and to its outputs for each number of a continuous action, or for each discrete one."""


def action_size(spec: EnvSpec) -> int:
    """Returns the number of discrete actions, or the numbers of a continuous one; see ``unit_size``."""
    space: Any = spec.action_space
    return int(space.n) if hasattr(space, 'n') else unit_size(space)


def squashed_gaussian(
    mean: torch.Tensor, log_std: torch.Tensor, noise: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws actions that are the hyperbolic tangent of a Gaussian, so that gradients go through the draw.

    Mean and log standard deviation of the Gaussian, and ``noise``, standard normal numbers, are [B, A].

    Returns:
        Actions in [-1, 1], [B, A], and their log density, [B].

    Source:
        Haarnoja et al., Soft Actor-Critic Algorithms and Applications (2018), eq. 26; 1 - tanh(u)^2 as
        4 exp(-2u) / (1 + exp(-2u))^2, which does not underflow.
    """
    action, log_prob = squashed_numbers(mean, log_std, noise)
    return action, log_prob.sum(1)


def squashed_numbers(
    mean: torch.Tensor, log_std: torch.Tensor, noise: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws actions like ``squashed_gaussian``, and returns them with the log density of each number, [B, A] both."""
    unsquashed = torch.addcmul(mean, log_std.exp(), noise)
    log_slope = 2 * (math.log(2) - unsquashed - nn.functional.softplus(-2 * unsquashed))
    log_prob = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - log_slope
    return unsquashed.tanh(), log_prob


def noise_behind(mean: torch.Tensor, log_std: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Returns the standard normal numbers by which ``squashed_gaussian`` draws actions in [-1, 1], [B, A] each."""
    return (action.clamp(-INSIDE, INSIDE).atanh() - mean) * (-log_std).exp()


def hidden_layers(
    options: Mapping[str, Any], hidden_sizes: Sequence[int], is_actor: bool = False
) -> tuple[Any, dict[str, Any]]:
    """Returns the class of the hidden layers that the switches of critics ask for, and its arguments.

    ``options`` are arguments of ``QCritics``. Those of an actor have norms by batches only, and no dropout.
    """
    if blocks := options.get('residual_blocks'):
        return ResidualMLP, {'blocks': blocks}
    if is_actor:
        options = {'norm': None} if options.get('norm') != 'batch' else {**options, 'dropout': 0.0}
    found = {name: options[name] for name in ('norm', 'dropout') if options.get(name)}
    if options.get('weight_norm'):
        found['unit_layers'] = len(hidden_sizes) + ('atoms' in options)  # with atoms, outputs too
    return (NormedMLP if found else MLP), found


class QCritics(nn.Module):
    """Several Q-functions that share nothing except the observation encoder.

    Args:
        spec: Spaces of the env. With discrete actions a critic values every action, with continuous ones the action it
            is given.
        hidden_sizes: Widths of the hidden layers of each.
        activation: Nonlinearity behind each.
        count: Critics.
        options: ``quantiles``, numbers that describe the return of a continuous action (1, its mean, by default), or ``atoms``,
            returns that a categorical critic gives the logits of; ``norm`` and ``dropout`` of the hidden layers, see
            ``NormedMLP``; ``weight_norm``, whether the weights of each hidden unit, and of each atom, have norm 1;
            ``residual_blocks``, see ``ResidualMLP``; and options of the encoder of images, see ``MLP``.
    """

    def __init__(
        self, spec: EnvSpec, hidden_sizes: Sequence[int], activation: str, count: int, **options: Any
    ) -> None:
        super().__init__()
        self._takes_action = not hasattr(spec.action_space, 'n')
        actions = action_size(spec)
        self._outputs = options.get('atoms') or options.get('quantiles', 1)
        in_size, out_size = (actions, self._outputs) if self._takes_action else (0, actions)
        images = images_of(options)
        self.encoder = MLP(spec.observation_space, [], activation, None, **images)
        features = vector_space(self.encoder.out_size + in_size)
        kind, own = hidden_layers(options, hidden_sizes)
        self._takes_mode = own.get('norm') == 'batch' or 'dropout' in own
        self._is_plain = kind is MLP
        self.nets = nn.ModuleList(
            kind(features, hidden_sizes, activation, out_size, **own) for _ in range(count)
        )

    def forward(
        self,
        obs: Obs,
        action: torch.Tensor | None = None,
        count: int | None = None,
        is_training: bool = False,
    ) -> torch.Tensor:
        """Values actions.

        Of the observations, [B, ...], and continuous actions in [-1, 1], float32 [B, A], it asks the first ``count``
        critics, or all; ``is_training``: whether to normalise by the batch and to drop units.

        Returns:
            float32 [count, B], of quantile critics [count, B, quantiles], of categorical ones [count, B, atoms], or with
            discrete actions [count, B, A].
        """
        features = self.encoder(obs)
        if action is not None:
            features = torch.cat([features, action], 1)
        mode = (is_training,) if self._takes_mode else ()
        value = torch.stack([net(features, *mode) for net in list(self.nets)[:count]])
        return value.squeeze(2) if self._takes_action and self._outputs == 1 else value

    def values_of_several(self, obs: Obs, actions: torch.Tensor) -> torch.Tensor:
        """Values several actions in each state, float32 [B, K, A] to [critics, B, K]."""
        count, several, _ = actions.shape
        features = self.encoder(obs)[:, None].expand(-1, several, -1)
        read = torch.cat([features, actions], 2).flatten(0, 1)
        return torch.stack([net(read) for net in self.nets]).view(-1, count, several)

    def values_of_many(self, obs: Obs, actions: torch.Tensor) -> torch.Tensor:
        """Values many actions in each state, as ``values_of_several`` does except for rounding, in less time."""
        if not self._is_plain:
            return self.values_of_several(obs, actions)
        features = self.encoder(obs)
        states = max(AT_ONCE // actions.shape[1], 1) if features.device.type == 'cpu' else len(features)
        parts = list(zip(features.split(states), actions.split(states), strict=True))
        value = [torch.cat([net.beside(*part) for part in parts]) for net in self.nets]  # type: ignore[operator]  # all are MLPs
        return torch.stack(value).view(-1, *actions.shape[:2])

    def own_values(self, obs: Obs, actions: torch.Tensor) -> torch.Tensor:
        """Values a different action by each critic, float32 [critics, B, A] to [critics, B]."""
        features = self.encoder(obs)
        each = zip(self.nets, actions, strict=True)
        return torch.stack([net(torch.cat([features, own], 1)) for net, own in each]).squeeze(2)


@MODEL_REGISTRY.register('qac')
class QAC(nn.Module):
    """An actor and Q-critics that share nothing.

    ``actor`` maps observations to the output that its kind defines, ``critic`` maps observations and actions to values.

    ``actor`` is 'deterministic' (an action), 'gaussian' (mean and log standard deviation) or 'categorical' (logits).
    ``options`` are further arguments of ``QCritics``. An actor has those of the encoder of images, too, and one of
    continuous actions norms by batches and residual blocks. Hidden layers of critics may have other widths,
    ``critic_hidden_size_list``. ``critic_obs`` is a part of the observations that only critics read; without it there are none.
    """

    def __init__(
        self,
        spec: EnvSpec,
        actor: str = 'gaussian',
        encoder_hidden_size_list: Sequence[int] = (256, 256),
        activation: str = 'relu',
        critic_num: int = 2,
        critic_hidden_size_list: Sequence[int] | None = None,
        critic_obs: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        space = without_part(spec.observation_space, critic_obs)
        sizes = encoder_hidden_size_list
        actions = action_size(spec)
        images = images_of(options)
        kind, own = hidden_layers(options, sizes, is_actor=True)
        head, outputs = HEADS[actor]
        self.actor = kind(space, sizes, activation, outputs * actions, head=head, **own, **images)
        widths = sizes if critic_hidden_size_list is None else critic_hidden_size_list
        is_blind = lacks_part(spec.observation_space, critic_obs)
        self.critic: Any = None if is_blind else QCritics(spec, widths, activation, critic_num, **options)


class RecurrentNet(nn.Module):
    """A network with a memory: hidden layers, a core, and a head on top.

    The head reads an action behind the core's output if there is one. ``place`` cores are in front of its own in a
    recurrent state.
    """

    def __init__(self, memory: RecurrentEncoder, head: nn.Module, place: int) -> None:
        super().__init__()
        self.memory, self.head = memory, head
        vectors = memory.core.state_shape[0]
        self._own = slice(place * vectors, (place + 1) * vectors)

    def step(self, obs: Obs, state: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Maps observations [B, ...] and states of its core to the output of the head, and the states after the step."""
        output, after = self.memory.step(obs, state)
        return self.head(output), after

    def forward(self, seen: Remembered, action: torch.Tensor | None = None) -> Any:
        """Returns the output of the head for some steps of sequences and actions in them, float32 [K, A]."""
        features = self.memory(seen.obs, seen.unroll, seen.unroll.state[:, self._own])[seen.row]
        return self.head(features if action is None else torch.cat([features, action], 1))


class RecurrentCritics(nn.Module):
    """Several Q-functions with a memory, which share nothing."""

    def __init__(self, nets: Sequence[RecurrentNet]) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nets)

    def forward(
        self, seen: Remembered, action: torch.Tensor | None = None, count: int | None = None
    ) -> torch.Tensor:
        """Values actions in some steps of sequences; see ``QCritics``."""
        value = torch.stack([net(seen, action) for net in list(self.nets)[:count]])
        return value if action is None or value.shape[2] > 1 else value.squeeze(2)

    def own_values(self, seen: Remembered, actions: torch.Tensor) -> torch.Tensor:
        """Values a different action by each critic; see ``QCritics``."""
        each = zip(self.nets, actions, strict=True)
        return torch.stack([net(seen, own) for net, own in each]).squeeze(2)


@MODEL_REGISTRY.register('recurrent_qac')
class RecurrentQAC(nn.Module):
    """An actor and Q-critics, each with a memory of the observations; a continuous action joins behind the core.

    ``actor`` and ``critic`` are those of ``QAC``, with ``Remembered`` in place of observations. ``act`` and ``step`` map
    observations [B, ...] and recurrent states float32 [B, P, H] to what the actor returns, and to the states after the step.

    ``core`` is 'gru' or 'lstm', and has as many units as the hidden layer of a critic that reads its output and an action.
    ``actor``, ``critic_hidden_size_list`` and ``critic_obs``: see ``QAC``. ``quantiles`` numbers describe the return of a continuous
    action: 1 is its mean; ``images``: options of the encoder of images, see ``MLP``.
    """

    def __init__(  # noqa: PLR0913  # each is an option of the network
        self,
        spec: EnvSpec,
        core: str = 'lstm',
        core_hidden_size: int = 64,
        actor: str = 'categorical',
        encoder_hidden_size_list: Sequence[int] = (256, 256),
        activation: str = 'relu',
        critic_num: int = 2,
        critic_hidden_size_list: Sequence[int] | None = None,
        quantiles: int = 1,
        critic_obs: str | None = None,
        **images: Any,
    ) -> None:
        super().__init__()
        seen = dataclasses.replace(spec, observation_space=without_part(spec.observation_space, critic_obs))
        critic_num = 0 if lacks_part(spec.observation_space, critic_obs) else critic_num
        actions = action_size(spec)
        head, outputs = HEADS[actor]
        read, values = (0, actions) if actor == 'categorical' else (actions, quantiles)
        sizes, widths = encoder_hidden_size_list, critic_hidden_size_list

        def net(place: int, read: int, outputs: int, head: Any = None) -> RecurrentNet:
            own = sizes if widths is None or place == 0 else widths
            memory = own, activation, core, core_hidden_size
            space = vector_space(core_hidden_size + read)
            hidden_sizes = [core_hidden_size] if read else []
            reader = MLP(space, hidden_sizes, activation, outputs, head=head)
            return RecurrentNet(RecurrentEncoder(spec if place else seen, *memory, **images), reader, place)

        self.actor = net(0, 0, outputs * actions, head)
        self.critic = RecurrentCritics([net(1 + i, read, values) for i in range(critic_num)])
        self.state_shape = (STATES_OF_CORE[core] * (1 + critic_num), core_hidden_size)
        """Shape of the recurrent state of an episode: that of the actor, then those of the critics."""

    def act(self, obs: Obs, state: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Acts one step; of the recurrent state, only the actor's part is read and changed."""
        own, *others = self._split(state)
        output, after = self.actor.step(obs, own)
        return output, torch.cat([after, *others], 1)

    def step(self, obs: Obs, state: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Acts one step, like ``act``, and lets the critics see it."""
        own, *others = self._split(state)
        output, after = self.actor.step(obs, own)
        critics: Any = self.critic.nets
        seen = [net.memory.step(obs, part)[1] for net, part in zip(critics, others, strict=True)]
        return output, torch.cat([after, *seen], 1)

    def _split(self, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the state of each core."""
        return state.chunk(1 + len(self.critic.nets), 1)
