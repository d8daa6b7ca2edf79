"""Random play in an env: every step checked in full, compared with other runs, or timed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.observation import ACTION_MASK, has_mask, mask_parts, pack
from rlframe.data.timestep import EnvSpec, TimeStep
from rlframe.envs import contract
from rlframe.envs.wrappers import CheckedEnv
from rlframe.utils.serialize import leaves

if TYPE_CHECKING:
    import gymnasium

    Env = gymnasium.Env[Any, Any]

Calling = Callable[[str], None]
"""Told the name of each call of the env before it is made; an empty text if it is over."""
SPEED_SECONDS = 0.5
"""Time of the measurement of speed."""
ROW = ('obs', 'reward', 'terminated', 'truncated', 'action')
"""Parts of a transition, or of the first observation of an episode, as comparable data."""


class Played:
    """What random actions led to."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        """First observations of episodes, and transitions, with the parts ``ROW``."""
        self.returns: list[float] = []
        """Returns of the episodes that ended."""
        self.lengths: list[int] = []
        """Env steps of the episodes that ended."""
        self.gives_mask = False
        """Whether an info has an action mask, which is then no part of the observations."""
        self.last: Any = None
        """The observation for the next action, packed."""


def first_difference(one: Played, other: Played) -> str:
    """Returns the first difference of what the same actions led to, in words; empty if there is none."""
    for number, (left, right) in enumerate(zip(one.rows, other.rows, strict=True)):
        for name, mine, others in zip(ROW, left, right, strict=True):
            if mine != others:
                return f'{name} of row {number}'
    return ''


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
    env: Env,
    spec: EnvSpec,
    steps: int,
    seed: int,
    calling: Calling,
    remarks: contract.Remarks | None = None,
    last: Any = None,
) -> Played:
    """Plays random actions, with every step checked in full if ``remarks`` are collected.

    Args:
        env: The env.
        spec: Its spaces.
        steps: Env steps to play.
        seed: Seed of the actions and of the first episode.
        calling: Told each call.
        remarks: Collects what the contract remarks.
        last: Observation, packed, with which a running episode continues; None: begins one.

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
        played.rows.append((content(played.last), 0.0, False, False, ''))

    played.last = last
    if last is None:
        begin(seed=seed)
    for _ in range(steps):
        action = actions.draw(played.last)
        calling('step()')
        obs, reward, terminated, truncated, info = checked.step(action)
        played.gives_mask = played.gives_mask or ACTION_MASK in info
        played.last = obs = packed(obs, spec)
        total, length = total + float(reward), length + 1
        if remarks is not None:
            ended, cut = (np.array([bool(flag)]) for flag in (terminated, truncated))
            step = TimeStep(obs[None], np.array([float(reward)]), ended, cut, ({},), np.array([0]))
            places = [(len(played.returns) + 1, length)]  # of the only env
            contract.check_values(step, spec, places.__getitem__)
        played.rows.append((content(obs), float(reward), bool(terminated), bool(truncated), repr(action)))
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


def measure(env: Env, spec: EnvSpec, seed: int, calling: Calling) -> dict[str, Any]:
    """Measures env steps per second and the milliseconds of a reset; closes the env."""
    actions = RandomActions(spec, seed)
    calling('reset()')
    obs, _ = env.reset(seed=seed)
    resets, stepping, count = [], 0.0, 0
    begin = perf_counter()
    while perf_counter() - begin < SPEED_SECONDS:
        action = actions.draw(packed(obs, spec))
        calling('step()')
        start = perf_counter()
        obs, _, terminated, truncated, _ = env.step(action)
        stepping, count = stepping + perf_counter() - start, count + 1
        if terminated or truncated:
            calling('reset()')
            start = perf_counter()
            obs, _ = env.reset()
            resets.append(perf_counter() - start)
    env.close()
    reset_ms = 1000 * sum(resets) / len(resets) if resets else None
    return {'steps_per_second': count / stepping, 'reset_ms': reset_ms}
