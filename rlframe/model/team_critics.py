"""Actor-critics of teams: actors of agents, and critics of the state, of all actions, or of what each might have done."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from rlframe.data.observation import fields_of, mapped, mask_parts
from rlframe.data.team import OWN, STATE, Team, team_of
from rlframe.data.timestep import EnvSpec
from rlframe.model.actor_critic import initialise, log_std_of, weight_layers, with_log_std
from rlframe.model.core import MLP, Unroll
from rlframe.model.distributions import distribution_for
from rlframe.model.encoder import Obs, images_of
from rlframe.model.qac import HEADS, QCritics
from rlframe.model.team import (
    NUMBER,
    AgentNets,
    Groups,
    choices_of,
    numbers_of,
    of_present,
    one_behind_the_other,
    present_of,
    rows_of,
    without_mask,
)
from rlframe.registry import MODEL_REGISTRY


@MODEL_REGISTRY.register('team_actor_critic')
class TeamActorCritic(nn.Module):
    """Actors of agents, and a critic of the state of a team.

    ``logit`` maps observations [B, ...] to the outputs of all actors, one behind the other, and the logarithms of standard
    deviations of continuous actions, float32 [B, S]; ``value`` maps them to values of the team, float32 [B].

    ``critic_obs`` is the part that the critic reads; None: what all agents see. Without that part there is no critic. ``core``
    is a memory of each actor; the critic has none. ``value_num`` is 1, or the number of agents, each of which then has a value:
    float32 [B, A]. Further arguments: see ``AgentNets`` and ``ActorCritic``.
    """

    def __init__(  # noqa: PLR0913  # each is an option of the network
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (64, 64),
        activation: str = 'tanh',
        log_std_init: float = 0.0,
        critic_hidden_size_list: Sequence[int] | None = None,
        critic_obs: str | None = STATE,
        groups: Groups = 'shared',
        value_num: int = 1,
        agent_id: bool = True,
        last_action: bool = False,
        core: str | None = None,
        core_hidden_size: int = 64,
        conv_layers: Any = None,
        image_layout: str = 'auto',
    ) -> None:
        super().__init__()
        self.team = team = team_of(spec)
        images = {'conv_layers': conv_layers, 'image_layout': image_layout}
        most = max(team.outputs)

        def head(size: int) -> nn.Module:
            return nn.Linear(size, most)

        agents = {'groups': groups, 'agent_id': agent_id, 'last_action': last_action}
        memory = {'core': core, 'core_hidden_size': core_hidden_size}
        self.actor = AgentNets(spec, encoder_hidden_size_list, activation, head, **agents, **memory, **images)
        self.state_shape = self.actor.state_shape
        """Shape of the recurrent state of a team, if there is a core."""
        self._part = critic_obs or OWN
        self._values = value_num
        parts = fields_of(spec.observation_space)
        read = parts.get(self._part) if team.is_told else team.state
        widths = encoder_hidden_size_list if critic_hidden_size_list is None else critic_hidden_size_list
        self.critic: Any = None
        if read is not None:
            self.critic = self._make_critic(without_mask(read), widths, activation, images)
            initialise(weight_layers(self.critic), 1.0)
        for module in (*self.actor.nets, *self.actor.heads):
            initialise(weight_layers(module), 0.01 if module in list(self.actor.heads) else None)
        first = log_std_of(distribution_for(spec.action_space), log_std_init)
        own = () if first is None else first.detach().chunk(team.size)
        self.log_std = nn.ParameterList(part.clone() for part in own)

    def _make_critic(
        self, space: Any, hidden_sizes: Sequence[int], activation: str, images: dict[str, Any]
    ) -> nn.Module:
        """Returns the critic, which reads the part of the observations that has this space."""
        return MLP(space, hidden_sizes, activation, self._values, **images)

    def _parameters_of(self, output: torch.Tensor, only: int | None = None) -> torch.Tensor:
        """Maps the outputs of actors, [B, A, most], to the parameters of the distribution over joint actions, [B, S]."""
        flat = one_behind_the_other(output, self.team)
        if not len(self.log_std):
            return flat
        own = [part if only in (None, i) else part.detach() for i, part in enumerate(self.log_std)]
        return with_log_std(flat, torch.cat(own))

    def present(self, obs: Obs, like: torch.Tensor) -> torch.Tensor:
        """Returns 1 for agents that act and 0 for others, of the shape and type of a tensor [B, A]."""
        return present_of(self.team, obs, like)

    def logit(self, obs: Obs, unroll: Unroll | None = None, only: int | None = None) -> torch.Tensor:
        """Maps observations [B, ...], or those of sequences, to the parameters of the action distribution, float32 [B, S].

        ``only`` is the agent whose actor gradients reach; None: they reach all.
        """
        output = self.actor(obs, only) if unroll is None else self.actor.unrolled(obs, unroll, only)
        return self._parameters_of(output, only)

    def read_by_critic(self, obs: Any) -> Any:
        """Returns the part of observations that the critic reads, [B, ...]."""
        return obs[self._part] if self.team.is_told else obs

    def value(self, obs: Any) -> torch.Tensor:
        """Maps observations [B, ...] to values of the team, float32 [B], or of its agents."""
        value: torch.Tensor = self.critic(self.read_by_critic(obs))
        return value.squeeze(1) if self._values == 1 else value

    def step(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Acts one step with memories, and returns the states after the step, too."""
        output, after = self.actor.step(obs, state)
        return self._parameters_of(output), after

    act = step

    def value_step(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Values one step; the critic has no memory, and leaves those of actors as they are."""
        return self.value(obs), state

    def forward(
        self, obs: Obs, unroll: Unroll | None = None, only: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps observations [B, ...], or those of sequences, to ``logit`` and ``value``."""
        return self.logit(obs, unroll, only), self.value(obs)


class CounterfactualCritic(nn.Module):
    """Values each choice of every agent, given the state, what the agent sees and what the others do.

    Args:
        team: The agents.
        space: Space of the state.
        layers: Further arguments of ``MLP``: widths of hidden layers and their nonlinearity.
        images: Options of the encoder of images, see ``MLP``.

    Source:
        Foerster et al., Counterfactual Multi-Agent Policy Gradients (2018), figure 1c.
    """

    def __init__(self, team: Team, space: Any, layers: tuple[Any, str], images: dict[str, Any]) -> None:
        super().__init__()
        self._team = team
        most = max(team.outputs)
        parts: dict[str, Any] = {STATE: space, NUMBER: spaces.Discrete(team.size)}
        parts |= {OWN: without_mask(team.own)} if team.is_told else {}
        parts['others'] = spaces.Box(0, 1, (team.size * most,), np.float32)
        self.net = MLP(spaces.Dict(parts, sort_keys=False), *layers, most, **images)
        others = 1 - torch.eye(team.size).repeat_interleave(most, 1)  # [A, A N]
        self.register_buffer('_others', others, persistent=False)

    def forward(self, state: Any, obs: Any, action: torch.Tensor) -> torch.Tensor:
        """Maps states and observations [B, ...] and joint actions [B, A] to values, float32 [B, A, most]."""
        team = self._team
        chosen = choices_of(team, obs, action).flatten(1)
        others: Any = self._others
        read = {
            STATE: mapped(lambda part: part.repeat_interleave(team.size, 0), state),
            'others': (chosen.unsqueeze(1) * others).flatten(0, 1),
        }
        if team.is_told:
            read[OWN] = rows_of(team, obs[OWN], range(team.size))
        read[NUMBER] = numbers_of(team.size, read['others'])
        value: torch.Tensor = self.net(read)
        return value.unflatten(0, (-1, team.size))


@MODEL_REGISTRY.register('counterfactual_actor_critic')
class CounterfactualActorCritic(TeamActorCritic):
    """Actors of agents that choose, and a critic that values what each could have chosen; see ``CounterfactualCritic``.

    ``values`` maps observations [B, ...] and joint actions [B, A] to the values of the choices of all agents, one behind the
    other, float32 [B, S]. Arguments: see ``TeamActorCritic``.
    """

    def _make_critic(
        self, space: Any, hidden_sizes: Sequence[int], activation: str, images: dict[str, Any]
    ) -> nn.Module:
        return CounterfactualCritic(self.team, space, (hidden_sizes, activation), images)

    def values(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        """Maps observations [B, ...] and joint actions [B, A] to the values of all choices, float32 [B, S]."""
        return one_behind_the_other(self.critic(self.read_by_critic(obs), obs, action), self.team)


class TeamActor(nn.Module):
    """Actors of agents: observations [B, ...] to what the head makes of their outputs, those of one agent behind another's.

    Args:
        agents: The networks of agents.
        outputs: Outputs for each number of an action, or for each choice: those of one kind of all agents stand together.
        head: Makes what is returned, of float32 [B, outputs S]; None: it is returned itself.
    """

    def __init__(self, agents: AgentNets, outputs: int, head: Any) -> None:
        super().__init__()
        self.agents = agents
        self._outputs = outputs
        self._head = head

    def forward(self, obs: Obs) -> Any:
        each = self.agents(obs).chunk(self._outputs, 2)
        output = torch.cat([one_behind_the_other(part, self.agents.team) for part in each], 1)
        return output if self._head is None else self._head(output)


class TeamCritics(QCritics):
    """Q-functions of the state of a team and the actions of all agents; choices are one-hot, float32 [B, S].

    The actions of absent agents count as zeros.

    Args:
        spec: Spaces of the env.
        part: Part of the observations that they read, if the env is a team.
        layers: Further arguments of ``QCritics``.
        options: Options of ``QCritics``.
    """

    def __init__(self, spec: EnvSpec, part: str, *layers: Any, **options: Any) -> None:
        team = team_of(spec)
        self._part = part if team.is_told else None
        space = spec.observation_space if self._part is None else fields_of(spec.observation_space)[part]
        choices = mask_parts(spec.action_space)
        action = spaces.Box(0, 1, (sum(choices),), np.float32) if choices else spec.action_space
        own = dataclasses.replace(spec, observation_space=space, action_space=action)
        super().__init__(own, *layers, **options)
        self._team = team

    def forward(self, obs: Any, action: Any = None, *given: Any, **more: Any) -> torch.Tensor:
        """Values actions in states; see ``QCritics``."""
        return super().forward(self._read(obs), of_present(self._team, obs, action), *given, **more)

    def own_values(self, obs: Any, actions: torch.Tensor) -> torch.Tensor:
        """Values a different action by each critic; see ``QCritics``."""
        return super().own_values(self._read(obs), of_present(self._team, obs, actions))

    def _read(self, obs: Any) -> Any:
        return obs if self._part is None else obs[self._part]


@MODEL_REGISTRY.register('team_qac')
class TeamQAC(nn.Module):
    """Actors of agents, each of what its agent sees, and critics of the state and the actions of all.

    ``actor`` and ``critic`` are those of ``QAC``, and so are the arguments, ``options`` among them, except ``critic_obs``: the
    part that critics read; None: what all agents see. Without it there are none. ``value_num`` is 1, or the number of agents,
    each of which then has critics of its own, one after the other. ``groups``, ``agent_id`` and ``last_action``: see ``AgentNets``.
    """

    def __init__(  # noqa: PLR0913  # each is an option of the network
        self,
        spec: EnvSpec,
        actor: str = 'deterministic',
        encoder_hidden_size_list: Sequence[int] = (256, 256),
        activation: str = 'relu',
        critic_num: int = 1,
        critic_hidden_size_list: Sequence[int] | None = None,
        critic_obs: str | None = STATE,
        groups: Groups = 'shared',
        value_num: int = 1,
        agent_id: bool = True,
        last_action: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.team = team = team_of(spec)
        sizes = encoder_hidden_size_list
        head, outputs = HEADS[actor]
        images = images_of(options)
        agents = {'groups': groups, 'agent_id': agent_id, 'last_action': last_action}

        def last(size: int) -> nn.Module:
            return nn.Linear(size, outputs * max(team.outputs))

        self.actor = TeamActor(AgentNets(spec, sizes, activation, last, **agents, **images), outputs, head)
        widths = sizes if critic_hidden_size_list is None else critic_hidden_size_list
        part = critic_obs or OWN
        is_seen = not team.is_told or part in fields_of(spec.observation_space)
        layers = widths, activation, critic_num * value_num
        self.critic: Any = TeamCritics(spec, part, *layers, **options) if is_seen else None

    def present(self, obs: Any, like: torch.Tensor) -> torch.Tensor:
        """Returns 1 for agents that act and 0 for others, of the shape and type of a tensor [B, A]."""
        return present_of(self.team, obs, like)

    def of_present(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        """Returns what belongs to the actions of agents, [B, S], with zeros for absent ones."""
        return of_present(self.team, obs, action)
