"""The evaluations of a run, as its metrics tell them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rlframe.run.metrics import METRICS
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
    try:
        file = open(folder / METRICS, encoding='utf-8', errors='replace')  # noqa: SIM115  closed below
    except OSError:
        return
    with file:
        for line in file:
            if MEAN not in line:
                continue
            try:
                record = json.loads(line)
                found = Evaluation(
                    int(record['envstep']), float(record[MEAN]), float(record[STD]), int(record[EPISODES])
                )
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            yield found


def evaluation_of(folder: Path, score: float) -> Evaluation | None:
    """Returns the last evaluation of a run with this mean return, None if there is none."""
    return next((one for one in reversed(list(evaluations(folder))) if one.mean == score), None)
