"""Networks of agents in a team: one for each, or shared by groups, and what they read of the observations of a team."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from rlframe.data.observation import ACTION_MASK, fields_of, first_part, mapped
from rlframe.data.team import LAST_ACTION, OWN, PRESENT, STATE, Team, team_of
from rlframe.data.timestep import EnvSpec
from rlframe.errors import ConfigError
from rlframe.model.core import MLP, STATES_OF_CORE, Core, Remembered, Unroll, one_hot
from rlframe.model.encoder import Obs

NUMBER = 'id'
"""Part of what a network reads that is the number of an agent."""
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
            parts[NUMBER] = spaces.Discrete(members)
        if self._reads_last:
            parts[LAST_ACTION] = self.team.last_action
        return spaces.Dict(parts, sort_keys=False)

    def _read(self, obs: Any, members: Sequence[int]) -> dict[str, Any]:
        """Returns what the network of some agents reads, of observations [B, ...], with a row for each agent: [B K, ...]."""
        found = {OWN: rows_of(self.team, obs[OWN] if self.team.is_told else obs, members)}
        if self._reads_last:
            found[LAST_ACTION] = rows_of(self.team, obs[LAST_ACTION], members)
        if self._reads_id and len(members) > 1:
            found[NUMBER] = numbers_of(len(members), found[OWN])
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
            return self.unrolled(obs.obs, obs.unroll, only)[obs.row]
        outputs = []
        for net, head, members in zip(self.nets, self.heads, self._members, strict=True):
            output = head(net(self._read(obs, members)))
            output = output if only is None or only in members else output.detach()
            outputs.append(output.unflatten(0, (-1, len(members))))
        return self._joined(outputs)

    def unrolled(self, obs: Obs, unroll: Unroll, only: int | None = None) -> torch.Tensor:
        """Goes through all steps of sequences, and returns the outputs of agents, float32 [R, A, out]; ``only``: see ``forward``."""
        before = unroll.state.unflatten(1, (self.team.size, self._vectors))
        outputs = []
        for net, core, head, members in zip(self.nets, self.cores, self.heads, self._members, strict=True):
            count = len(members)
            numbers = torch.arange(count, device=unroll.step.device)
            own = before[:, members].flatten(0, 1)
            sequence = (unroll.sequence[:, None] * count + numbers).flatten()
            places = Unroll(unroll.step.repeat_interleave(count), sequence, unroll.length, own)
            output = head(core(net(self._read(obs, members)), places, own))
            output = output if only is None or only in members else output.detach()
            outputs.append(output.unflatten(0, (-1, count)))
        return self._joined(outputs)


def rows_of(team: Team, column: Any, members: Sequence[int]) -> Any:
    """Returns a column of some agents with a row for each, [B, A, ...] to [B K, ...]; one that all agents see is repeated."""
    index = list(members)

    def rows(part: torch.Tensor) -> torch.Tensor:
        if not team.is_told:
            part = part.unsqueeze(1).expand(-1, len(index), *part.shape[1:])
        elif len(index) < team.size:
            part = part[:, index]
        return part.reshape(-1, *part.shape[2:])

    return mapped(rows, column)


def numbers_of(count: int, rows: Any) -> torch.Tensor:
    """Returns the number of the agent of each row, int64 [B K], of which each ``count`` belong together."""
    first = first_part(rows)
    return torch.arange(count, device=first.device).repeat(len(first) // count)


def choices_of(team: Team, obs: Any, action: torch.Tensor) -> torch.Tensor:
    """Returns what agents chose, int [B, A], one-hot, float32 [B, A, most]; the choices of absent agents are 0."""
    index = action.long().reshape(len(action), -1)
    chosen = one_hot(index, max(team.outputs))
    return chosen * present_of(team, obs, chosen[:, :, 0]).unsqueeze(2)


def without_mask(space: Any) -> Any:
    """Returns the space of what a network reads of observations: all but the action mask."""
    parts = fields_of(space)
    if ACTION_MASK not in parts:
        return space
    return spaces.Dict({name: part for name, part in parts.items() if name != ACTION_MASK}, sort_keys=False)


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


def of_present(team: Team, obs: Any, action: torch.Tensor) -> torch.Tensor:
    """Returns what belongs to the actions or choices of agents, [..., B, S], with zeros for absent agents."""
    if not team.is_told or PRESENT not in obs:
        return action
    present = obs[PRESENT].to(action.dtype)
    each = [present[:, i : i + 1].expand(-1, count) for i, count in enumerate(team.outputs)]
    return action * torch.cat(each, 1)
