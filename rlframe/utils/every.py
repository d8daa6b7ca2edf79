"""Intervals of a run: a number of train iterations, or a text with its unit, such as ``'5000 env steps'``."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from rlframe.utils.field import Field

UNITS = {'env steps': True, 'env step': True, 'train iterations': False, 'train iteration': False}
"""Units of an interval in text, and whether they are env steps."""
FORM = "an int >= 1 (train iterations), or a text such as '5000 env steps' or '1000 env steps, later 10 %'"
TEXT = r'\s*(\d[\d_,]*|\d+(?:\.\d+)?e\d+)\s+([a-z ]+?)(?:,\s*later\s+(\d+(?:\.\d+)?)\s*%)?\s*'
"""Pattern of a text: a number, a unit, and how intervals grow."""


class Every(NamedTuple):
    """An interval."""

    length: int
    in_env_steps: bool = False
    """Whether it counts env steps, over all envs; else it counts train iterations."""
    growth: float = 0.0
    """The share of its counter that each interval has at least; with 0, all have the same length."""

    @classmethod
    def of(cls, value: int | str) -> Every:
        """Reads the value of an option.

        Raises:
            ValueError: If it is neither a whole number of at least 1 nor a text with such a number and a unit.
        """
        found = _parsed(value)
        if found is None:
            raise ValueError(f'{value!r} is no interval; expected {FORM}')
        return found

    def now(self, train_iter: int, envstep: int) -> int:
        """Returns the counter that it counts."""
        return envstep if self.in_env_steps else train_iter

    def after(self, last: int) -> int:
        """Returns the length of the interval that begins at a value of its counter."""
        return max(self.length, round(self.growth * last))

    def ends(self, now: int) -> int:
        """Returns how many intervals from 0 on end by a value of its counter."""
        if now * self.growth <= self.length:
            return now // self.length
        equal = self.length / self.growth
        return int(equal // self.length + math.log(now / equal) / math.log1p(self.growth))

    def has_passed(self, last: int, now: int) -> bool:
        """Whether it lies between two values of its counter; so it does if the first one is of the other counter."""
        return not 0 <= now - last < self.after(last)


def _parsed(value: Any) -> Every | None:
    if isinstance(value, str):
        match = re.fullmatch(TEXT, value.lower())
        if match is None or match[2] not in UNITS:
            return None
        number = float(match[1].replace(',', '').replace('_', ''))
        if not number.is_integer() or number < 1:
            return None
        return Every(int(number), UNITS[match[2]], float(match[3] or 0) / 100)
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return Every(value) if is_count else None


def interval_problem(value: Any) -> str:
    """Returns a description of valid intervals if this is none, else an empty string."""
    return FORM if _parsed(value) is None else ''


def interval(default: int | None, doc: str, *, may_change: bool = True) -> Any:
    """Declares an option that is an interval: ``int | str``, or ``None`` as well if that is the default."""
    return Field(
        default,
        range='[1, inf)',
        unit="train iterations; or a text with its unit: '5000 env steps', or '1000 env steps, later 10 %' of the counter",
        doc=doc,
        check=interval_problem,
        may_change=may_change,
    )


def seconds(default: float, doc: str) -> Any:
    """Declares an option that is a number of seconds above 0, which a resumed run may change."""
    return Field(default, range='(0, inf)', unit='seconds', doc=doc, may_change=True)
