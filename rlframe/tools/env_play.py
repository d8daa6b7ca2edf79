"""Plays an env at random, in the ways that the checks of an env compare."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlframe.data.observation import ACTION_MASK, has_mask, mask_parts, pack
from rlframe.data.timestep import EnvSpec, TimeStep
from rlframe.envs.checked_env import CheckedEnv
from rlframe.envs.checks import contract
from rlframe.envs.env_manager import IEnvManager
from rlframe.utils.struct_array import leaves

if TYPE_CHECKING:
    import gymnasium

    Env = gymnasium.Env[Any, Any]

Calling = Callable[[str], None]
"""Told the name of each call of the env before it is made."""


class Row(NamedTuple):
    """A transition, or the first observation of an episode, as comparable data."""

    obs: bytes
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    action: str = ''

    def differs_in(self, other: Row) -> str:
        """Names the first part in which two rows differ."""
        names = ('obs', 'reward', 'terminated', 'truncated', 'action')
        return next(name for name in names if getattr(self, name) != getattr(other, name))


class Played:
    """What random actions led to."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        """First observations of episodes, and transitions."""
        self.returns: list[float] = []
        """Returns of the episodes that ended."""
        self.lengths: list[int] = []
        """Env steps of the episodes that ended."""
        self.gives_mask = False
        """Whether an info has an action mask, which is then no part of the observations."""
        self.last: Any = None
        """The observation for the next action, packed."""


class RandomActions:
    """Draws allowed actions of one env; the same ones for the same seed and observations."""

    def __init__(self, spec: EnvSpec, seed: int) -> None:
        self._space: Any = copy.deepcopy(spec.action_space)
        self._space.seed(seed)
        self._parts = mask_parts(spec.action_space) if has_mask(spec.observation_space) else ()

    def draw(self, obs: Any) -> Any:
        """Returns an action for an observation, packed."""
        if not self._parts:
            return self._space.sample()  # without a mask
        mask = (np.asarray(obs[ACTION_MASK]) != 0).astype(np.int8)
        if len(self._parts) == 1:
            return self._space.sample(mask=mask)
        return self._space.sample(mask=tuple(np.split(mask, np.cumsum(self._parts)[:-1])))


def play(
    env: Env, spec: EnvSpec, steps: int, seed: int, calling: Calling, remarks: contract.Remarks | None = None
) -> Played:
    """Plays random actions, with every step checked in full if ``remarks`` are collected.

    Raises:
        RLFrameError: If the env violates the contract. What the env itself raises passes unchanged.
    """
    checked: Any = env if remarks is None else CheckedEnv(env, 0, remarks, steps + 1)
    actions, played = RandomActions(spec, seed), Played()
    total, length = 0.0, 0

    def begin(**seeded: int) -> None:
        calling('reset()')
        obs, info = checked.reset(**seeded)
        played.last, played.gives_mask = packed(obs, spec), played.gives_mask or ACTION_MASK in info
        played.rows.append(Row(content(played.last)))

    begin(seed=seed)
    for _ in range(steps):
        action = actions.draw(played.last)
        calling('step()')
        obs, reward, terminated, truncated, info = checked.step(action)
        played.gives_mask = played.gives_mask or ACTION_MASK in info
        played.last = obs = packed(obs, spec)
        total, length = total + float(reward), length + 1
        if remarks is not None:
            _check_values(obs, reward, terminated, truncated, spec, (len(played.returns) + 1, length))
        played.rows.append(Row(content(obs), float(reward), bool(terminated), bool(truncated), repr(action)))
        if terminated or truncated:
            played.returns.append(total)
            played.lengths.append(length)
            total, length = 0.0, 0
            begin()
    return played


def packed(obs: Any, spec: EnvSpec) -> Any:
    """Returns an observation as an array of its space."""
    return np.asarray(pack(spec.observation_space, obs, 'unsafe'))


def content(obs: Any) -> bytes:
    """Returns the numbers of an observation, without the gaps between the fields of a structured one."""
    return b''.join(np.ascontiguousarray(part).tobytes() for _, part in leaves(np.asarray(obs)))


def _check_values(
    obs: Any, reward: float, terminated: Any, truncated: Any, spec: EnvSpec, place: tuple[int, int]
) -> None:
    ended, cut = (np.array([bool(flag)]) for flag in (terminated, truncated))
    step = TimeStep(obs[None], np.array([reward], np.float64), ended, cut, ({},), np.array([0]))
    contract.check_values(step, spec, lambda env: place)


def transitions(manager: IEnvManager, steps: int, seed: int, calling: Calling) -> list[list[Row]]:
    """Returns the first ``steps`` transitions of each env of a manager, with the observations before and after them."""
    calling('reset() of the vector env')
    manager.reset(seed=[seed + i for i in range(manager.env_num)])
    actions = [RandomActions(manager.spec, seed + i) for i in range(manager.env_num)]
    rows: list[list[Row]] = [[] for _ in actions]
    while min(map(len, rows)) < steps:
        ids, before = manager.ready, manager.obs.copy()
        chosen = [actions[i].draw(before[i]) for i in ids.tolist()]
        calling('step() of the vector env')
        step = manager.step(np.array(chosen, manager.spec.action_space.dtype), ids)
        for k, i in enumerate(step.env_id.tolist()):
            flags = bool(step.terminated[k]), bool(step.truncated[k])
            obs = content(before[i]) + content(step.obs[k])
            rows[i].append(Row(obs, float(step.reward[k]), *flags, repr(chosen[k])))
        if step.done.any():
            calling('reset() of the vector env')
            manager.reset(step.env_id[step.done])
    return [own[:steps] for own in rows]


def first_difference(one: list[Row], other: list[Row]) -> str:
    """Returns the first difference of two lists of rows in words; empty if the shorter one is a start of the other."""
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return f'{left.differs_in(right)} of row {number}'
    return ''
