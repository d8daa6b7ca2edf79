"""Mean and variance of all that came so far, from one process or from several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlframe.data.timestep import FloatArray


class RunningMoments:
    """Mean and variance of all rows so far, element by element.

    Args:
        shape: Shape of a row.
        dtype: Type of the rows. A smaller deviation than its resolution at the mean is rounding.

    Source:
        Chan, Golub & LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances (1979), eq.
        2.1.
    """

    def __init__(self, shape: tuple[int, ...] = (), dtype: npt.DTypeLike = np.float64) -> None:
        kind = np.dtype(dtype)
        self._resolution = float(np.finfo(kind if kind.kind == 'f' else np.float64).eps)
        self.count = 0
        """Rows so far."""
        self.mean = np.zeros(shape)
        """float64, 0 before the first row."""
        self.var = np.ones(shape)
        """float64, the biased variance; 1 before the first row."""

    def update(self, rows: FloatArray) -> None:
        """Takes rows [M, ...]."""
        count = len(rows)
        if count == 0:
            return
        first = rows[0].astype(np.float64)
        deviation = rows - first  # exactly 0 if nothing varies, and precise beside a large offset
        mean = deviation.mean(0)
        self._add(count, first + mean, np.square(deviation - mean).sum(0))

    def absorb(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Takes the rows that came between two states, of these moments or of others."""
        first, last = int(before['count']), int(after['count'])
        count = last - first
        if count <= 0:
            return
        mean = after['mean'] + (after['mean'] - before['mean']) * (first / count)
        squares = last * after['var'] - first * before['var']
        squares = squares - np.square(mean - before['mean']) * (first * count / last)
        self._add(count, mean, np.maximum(squares, 0.0))

    def _add(self, count: int, mean: FloatArray, squares: FloatArray) -> None:
        """Takes rows of which only number, mean and sum of squares around it are known."""
        total = self.count + count
        delta = mean - self.mean
        before = self.var * self.count
        self.mean = self.mean + delta * (count / total)
        self.var = (before + squares + np.square(delta) * (self.count * count / total)) / total
        self.count = total

    @property
    def std(self) -> FloatArray:
        """Standard deviation to divide by, however small: 1 if no value has varied yet."""
        least = self._resolution * np.abs(self.mean)
        return np.where(self.var > 0.0, np.maximum(np.sqrt(self.var), least), 1.0)

    def state_dict(self) -> dict[str, Any]:
        """Returns count, mean and variance."""
        return {
            'count': np.asarray(self.count, np.int64),
            'mean': np.array(self.mean),
            'var': np.array(self.var),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        self.count = int(state['count'])
        self.mean, self.var = np.asarray(state['mean']).copy(), np.asarray(state['var']).copy()
