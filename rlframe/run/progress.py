"""The progress of an experiment in one place: counts, budgets, evaluations, and where its time goes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Self

from rlframe.run.metrics import records
from rlframe.scores import Interval, mean_interval
from rlframe.utils.schema import COUNT, FINITE, check_state

NO_BUDGET = 10**10
"""Default of both budgets: no limit."""

BUDGETS = {
    'max_env_step': ('envstep', 'env steps', '--env-step'),
    'max_train_iter': ('train_iter', 'updates', '--train-iter'),
}
"""For each budget key: its counter, the counter's unit, and its command line flag."""
SCHEMA = {'envstep': COUNT, 'train_iter': COUNT, 'episodes': COUNT, 'wall_time': FINITE}

MEAN, STD, EPISODES = 'eval/mean_reward', 'eval/std_reward', 'eval/episodes'
LOW, HIGH = 'eval/min_reward', 'eval/max_reward'
"""Tags of an evaluation."""
ONLINE = 'time/online_iter'
"""Tag of the train iterations at which a run took its first env step, after updates from given data."""
COLLECT, LEARN, EVALUATE = 'collect', 'learn', 'evaluate'
KINDS = (COLLECT, LEARN, EVALUATE)


def set_budgets(cfg: Mapping[str, Any]) -> list[str]:
    """Returns the keys of the budgets that a config sets."""
    return [key for key in BUDGETS if cfg[key] < NO_BUDGET]


def spent_budgets(cfg: Mapping[str, Any], progress: Progress) -> list[str]:
    """Returns the keys of the budgets that are spent."""
    return [key for key, (counter, *_) in BUDGETS.items() if getattr(progress, counter) >= cfg[key]]


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


class Evaluation(NamedTuple):
    """The returns of the episodes of one evaluation."""

    envstep: int
    """Env steps of training before it."""
    mean: float
    std: float
    episodes: int
    low: float = -math.inf
    high: float = math.inf

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the mean; None if there is one episode only."""
        return mean_interval(*self[1:])


def evaluations(folder: Path) -> Iterator[Evaluation]:
    """Yields the evaluations of a run that played episodes; lines that are damaged are skipped."""
    for record in records(folder, containing=MEAN):
        try:
            envstep, episodes = int(record['envstep']), int(record[EPISODES])
            low, high = record.get(LOW, -math.inf), record.get(HIGH, math.inf)
            found = Evaluation(envstep, record[MEAN], record[STD], episodes, low, high)
        except (KeyError, ValueError, OverflowError):  # a number is missing, or is not finite
            continue
        yield found


def evaluation_of(folder: Path, score: float) -> Evaluation | None:
    """Returns the last evaluation of a run with this mean return, None if there is none."""
    return next((one for one in reversed(list(evaluations(folder))) if one.mean == score), None)


class TimeSplit:
    """Seconds of a run by what its process did, including the runs that it resumed.

    ``start`` begins to measure; each ``lap`` counts the time since the last call of either.
    """

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(KINDS, 0.0)
        self._last = perf_counter()

    def start(self) -> None:
        """Begins to measure: time before this call is not counted."""
        self._last = perf_counter()

    def lap(self, kind: str) -> None:
        """Counts the time since the last call."""
        now = perf_counter()
        self._seconds[kind] += now - self._last
        self._last = now

    def seconds(self) -> dict[str, float]:
        """Returns the seconds of each kind, for the manifests of checkpoints."""
        return dict(self._seconds)

    def metrics(self) -> dict[str, float]:
        """Returns the same as metrics."""
        return {f'time/{kind}': seconds for kind, seconds in self._seconds.items()}

    def resume(self, saved: Mapping[str, float]) -> None:
        """Continues from saved ``seconds``; older versions of rlframe saved none."""
        self._seconds |= {kind: float(saved.get(kind, 0.0)) for kind in KINDS}
