"""Detects bad habits of envs in their first steps: observations changed later, randomness that no seed controls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.observation import fields_of
from rlframe.data.timestep import Array
from rlframe.errors import EnvContractError
from rlframe.utils.arithmetic import is_finite
from rlframe.utils.seed import global_rng_mark

if TYPE_CHECKING:
    import gymnasium

    from rlframe.envs.checks.contract import Remarks

REUSED = (
    'changed an observation that it had returned before: it writes every observation into the same array. rlframe copies'
    ' what it is given, but wrappers and hooks that keep observations see them change. Return a copy: obs.copy().'
)
UNSEEDED = (
    'draws from the global generator of {names}, which reset(seed=...) does not seed: its episodes depend on whatever else'
    ' draws from it. Draw from self.np_random.'
)


class Habits:
    """Checks one env around its first steps and resets.

    Args:
        name: Name of the env.
        index: Env id.
        remarks: Collects the findings.
    """

    def __init__(self, name: str, index: int, remarks: Remarks) -> None:
        self._who, self._remarks = f'{name}: env {index}', remarks
        self._kept: list[tuple[Array, Array]] = []  # parts of the last observation, and copies of them
        self._mark: dict[str, Any] = {}

    def before(self) -> None:
        """Records the state of the global generators."""
        self._mark = global_rng_mark()

    def after(self, obs: Any) -> None:
        """Compares with the recorded state, and keeps the observation that the env returned."""
        now = global_rng_mark()
        if drawn := [name for name, mark in now.items() if self._mark.get(name) != mark]:
            text = UNSEEDED.format(names=' and '.join(drawn))
            self._remarks.tell('unseeded', f'{self._who} {text}')
        if self.has_changed():
            self._remarks.tell('reused', f'{self._who} {REUSED}')
        self._kept = [(part, part.copy()) for part in _arrays_in(obs)]

    def has_changed(self) -> bool:
        """Whether the last observation has changed since the env returned it."""
        return any(part.tobytes() != copy.tobytes() for part, copy in self._kept)

    def check_apart(self, others: int) -> None:
        """Checks that no other env wrote into the observation of this one before it was stored.

        Raises:
            EnvContractError: If another env did.
        """
        if others and self.has_changed():
            raise EnvContractError(
                f'{self._who} gave an observation that another env changed in the same step',
                remedy='Envs must not share the array that they return: make it in __init__, or return a copy.',
            )


def differs_after_same_seed(env: gymnasium.Env[Any, Any], first: Any, seed: int) -> bool:
    """Resets an env again with the same seed, and returns whether its first observation differs.

    Args:
        env: The env, or a vector env.
        first: The first observation of the first reset with this seed.
        seed: The seed.
    """
    copies = [part.copy() for part in _arrays_in(first)]
    again = _arrays_in(env.reset(seed=seed)[0])
    kinds = [[(part.shape, part.dtype) for part in parts] for parts in (copies, again)]
    if kinds[0] != kinds[1] or not all(map(is_finite, copies + again)):
        return False  # reported by the contract checks
    return [part.tobytes() for part in copies] != [part.tobytes() for part in again]


def _arrays_in(obs: Any) -> list[Array]:
    if isinstance(obs, np.ndarray):
        return [obs] if obs.dtype != object else []
    if isinstance(obs, dict):
        return [part for value in obs.values() for part in _arrays_in(value)]
    return [part for value in obs for part in _arrays_in(value)] if isinstance(obs, tuple) else []


def bad_obs_bounds(space: gymnasium.Space[Any], path: str = 'obs') -> str:
    """Returns the bounds of an observation space that allow no value, or an empty string."""
    for name, part in fields_of(space).items():
        if found := bad_obs_bounds(part, f'{path}[{name!r}]'):
            return found
    if type(space).__name__ != 'Box':
        return ''
    low, high = np.asarray(space.low), np.asarray(space.high)  # type: ignore[attr-defined]  # a Box has them
    bad = np.argwhere(~(low <= high))  # NaN is not below anything
    if not len(bad):
        return ''
    at = tuple(bad[0].tolist())
    return f'{path}{list(at) if at else ""}: low {float(low[at]):g}, high {float(high[at]):g}'
