"""Networks of teams: one for each agent, or shared by groups of agents, and mixers of the values of agents."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from rlframe.data.observation import ACTION_MASK, fields_of, mapped
from rlframe.data.team import LAST_ACTION, OWN, PRESENT, STATE, Team, team_of
from rlframe.data.timestep import EnvSpec
from rlframe.errors import ConfigError
from rlframe.model.actor_critic import initialise, log_std_of, weight_layers, with_log_std
from rlframe.model.core import MLP, STATES_OF_CORE, Core, Remembered, Unroll
from rlframe.model.distributions import distribution_for
from rlframe.model.encoder import Obs
from rlframe.model.q_net import QNet
from rlframe.model.qac import HEADS, IMAGES, QCritics
from rlframe.registry import MODEL_REGISTRY

Groups: TypeAlias = Literal['shared', 'separate'] | Sequence[Sequence[int]]
"""Which agents share a network: all, none, or lists of the numbers of agents."""


def now(obs: Any) -> Any:
    """Returns observations themselves or, of steps of sequences, those of the steps."""
    if isinstance(obs, Remembered):
        return mapped(lambda part: part[obs.row], obs.obs)
    return obs


def members_of(groups: Groups, count: int) -> list[list[int]]:
    """Returns the numbers of the agents of each group.

    Raises:
        ConfigError: If lists do not hold the number of each agent once.
    """
    if groups == 'shared':
        return [list(range(count))]
    if groups == 'separate':
        return [[i] for i in range(count)]
    members = [sorted(group) for group in groups]  # type: ignore[type-var]  # the option is checked
    if sorted(i for group in members for i in group) != list(range(count)):
        raise ConfigError(
            f'the env has {count} agents',
            where='policy.groups',
            got=groups,
            expected=f"'shared', 'separate', or lists with each of the numbers 0 to {count - 1} once",
        )
    return members


class AgentNets(nn.Module):
    """Maps what each agent of a team sees to outputs of its own, by a network for each group of agents.

    An agent's network reads what it sees, with ``agent_id`` its number in the group, and with ``last_action`` what it did
    in the step before, if observations say it. With ``core`` each agent has a memory, of recurrent states float32 [B, A P, H].

    Args:
        spec: Spaces of the env.
        sizes: Widths of the hidden layers.
        activation: Nonlinearity behind each.
        head: Makes the last layers of a network, for so many features.
        groups: Which agents share a network.
        agent_id: Whether agents that share a network know who they are.
        last_action: Whether they know what they did.
        core: 'gru' or 'lstm' behind the hidden layers; None: no memory.
        core_hidden_size: Its width.
        images: Options of the encoder of images, see ``MLP``.
    """

    def __init__(  # noqa: PLR0913  # each is an option of the network
        self,
        spec: EnvSpec,
        sizes: Sequence[int],
        activation: str,
        head: Callable[[int], nn.Module],
        groups: Groups = 'shared',
        agent_id: bool = True,
        last_action: bool = False,
        core: str | None = None,
        core_hidden_size: int = 64,
        **images: Any,
    ) -> None:
        super().__init__()
        self.team: Team = team_of(spec)
        self._members = members_of(groups, self.team.size)
        self._reads_last = last_action and self.team.last_action is not None
        self._reads_id = agent_id
        self.nets = nn.ModuleList()
        self.cores = nn.ModuleList()
        self.heads = nn.ModuleList()
        for members in self._members:
            space = self._space_of(len(members))
            net = MLP(space, sizes, activation, None, **images)
            self.nets.append(net)
            if core:
                self.cores.append(Core(core, net.out_size, core_hidden_size))
            self.heads.append(head(core_hidden_size if core else net.out_size))
        self._vectors = STATES_OF_CORE[core] if core else 0
        self.state_shape = (self._vectors * self.team.size, core_hidden_size)
        """Shape of the recurrent state of a team, if there is a core: those of the agents, one after the other."""

    def _space_of(self, members: int) -> Any:
        """Returns the space of what a network reads that so many agents share."""
        parts: dict[str, Any] = {OWN: without_mask(self.team.own)}
        if self._reads_id and members > 1:
            parts['id'] = spaces.Discrete(members)
        if self._reads_last:
            parts[LAST_ACTION] = self.team.last_action
        return spaces.Dict(parts, sort_keys=False)

    def _read(self, obs: Any, members: Sequence[int]) -> dict[str, Any]:
        """Returns what the network of some agents reads, of observations [B, ...], with a row for each agent: [B K, ...]."""
        index = list(members)
        is_all = len(index) == self.team.size

        def rows(part: torch.Tensor) -> torch.Tensor:
            if not self.team.is_told:
                part = part.unsqueeze(1).expand(-1, len(index), *part.shape[1:])
            elif not is_all:
                part = part[:, index]
            return part.reshape(-1, *part.shape[2:])

        own = obs[OWN] if self.team.is_told else obs
        found = {OWN: mapped(rows, own)}
        if self._reads_last:
            found[LAST_ACTION] = mapped(rows, obs[LAST_ACTION])
        if self._reads_id and len(index) > 1:
            first = own
            while isinstance(first, dict):
                first = next(iter(first.values()))
            found['id'] = torch.arange(len(index), device=first.device).repeat(len(first))
        return found

    def _joined(self, each: list[torch.Tensor]) -> torch.Tensor:
        """Joins the outputs of groups, [B, K, ...] each, in the order of agents: [B, A, ...]."""
        if len(each) == 1:
            return each[0]
        order = np.argsort([i for members in self._members for i in members]).tolist()
        return torch.cat(each, 1)[:, order]

    def step(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Does a step with memories: observations [B, ...] and states to outputs [B, A, out] and the states after the step."""
        before = state.unflatten(1, (self.team.size, self._vectors))
        outputs, states = [], []
        for net, core, head, members in zip(self.nets, self.cores, self.heads, self._members, strict=True):
            features = net(self._read(obs, members))
            output, after = core.step(features, before[:, members].flatten(0, 1))
            outputs.append(head(output).unflatten(0, (-1, len(members))))
            states.append(after.unflatten(0, (-1, len(members))))
        return self._joined(outputs), self._joined(states).flatten(1, 2)

    def forward(self, obs: Any, only: int | None = None) -> torch.Tensor:
        """Maps observations [B, ...], or steps of sequences, to the outputs of agents, float32 [B, A, out].

        ``only`` is the agent whose network gradients reach; None: they reach all.
        """
        if isinstance(obs, Remembered):
            return self.unrolled(obs.obs, obs.unroll)[obs.row]
        outputs = []
        for net, head, members in zip(self.nets, self.heads, self._members, strict=True):
            output = head(net(self._read(obs, members)))
            output = output if only is None or only in members else output.detach()
            outputs.append(output.unflatten(0, (-1, len(members))))
        return self._joined(outputs)

    def unrolled(self, obs: Obs, unroll: Unroll) -> torch.Tensor:
        """Goes through all steps of sequences, and returns the outputs of agents, float32 [R, A, out]."""
        before = unroll.state.unflatten(1, (self.team.size, self._vectors))
        outputs = []
        for net, core, head, members in zip(self.nets, self.cores, self.heads, self._members, strict=True):
            count = len(members)
            numbers = torch.arange(count, device=unroll.step.device)
            own = before[:, members].flatten(0, 1)
            sequence = (unroll.sequence[:, None] * count + numbers).flatten()
            places = Unroll(unroll.step.repeat_interleave(count), sequence, unroll.length, own)
            output = core(net(self._read(obs, members)), places, own)
            outputs.append(head(output).unflatten(0, (-1, count)))
        return self._joined(outputs)


