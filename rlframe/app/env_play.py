"""Random play in an env: every step checked in full, compared with other runs, and timed."""

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
ROW = ('obs', 'reward', 'terminated', 'truncated', 'action')
"""Parts of a transition, or of the first observation of an episode, as comparable data."""


class Played:
    """What random actions led to.

    Args:
        last: The observation for the next action, packed.
    """

    def __init__(self, last: Any = None) -> None:
        self.last = last
        """The observation for the next action, packed."""
        self.rows: list[tuple[Any, ...]] = []
        """First observations of episodes, and transitions, with the parts ``ROW``."""
        self.returns: list[float] = []
        """Returns of the episodes that ended."""
        self.lengths: list[int] = []
        """Env steps of the episodes that ended."""
        self.gives_mask = False
        """Whether an info has an action mask, which is then no part of the observations."""
        self.seconds: dict[str, list[float]] = {'reset()': [], 'step()': []}
        """Duration of each call."""

    def speed(self) -> dict[str, Any]:
        """Returns env steps per second, and milliseconds of a reset."""
        steps, resets = self.seconds['step()'], self.seconds['reset()']
        return {'steps_per_second': len(steps) / sum(steps), 'reset_ms': 1000 * sum(resets) / len(resets)}


def first_difference(one: Played, other: Played) -> str:
    """Returns the first difference of what the same actions led to, in words; empty if there is none."""
    for number, (left, right) in enumerate(zip(one.rows, other.rows, strict=True)):
        for name, mine, others in zip(ROW, left, right, strict=True):
            if mine != others:
                return f'{name} of row {number}'
    return ''


def play(
    env: Env,
    spec: EnvSpec,
    steps: int,
    seed: int,
    calling: Calling,
    *,
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
    draw, played = _random_actions(spec, seed), Played(last)
    total, length = 0.0, 0

    def timed(call: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        calling(call)
        start = perf_counter()
        *answer, info = method(*args, **kwargs)
        played.seconds[call].append(perf_counter() - start)
        played.gives_mask = played.gives_mask or ACTION_MASK in info
        played.last = np.asarray(pack(spec.observation_space, answer[0], 'unsafe'))
        return answer[1:]

    def begin(**seeded: int) -> None:
        timed('reset()', checked.reset, **seeded)
        played.rows.append((_content(played.last), 0.0, False, False, ''))

    if last is None:
        begin(seed=seed)
    for _ in range(steps):
        action = draw(played.last)
        reward, terminated, truncated = timed('step()', checked.step, action)
        total, length = total + float(reward), length + 1
        if remarks is not None:
            ended, cut = (np.array([bool(flag)]) for flag in (terminated, truncated))
            step = TimeStep(played.last[None], np.array([float(reward)]), ended, cut, ({},), np.array([0]))
            contract.check_values(step, spec, [(len(played.returns) + 1, length)].__getitem__)
        row = _content(played.last), float(reward), bool(terminated), bool(truncated), repr(action)
        played.rows.append(row)
        if terminated or truncated:
            played.returns.append(total)
            played.lengths.append(length)
            total, length = 0.0, 0
            begin()
    return played


def _random_actions(spec: EnvSpec, seed: int) -> Callable[[Any], Any]:
    """Returns a function that draws an allowed action for a packed observation; the same ones for the same seed."""
    space: Any = copy.deepcopy(spec.action_space)
    space.seed(seed)
    parts = mask_parts(spec.action_space) if has_mask(spec.observation_space) else ()

    def draw(obs: Any) -> Any:
        if not parts:
            return space.sample()  # without a mask
        mask = (np.asarray(obs[ACTION_MASK]) != 0).astype(np.int8)
        return space.sample(mask=mask if len(parts) == 1 else tuple(np.split(mask, np.cumsum(parts)[:-1])))

    return draw


def _content(obs: Any) -> bytes:
    """Returns the numbers of an observation, without the gaps between the fields of a structured one."""
    return b''.join(np.ascontiguousarray(part).tobytes() for _, part in leaves(obs))
