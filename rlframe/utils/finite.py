"""Tells at the cost of one dot product whether numbers are finite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def is_finite(values: np.ndarray[Any, Any]) -> bool:
    """Whether there is no NaN and no infinity among values of any shape; what are no real numbers has none.

    The dot product of an array with itself is finite only if all of it is. The reverse fails for numbers whose squares
    overflow: only then each is looked at.
    """
    return (
        values.dtype.kind != 'f' or math.isfinite(np.vdot(values, values)) or bool(np.isfinite(values).all())
    )