def without_mask(space: Any) -> Any:
    """Returns the space of what a network reads of observations: all but the action mask."""
    parts = fields_of(space)
    if ACTION_MASK not in parts:
        return space
    return spaces.Dict({name: part for name, part in parts.items() if name != ACTION_MASK}, sort_keys=False)


class Sum(nn.Module):
    """Adds up the values of agents."""

    def forward(self, value: torch.Tensor, state: Obs) -> torch.Tensor:
        """Maps values float32 [B, A] and states [B, ...] to values of the team, float32 [B]."""
        return value.sum(1)


class MonotonicMixer(nn.Module):
    """Mixes the values of agents by weights that are functions of the state, and never negative.

    Args:
        space: Space of the state.
        count: Agents.
        size: Hidden units of the mixer, and of the layer that gives its last bias.
        activation: Nonlinearity of that layer.

    Source:
        Rashid et al., QMIX (2018), section 4.2 and figure 2.
    """

    def __init__(self, space: Any, count: int, size: int, activation: str = 'relu') -> None:
        super().__init__()
        self._shape = count, size
        space = without_mask(space)
        self.first_weight = MLP(space, [], activation, count * size)
        self.first_bias = MLP(space, [], activation, size)
        self.last_weight = MLP(space, [], activation, size)
        self.last_bias = MLP(space, [size], activation, 1)
        # values begin near 0: where episodes are cut off, discounts alone take large ones out again
        with torch.no_grad():
            for layer in (self.last_weight.layers[-1], self.last_bias.layers[-1]):
                for parameter in layer.parameters():
                    parameter.div_(size)

    def forward(self, value: torch.Tensor, state: Obs) -> torch.Tensor:
        """Maps values float32 [B, A] and states [B, ...] to values of the team, float32 [B]."""
        weight = self.first_weight(state).abs().unflatten(1, self._shape)  # [B, A, size]
        hidden = nn.functional.elu(torch.einsum('ba,bas->bs', value, weight) + self.first_bias(state))
        mixed: torch.Tensor = (hidden * self.last_weight(state).abs()).sum(1) + self.last_bias(state).squeeze(
            1
        )
        return mixed


