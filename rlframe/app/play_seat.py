"""A seat for a person in a team: they type the actions of one agent, and the policy acts for the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.app.play_game import Ask, Say, chosen
from rlframe.data.faces import EvalMode
from rlframe.data.team import OWN, PRESENT
from rlframe.data.timestep import Array, Batch, IntArray
from rlframe.envs.team_env import Team
from rlframe.errors import ConfigError
from rlframe.policy.parts.actions import mask_of
from rlframe.registry import nearest


def seated(mode: EvalMode, env: Any, agent: str, say: Say, ask: Ask) -> EvalMode:
    """Returns a policy for one env in which a person acts for one agent.

    Args:
        mode: Acts for all others.
        env: The env, with its wrappers.
        agent: Name or number of the agent.
        say: Shows lines of text.
        ask: Returns the answer of the person to a prompt.

    Raises:
        ConfigError: If the env is no team, has no such agent, or its actions have no numbers.
    """
    seat = _seat_of(env, agent)
    space = env.action_space
    count = int(space.nvec[seat])
    first = int(space.start[seat])
    name = env.unwrapped.agents[seat]

    def forward(obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        found: Batch = mode.forward(obs, env_id, **settings)
        if not obs[PRESENT][0, seat]:
            return found
        masks = mask_of(obs)
        mask = np.ones(count, np.bool_) if masks is None else masks[0].reshape(len(space.nvec), -1)[seat]
        action = found['action'].copy()
        action[0, seat] = chosen(obs[OWN][0, seat], mask, first, say, ask, f'{name} sees ')
        return found.replace(action=action)

    return mode._replace(forward=forward)


def _seat_of(env: Any, agent: str) -> int:
    """Returns the number of an agent."""
    where = '--seat'
    if not isinstance(env.unwrapped, Team):
        raise ConfigError('a person takes the seat of an agent of a team', where=where, got=agent)
    names = env.unwrapped.agents
    if not hasattr(env.action_space, 'nvec'):
        raise ConfigError(
            'a person types actions that have numbers',
            where=where,
            got=repr(env.action_space),
            expected='Discrete ones',
        )
    if agent.isdecimal() and int(agent) < len(names):
        return int(agent)
    if agent not in names:
        raise ConfigError(
            'the team has no such agent',
            where=where,
            got=agent,
            expected=f'{", ".join(names)}, or 0 to {len(names) - 1}',
            remedy=nearest(agent, names).strip(),
        )
    return int(names.index(agent))
