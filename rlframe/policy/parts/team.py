"""What policies of teams have in common: their options, and which networks agents share."""

from __future__ import annotations

from typing import Any

from rlframe.data.team import LEARNING, is_team
from rlframe.data.timestep import EnvSpec
from rlframe.utils.field import Field

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
AGENT_ID = Field(True, doc='whether agents that share a network know which of them they are')
SEES_LAST_ACTION = Field(
    False, doc='whether agents know what they did in the step before, if the env is a team (team:)'
)

OF_TEAM = 'part of the observations of a team that critics read; None: what all agents see'
"""The meaning of the option ``model.critic_obs`` in policies of teams."""


def learning_parts(spec: EnvSpec) -> tuple[str, ...]:
    """Returns the parts of the observations of a team that only learning reads; none if the env is no team."""
    return LEARNING if is_team(spec) else ()