class FreeMixer(nn.Module):
    """Mixes the values of agents by hidden layers that also read the state, without any restriction.

    Args:
        space: Space of the state.
        count: Agents.
        size: Units of each of two hidden layers are four times this.
        activation: Nonlinearity behind each.

    Source:
        Rashid et al., Weighted QMIX (2020), section 5.
    """

    def __init__(self, space: Any, count: int, size: int, activation: str = 'relu') -> None:
        super().__init__()
        values = spaces.Box(-np.inf, np.inf, (count,), np.float32)
        both = spaces.Dict({'values': values, STATE: without_mask(space)}, sort_keys=False)
        self.net = MLP(both, [4 * size, 4 * size], activation, 1)

    def forward(self, value: torch.Tensor, state: Obs) -> torch.Tensor:
        """Maps values float32 [B, A] and states [B, ...] to values of the team, float32 [B]."""
        mixed: torch.Tensor = self.net({'values': value, STATE: state})
        return mixed.squeeze(1)


@MODEL_REGISTRY.register('team_q_net')
class TeamQNet(nn.Module):
    """Values of the choices of each agent, and of the team.

    It maps observations [B, ...] to the values of all choices, those of one agent behind those of another, float32 [B, S];
    ``mixed`` makes the values of chosen ones, float32 [B, A], that of the team, float32 [B].

    Args:
        spec: Spaces of the env.
        encoder_hidden_size_list: Widths of the hidden layers of agents.
        activation: Nonlinearity behind each.
        mixer: 'sum', or 'monotonic' or 'free', which read the state.
        mixer_size: Hidden units of the mixer.
        has_critic: Whether there is another such network, ``central``, whose mixer is free.
        dueling: Whether the networks of agents are dueling ones, see ``QNet``.
        noisy: Whether their heads are noisy.
        options: Further arguments of ``AgentNets``.
    """

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (64, 64),
        activation: str = 'relu',
        mixer: Literal['sum', 'monotonic', 'free'] = 'sum',
        mixer_size: int = 32,
        has_critic: bool = False,
        dueling: bool = False,
        noisy: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.team = team = team_of(spec)
        most = max(team.outputs)

        def head(size: int) -> nn.Module:
            features = spaces.Box(-np.inf, np.inf, (size,), np.float32)
            return QNet(EnvSpec(features, spaces.Discrete(most)), [], activation, dueling, 1, noisy)

        self.agents = AgentNets(spec, encoder_hidden_size_list, activation, head, **options)
        self.state_shape = self.agents.state_shape
        """Shape of the recurrent state of a team, if there is a core."""
        self.mixer: Any = Sum()
        if mixer != 'sum' and sees_state(spec):
            kind = MonotonicMixer if mixer == 'monotonic' else FreeMixer
            self.mixer = kind(team.state, team.size, mixer_size, activation)
        self.central: Any = None
        if has_critic and sees_state(spec):
            own = {'dueling': dueling, 'noisy': noisy, **options}
            self.central = TeamQNet(spec, encoder_hidden_size_list, activation, 'free', mixer_size, **own)

    def forward(self, obs: Any) -> torch.Tensor:
        return one_behind_the_other(self.agents(obs), self.team)

    def step(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Values choices with the memories of agents, and returns their states after the step, too."""
        value, after = self.agents.step(obs, state)
        return one_behind_the_other(value, self.team), after

    act = step
    now = staticmethod(now)

    def mixed(self, value: torch.Tensor, obs: Any) -> torch.Tensor:
        """Maps the values of what agents chose, float32 [B, A], to the value of the team, float32 [B]."""
        seen = now(obs)
        value = value * present_of(self.team, seen, value)
        mixed: torch.Tensor = self.mixer(value, state_of(self.team, seen))
        return mixed


@MODEL_REGISTRY.register('team_actor_critic')
class TeamActorCritic(nn.Module):
    """Actors of agents, and a critic of the state of a team.

    ``logit`` maps observations [B, ...] to the outputs of all actors, one behind the other, and the logarithms of standard
    deviations of continuous actions, float32 [B, S]; ``value`` maps them to values of the team, float32 [B].

    ``critic_obs`` is the part that the critic reads; None: what all agents see. Without that part there is no critic. ``core``
    is a memory of each actor; the critic has none. Further arguments: see ``AgentNets`` and ``ActorCritic``.
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
        parts = fields_of(spec.observation_space)
        read = parts.get(self._part) if team.is_told else team.state
        widths = encoder_hidden_size_list if critic_hidden_size_list is None else critic_hidden_size_list
        self.critic: Any = None
        if read is not None:
            self.critic = MLP(without_mask(read), widths, activation, 1, **images)
            initialise(weight_layers(self.critic), 1.0)
        for module in (*self.actor.nets, *self.actor.heads):
            initialise(weight_layers(module), 0.01 if module in list(self.actor.heads) else None)
        first = log_std_of(distribution_for(spec.action_space), log_std_init)
        own = () if first is None else first.detach().chunk(team.size)
        self.log_std = nn.ParameterList(part.clone() for part in own)

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

    def logit(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to the parameters of the action distribution, float32 [B, S]."""
        return self._parameters_of(self.actor(obs))

    def value(self, obs: Any) -> torch.Tensor:
        """Maps observations [B, ...] to values of the team, float32 [B]."""
        value: torch.Tensor = self.critic(obs[self._part] if self.team.is_told else obs)
        return value.squeeze(1)

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
        """Maps observations [B, ...], or those of sequences, to ``logit`` and ``value``.

        ``only`` is the agent whose actor gradients reach; None: they reach all.
        """
        output = self.actor(obs, only) if unroll is None else self.actor.unrolled(obs, unroll)
        return self._parameters_of(output, only), self.value(obs)


class TeamActor(nn.Module):
    """Actors of agents with continuous actions: observations [B, ...] to what the head makes of their outputs, [B, A D] each.

    Args:
        agents: The networks of agents.
        outputs: Outputs for each number of an action: those of one kind of all agents stand together.
        head: Makes what is returned, of float32 [B, outputs A D].
    """

    def __init__(self, agents: AgentNets, outputs: int, head: Any) -> None:
        super().__init__()
        self.agents = agents
        self._outputs = outputs
        self._head = head

    def forward(self, obs: Obs) -> Any:
        each = self.agents(obs).chunk(self._outputs, 2)
        return self._head(torch.cat([part.flatten(1) for part in each], 1))


class TeamCritics(QCritics):
    """Q-functions of the state of a team and the actions of all agents.

    Args:
        spec: Spaces of the env.
        part: Part of the observations that they read, if the env is a team.
        layers: Further arguments of ``QCritics``.
        options: Options of ``QCritics``.
    """

    def __init__(self, spec: EnvSpec, part: str, *layers: Any, **options: Any) -> None:
        self._part = part if team_of(spec).is_told else None
        space = spec.observation_space if self._part is None else fields_of(spec.observation_space)[part]
        super().__init__(dataclasses.replace(spec, observation_space=space), *layers, **options)

    def forward(self, obs: Any, *given: Any, **more: Any) -> torch.Tensor:
        """Values actions in states; see ``QCritics``."""
        return super().forward(obs if self._part is None else obs[self._part], *given, **more)


@MODEL_REGISTRY.register('team_qac')
class TeamQAC(nn.Module):
    """Actors of agents with continuous actions, each of what its agent sees, and critics of the state and all actions.

    ``actor`` and ``critic`` are those of ``QAC``, and so are the arguments, ``options`` among them, except ``critic_obs``: the
    part that critics read; None: what all agents see. Without it there are none. ``groups``, ``agent_id`` and ``last_action``:
    see ``AgentNets``.
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
        agent_id: bool = True,
        last_action: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        team = team_of(spec)
        sizes = encoder_hidden_size_list
        head, outputs = HEADS[actor]
        images = {name: options[name] for name in IMAGES if name in options}
        agents = {'groups': groups, 'agent_id': agent_id, 'last_action': last_action}

        def last(size: int) -> nn.Module:
            return nn.Linear(size, outputs * team.outputs[0])

        self.actor = TeamActor(AgentNets(spec, sizes, activation, last, **agents, **images), outputs, head)
        widths = sizes if critic_hidden_size_list is None else critic_hidden_size_list
        part = critic_obs or OWN
        is_seen = not team.is_told or part in fields_of(spec.observation_space)
        layers = widths, activation, critic_num
        self.critic: Any = TeamCritics(spec, part, *layers, **options) if is_seen else None


def one_behind_the_other(output: torch.Tensor, team: Team) -> torch.Tensor:
    """Maps the outputs of agents, [B, A, most], to those that belong to choices, [B, S]; agents with fewer have some to spare."""
    most = output.shape[2]
    if min(team.outputs) == most:
        return output.flatten(1)
    return torch.cat([output[:, i, :count] for i, count in enumerate(team.outputs)], 1)


def sees_state(spec: EnvSpec) -> bool:
    """Whether observations have the state that learning reads; exported policies do without it."""
    return not team_of(spec).is_told or STATE in fields_of(spec.observation_space)


def state_of(team: Team, obs: Any) -> Any:
    """Returns the state that belongs to observations, tensors [B, ...]."""
    return obs.get(STATE, obs[OWN]) if team.is_told else obs


def present_of(team: Team, obs: Any, like: torch.Tensor) -> torch.Tensor:
    """Returns 1 for agents that act and 0 for others, [B, A], of the type of a tensor [B, A]."""
    if not team.is_told or PRESENT not in obs:
        return torch.ones_like(like)
    return obs[PRESENT].to(like.dtype)
