"""What policies of teams have in common: their options, and which networks agents share."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.observation import fields_of
from rlframe.data.team import PRESENT, REWARDS, STATE, team_of
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec, FloatArray
from rlframe.errors import ConfigError, IncompatibleError
from rlframe.policy.parts.memory import CRITIC_OBS, MemoryModel
from rlframe.policy.parts.options import ModelConfig
from rlframe.policy.parts.sequences import Rows
from rlframe.utils.field import Field, option
from rlframe.utils.lazy import torch

NAMES = ('shared', 'separate')
"""Which agents share a network, if a word says it."""


def check_groups(value: Any) -> str:
    """Says which groups are valid if ``value`` is not; else returns an empty string."""
    if isinstance(value, str):
        is_good = value in NAMES
    else:
        is_good = all(isinstance(group, list | tuple) and group for group in value) and all(
            isinstance(i, int) and not isinstance(i, bool) and i >= 0 for group in value for i in group
        )
    return '' if is_good else "'shared', 'separate', or lists of numbers of agents, such as [[0, 1], [2]]"


GROUPS = Field(
    'shared',
    type=(str, list),
    doc="which agents share a network: 'shared' all, 'separate' none, or lists of their numbers, such as [[0, 1], [2]]",
    check=check_groups,
)
RELAXATION = Field(
    1.0,
    range='(0, inf)',
    doc='temperature of the Gumbel softmax through which critics teach actors that choose',
)


class AgentModel(ModelConfig):
    """Section ``model`` of policies of teams, whose agents have networks of one kind."""

    agent_id: bool = option(True, doc='whether agents that share a network know which of them they are')
    last_action: bool = option(
        False, doc='whether agents know what they did in the step before, if the env is a team (team:)'
    )


class TeamModel(AgentModel, MemoryModel):
    """The same with critics of the state of the env."""

    critic_obs: str | None = option(
        CRITIC_OBS.having(
            STATE, doc='part of the observations of a team that critics read; None: what all agents see'
        )
    )


def _of_no_team(_: type[Any], cfg: Any) -> ConfigError | None:
    """Refuses rewards of agents beside what is computed from one reward of each step."""
    others = {
        'normalize_reward': cfg.normalize_reward,
        'nstep': cfg.get('nstep', 1) > 1,
        'collect.record': cfg.collect.record is not None,
    }
    name = next((name for name, is_set in others.items() if is_set), None)
    if not cfg.agent_rewards or name is None:
        return None
    return ConfigError(f'{name} reads one reward of each step, that of the team', expected='False')


AGENT_REWARDS = Field(
    False,
    doc='whether each agent learns from its own reward (part rewards of the observations of a team:) instead of the reward of the team',
    rule=_of_no_team,
)


def rewards_of(obs: Array) -> FloatArray:
    """Returns the reward of each agent in the step before observations, float32 [n, A]."""
    return np.asarray(obs[REWARDS], np.float32)


class AgentCritics:
    """The critics of a team or, with rewards of their own, those of each agent, one behind another.

    There is one value of the team, or one of each agent, V, and each has C critics. Actions and their parts are [..., S].

    Args:
        model: The network of the team.
        cfg: Options of the policy.
        spec: Spaces of the env.
        device: Where tensors are.
    """

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec, device: torch.device) -> None:
        self._model: Any = model
        self._is_own: bool = cfg.agent_rewards
        team = team_of(spec)
        self._values = team.size if self._is_own else 1
        outputs = torch.tensor(team.outputs, device=device)
        own = torch.eye(team.size, dtype=torch.bool, device=device).repeat_interleave(outputs, 1)
        # of each value, the part of the joint action that is to raise it, [V, 1, S]
        self._parts = (own if self._is_own else own.any(0, keepdim=True)).unsqueeze(1)

    def sums(self, column: torch.Tensor) -> torch.Tensor:
        """Sums numbers of the parts of joint actions, [B, S], over the agents whose value it is: [V, B]."""
        return (column * self._parts).sum(2)

    def first(self, value: torch.Tensor) -> torch.Tensor:
        """Returns what the first critic of each value says, [V C, B] to [V, B]."""
        return value[:: len(value) // self._values]

    def smallest(self, value: torch.Tensor) -> torch.Tensor:
        """Returns the smallest of the critics of each value, [V C, B] to [V, B]."""
        return value.unflatten(0, (self._values, -1)).amin(1)

    def target(
        self, rows: Rows, next_value: torch.Tensor, discount: torch.Tensor, cost: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Returns the targets of critics, [V C, B], whose values of the next state, [V C, B], are given.

        ``discount`` is the weight of the next state, [B]; ``cost``, [V, B], is subtracted from its values.
        """
        reward = rows['reward'].reshape(-1, self._values).T  # [V, B]
        least = self.smallest(next_value)
        least = least if cost is None else least - cost
        target = reward + discount * least * self._counted(rows['next_obs'], reward)
        return target.repeat_interleave(len(next_value) // self._values, 0)

    def of_present(self, obs: Any, target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Returns the targets of critics; what they value for absent agents, [V C, B], is right as it is."""
        count = len(value) // self._values
        counted = self._counted(obs, self.first(value)).bool().repeat_interleave(count, 0)
        return torch.where(counted, target, value.detach())

    def _counted(self, obs: Any, like: torch.Tensor) -> torch.Tensor:
        """Returns 1 for values that there are, and 0 for those of absent agents, of the shape and type of a tensor [V, B]."""
        if not self._is_own:
            return torch.ones_like(like)
        present: torch.Tensor = self._model.present(obs, like.T)
        return present.T

    def followed(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        """Values joint actions, [B, S] to [V C, B]; the gradient of a value reaches the agents that are to raise it."""
        each = torch.where(self._parts, action, action.detach())  # [V, B, S]
        critics: Any = self._model.critic
        own = each.repeat_interleave(len(critics.nets) // self._values, 0)
        value: torch.Tensor = critics.own_values(obs, own)
        return value


def ends_of_agents(block: Batch, apart: BoolArray) -> tuple[BoolArray, BoolArray]:
    """Returns where nothing follows for an agent, as it or the episode has ended, and where the row below is none of its episode.

    ``apart``: see ``apart_rows``, bool [T, N]. Both are bool [T, N, A].
    """
    leaves = block['obs'][PRESENT].astype(bool) & ~block['next_obs'][PRESENT].astype(bool)
    return block['terminated'][:, :, None] | leaves, apart[:, :, None] | leaves


def check_rewards(spec: EnvSpec, cfg: Any) -> None:
    """Checks that an env tells the reward of each agent, if agents are to learn from it.

    Raises:
        IncompatibleError: If it does not.
    """
    if not cfg.get('agent_rewards') or REWARDS in fields_of(spec.observation_space):
        return
    raise IncompatibleError(
        f'{spec.name} pays one reward for each step, and does not say which agent earned it',
        where='policy.agent_rewards',
        got=True,
        expected='False, or an env team:GAME whose agents act at once',
    )


def network_arguments(policy: Any) -> dict[str, Any]:
    """Returns the arguments of the network of a team that options beside those of the network decide."""
    arguments = {'groups': policy._cfg['groups']}
    if policy.has_own_rewards:
        arguments['value_num'] = team_of(policy.spec).size
    return arguments
