"""Checks at the cost of one dot product whether numbers are finite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def is_finite(values: np.ndarray[Any, Any]) -> bool:
    """Whether values of any shape contain no NaN and no infinity; True for values that are not real numbers.

    The dot product of an array with itself is finite only if every element is. The reverse fails for numbers whose
    squares overflow: only then each element is checked.
    """
    return (
        values.dtype.kind != 'f' or math.isfinite(np.vdot(values, values)) or bool(np.isfinite(values).all())
    )
