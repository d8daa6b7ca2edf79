"""Counts the progress of an experiment in one place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from rlframe.utils.schema import COUNT, FINITE, check_state

SCHEMA = {'envstep': COUNT, 'train_iter': COUNT, 'episodes': COUNT, 'wall_time': FINITE}


@dataclasses.dataclass
class Progress:
    """Counters of an experiment, shared by its workers; they only grow, and are saved in every checkpoint."""

    envstep: int = 0
    """Env steps taken for training, over all envs, warm-up included."""
    train_iter: int = 0
    """Gradient steps."""
    episodes: int = 0
    """Training episodes that ended."""
    wall_time: float = 0.0
    """Seconds of training, including the runs that this one resumed."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the counters."""
        return dict(vars(self))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, SCHEMA)
        for field in dataclasses.fields(self):
            setattr(self, field.name, state[field.name])


class TrainIter(int):
    """Number of gradient steps so far, with the interface of DI-engine's counter ``last_iter``.

    Args:
        progress: The counters that hold the number.
    """

    _progress: Progress

    def __new__(cls, progress: Progress) -> Self:
        number = super().__new__(cls, progress.train_iter)
        number._progress = progress
        return number

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)  # a copy is a plain number

    @property
    def val(self) -> int:
        """Current number of gradient steps."""
        return self._progress.train_iter

    def add(self, number: int) -> None:
        """Counts more gradient steps."""
        self.update(self.val + number)

    def update(self, value: int) -> None:
        """Sets the counter.

        Raises:
            ValueError: If it is less than 0.
        """
        if value < 0:
            raise ValueError(f'train_iter must be >= 0, got {value}')
        self._progress.train_iter = int(value)
