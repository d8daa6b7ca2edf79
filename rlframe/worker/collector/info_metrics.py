"""Metrics from ``info``: the numbers that envs report at the end of an episode."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rlframe.data.timestep import FloatArray
from rlframe.utils.field import Field

logger = logging.getLogger('rlframe.collector')

ALL = 'all'
INFO_METRICS = Field(
    ALL,
    type=(str, list, type(None)),
    doc="numbers of an episode's last info to log under info/NAME: 'all', a list of names, or None",
    may_change=True,
)
"""The option ``info_metrics`` of collectors and evaluators."""
OTHERS = frozenset(
    [
        *('eval_episode_return', 'abnormal', 'TimeLimit.truncated', 'bad_transition'),
        *('elapsed_step', 'env_id', 'players.env_id', 'reward', 'terminated'),  # EnvPool's
    ]
)
"""Entries of an info that rlframe, Gymnasium or EnvPool add for themselves."""
MOST = 100
"""Names that one log counts, as an env may invent new ones forever."""

Wanted = Collection[str] | None
"""The names that are logged; None: all."""


def wanted_names(value: Any) -> Wanted:
    """Returns the names that a value of the option ``info_metrics`` selects; on the command line ``drag,lift``."""
    if value == ALL:
        return None
    if isinstance(value, str):
        return frozenset(name.strip() for name in value.strip('[]').split(','))
    return frozenset(map(str, value or ()))


def numbers_of(info: Mapping[str, Any], wanted: Wanted = None) -> dict[str, float]:
    """Returns the finite numbers in an info; booleans count as 0 and 1.

    Args:
        info: Info of the last step of an episode.
        wanted: The names to look at; None: all that an env reports itself.
    """
    found = {}
    for name, value in info.items():
        if (name in wanted) if wanted is not None else not (name in OTHERS or str(name).startswith('_')):
            number = _number(value)
            if math.isfinite(number):
                found[str(name)] = number
    return found


def _number(value: Any) -> float:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, np.complexfloating) or not isinstance(value, int | float | np.bool_ | np.number):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an int that no float holds
        return math.nan


def checked_sums(told: Any) -> dict[str, list[float]]:
    """Returns sums that a worker sent, without entries that are none."""
    return {
        str(name)[:100]: [float(number) for number in pair]
        for name, pair in (told.items() if isinstance(told, Mapping) else ())
        if isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_is_sum, pair)) and pair[1] > 0
    }


def _is_sum(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(_number(value))


class InfoSums:
    """Sums up numbers of episodes by name, for means over the episodes that have them.

    Args:
        info_metrics: Value of the option.
    """

    def __init__(self, info_metrics: Any = ALL) -> None:
        self._wanted = wanted_names(info_metrics)
        self.is_off = self._wanted is not None and not self._wanted
        """Whether nothing is counted."""
        self._sums: dict[str, list[float]] = {}  # name to sum and count
        self._warned = False

    def count(self, info: Mapping[str, Any]) -> None:
        """Counts the info of an ended episode."""
        for name, number in numbers_of(info, self._wanted).items():
            self._add(name, number, 1)

    def _add(self, name: str, total: float, count: float) -> None:
        if name not in self._sums:
            if len(self._sums) >= MOST:
                if not self._warned:
                    self._warned = True
                    logger.warning('info has more than %d different numbers; %r is not logged', MOST, name)
                return
            self._sums[name] = [0.0, 0.0]
        entry = self._sums[name]
        entry[0] += total
        entry[1] += count

    def add(self, sums: Mapping[str, Any]) -> None:
        """Adds the sums of another object, as ``take`` returned them."""
        for name, (total, count) in sums.items():
            self._add(name, float(total), float(count))

    def take(self) -> dict[str, list[float]]:
        """Returns and clears sum and count of each name."""
        sums, self._sums = self._sums, {}
        return sums

    def means(self) -> dict[str, float]:
        """Returns and clears the means, by tag."""
        return {f'rollout/info/{name}': total / count for name, (total, count) in self.take().items()}

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of the sums, empty if there are none."""
        if not self._sums:
            return {}
        return {'info_names': [*self._sums], 'info_sums': np.array([*self._sums.values()])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the sums; checkpoints of older versions have none."""
        sums: FloatArray = state.get('info_sums', np.zeros((0, 2)))
        self._sums = dict(zip(state.get('info_names', ()), sums.tolist(), strict=True))
