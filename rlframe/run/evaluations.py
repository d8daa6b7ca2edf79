"""The evaluations of a run, as its metrics tell them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rlframe.run.metrics import records
from rlframe.scores import Interval, mean_interval

MEAN, STD, EPISODES = 'eval/mean_reward', 'eval/std_reward', 'eval/episodes'
"""Tags of an evaluation."""


class Evaluation(NamedTuple):
    """The returns of the episodes of one evaluation."""

    envstep: int
    """Env steps of training before it."""
    mean: float
    std: float
    episodes: int

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the mean; None if there is one episode only."""
        return mean_interval(self.mean, self.std, self.episodes)


def evaluations(folder: Path) -> Iterator[Evaluation]:
    """Yields the evaluations of a run that played episodes; lines that are damaged are skipped."""
    for record in records(folder, containing=MEAN):
        try:
            found = Evaluation(int(record['envstep']), record[MEAN], record[STD], int(record[EPISODES]))
        except (KeyError, ValueError, OverflowError):  # a number is missing, or is not finite
            continue
        yield found


def evaluation_of(folder: Path, score: float) -> Evaluation | None:
    """Returns the last evaluation of a run with this mean return, None if there is none."""
    return next((one for one in reversed(list(evaluations(folder))) if one.mean == score), None)
