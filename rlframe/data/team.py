"""Teams: the parts of an observation of several agents that act at once, and the agents of a space of actions.

A step of a team is one row. Its observation is a ``Dict`` with the parts below; its action has a number, or numbers, for each agent.
An env without such parts is a team, too: each of its choices is an agent, and all of them see the whole observation.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from rlframe.data.observation import ACTION_MASK, fields_of, mask_parts
from rlframe.data.timestep import EnvSpec
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import gymnasium
    from gymnasium import spaces
else:
    gymnasium = LazyModule('gymnasium')
    spaces = LazyModule('gymnasium.spaces')

OWN = 'agents'
"""Part with what each agent sees, [A, ...]."""
STATE = 'state'
"""Part with the state of the env, which only learning reads."""
PRESENT = 'present'
"""Part that says which agents act next, [A]; only learning reads it."""
REWARDS = 'rewards'
"""Part with the reward of each agent in the step before, [A]; only learning reads it."""
LAST_ACTION = 'last_action'
"""Part with what each agent did in the step before: numbers, or classes counted from 1, 0 if there was none; [A, ...]."""
LEARNING = (STATE, PRESENT, REWARDS)
"""Parts that acting does without."""
ACTING = (OWN, LAST_ACTION, ACTION_MASK)
"""Parts that agents may read."""


class Team(NamedTuple):
    """The agents of an env."""

    size: int
    """Agents, A."""
    is_told: bool
    """Whether observations have the parts of a team."""
    own: gymnasium.Space[Any]
    """What an agent sees."""
    last_action: gymnasium.Space[Any] | None
    """What an agent did in the step before; None: observations do not say it."""
    state: gymnasium.Space[Any]
    """What critics and mixers of the team read."""
    outputs: tuple[int, ...]
    """Values of the choice of each agent, or the numbers of its continuous action."""


def is_team(spec: EnvSpec) -> bool:
    """Whether the observations of an env have the parts of a team."""
    return {OWN, LAST_ACTION} <= set(fields_of(spec.observation_space))


def team_of(spec: EnvSpec) -> Team:
    """Returns the agents of an env."""
    parts = fields_of(spec.observation_space)
    action: Any = spec.action_space
    is_told = is_team(spec)
    if not is_told:
        seen = spec.observation_space
        counts = mask_parts(action) or (math.prod(action.shape or ()),)
        return Team(len(counts), False, seen, None, seen, tuple(counts))
    own = of_one(parts[OWN])
    last = of_one(parts[LAST_ACTION])
    # a state, or what all agents see
    state = parts.get(STATE, parts[OWN])
    count = _count_of(parts[LAST_ACTION])
    outputs = mask_parts(action) or (math.prod(action.shape or ()) // count,) * count
    return Team(count, True, own, last, state, tuple(outputs))


def _count_of(space: Any) -> int:
    return int(space.shape[0])


def of_one(space: Any) -> Any:
    """Returns the space of one agent, of the space of all, whose parts have a leading axis."""
    parts = fields_of(space)
    if parts:
        each = {name: of_one(part) for name, part in parts.items()}
        return _like(space, each)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.Discrete(int(space.nvec[0]), start=int(space.start[0]))
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary(space.shape[1:])
    box: Any = space
    return spaces.Box(box.low[0], box.high[0], dtype=box.dtype)


def _like(space: Any, parts: dict[str, Any]) -> Any:
    """Returns a Tuple or a Dict, as a space is one, of other parts."""
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple(parts.values())
    return spaces.Dict(parts, sort_keys=False)


def of_all(space: Any, count: int) -> Any:
    """Returns the space of so many agents that see the same kind of observation: each part has a leading axis."""
    parts = fields_of(space)
    if parts:
        each = {name: of_all(part, count) for name, part in parts.items() if name != ACTION_MASK}
        return _like(space, each)
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary((count, *space.shape))
    return gymnasium.vector.utils.batch_space(space, count)
