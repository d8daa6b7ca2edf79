"""Identifiable transitions: every value of row ``i`` tells ``i``, so a swapped row is a visible number."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data import Batch


def transitions(start: int, count: int, **more: Any) -> Batch:
    """Returns rows ``start`` to ``start + count - 1``."""
    number = np.arange(start, start + count)
    obs = np.repeat(number[:, None], 4, axis=1).astype(np.float32)
    return Batch(
        obs=obs,
        action=number,
        reward=-number.astype(np.float32),
        done=number % 2 == 0,
        next_obs=obs + 1,
        **more,
    )


def assert_rows_intact(rows: Batch) -> None:
    """Fails if the columns of some row are of different transitions."""
    number = rows['action']
    np.testing.assert_array_equal(rows['obs'], np.repeat(number[:, None], 4, axis=1))
    np.testing.assert_array_equal(rows['reward'], -number)
    np.testing.assert_array_equal(rows['done'], number % 2 == 0)
    np.testing.assert_array_equal(rows['next_obs'], rows['obs'] + 1)


class FakeClock:
    """A time that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
