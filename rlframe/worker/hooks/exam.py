"""Exam: the symptoms that the checks of the training doctor look at, gathered once per evaluation."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.data.batch import Batch
from rlframe.data.timestep import Array
from rlframe.scores import reaches
from rlframe.utils.schema import COUNT, array, check_state, dict_of
from rlframe.worker.hooks.run_view import RunView

ROWS = 512
"""Rows of the newest data that checks look at."""
COLUMNS = 'obs', 'action', 'reward', 'collect_iter'
"""Columns that checks look at."""
HISTORY = 50
"""Scores that checks look back at."""


class Recent:
    """Refers to the newest blocks of collected rows, as many as ``ROWS`` rows need."""

    def __init__(self) -> None:
        self._blocks: deque[Batch] = deque()
        self._rows = self._train_iter = 0

    def add(self, data: Any, train_iter: int) -> None:
        """Notes a block that was just collected; data of other kinds than columns are ignored."""
        if not isinstance(data, Batch):
            return
        self._train_iter = train_iter
        self._blocks.append(data)
        self._rows += len(data)
        while self._rows - len(self._blocks[0]) >= ROWS:
            self._rows -= len(self._blocks.popleft())

    def column(self, name: str) -> Array | None:
        """Returns a column of the newest rows, [n, ...]; None if there are no rows or they have no such array."""
        blocks = [block for block in self._blocks if len(block)]
        if not blocks or not all(name in block and isinstance(block[name], np.ndarray) for block in blocks):
            return None
        columns: list[Array] = [block[name] for block in blocks]
        if len({(column.shape[1:], column.dtype) for column in columns}) > 1:
            return None
        return np.concatenate(columns)[-ROWS:]

    def staleness(self) -> float:
        """Returns the age in train iterations of the weights that collected the newest block; NaN if unknown."""
        has = self._blocks and 'collect_iter' in self._blocks[-1]
        stamps = self._blocks[-1]['collect_iter'][-ROWS:] if has else ()
        return self._train_iter - float(np.mean(stamps)) if len(stamps) else math.nan

    def state_dict(self) -> dict[str, Any]:
        """Returns the columns that checks read, and how many of their rows the newest block has."""
        columns = {name: column for name in COLUMNS if (column := self.column(name)) is not None}
        newest = min(len(self._blocks[-1]), ROWS) if self._blocks else 0
        return {'columns': columns, 'newest': newest, 'train_iter': self._train_iter}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'columns': dict_of(array()), 'newest': COUNT, 'train_iter': COUNT})
        self._train_iter = state['train_iter']
        rows = Batch(state['columns']) if state['columns'] else None
        self._rows = 0 if rows is None else len(rows)
        older = self._rows - state['newest']
        self._blocks = deque([] if rows is None else [rows[:older], rows[older:]])


class Exam:
    """What is known at an evaluation.

    Args:
        run: The run.
        scores: All scores so far, the newest last; at most ``HISTORY`` of them.
        recent: The newest collected rows.
    """

    def __init__(self, run: RunView, scores: Sequence[float], recent: Recent) -> None:
        self.run, self.scores, self.recent = run, scores, recent
        self.metrics: Mapping[str, float] = run.metrics()
        """Last value of each metric."""

    def metric(self, *tags: str) -> float:
        """Returns the first of these metrics that the run has; NaN if it has none."""
        return next((self.metrics[tag] for tag in tags if tag in self.metrics), math.nan)

    def option(self, key: str) -> Any:
        """Returns an option by its dotted key; None if the config has no such option."""
        section: Any = self.run.cfg
        for name in key.split('.'):  # without counting it as read
            section = dict.get(section, name) if isinstance(section, dict) else None
        return section

    def advise(self, *keys: str) -> str:
        """Returns those of these options that the config has, each with its value; options that are off only if all are."""
        known = [key for key in keys if self._has(key)]
        known = [key for key in known if self.option(key) is not None] or known
        return ' or '.join(f'{key} (now {self.option(key)!r})' for key in known)

    def _has(self, key: str) -> bool:
        *path, name = key.split('.')
        section = self.option('.'.join(path))
        return isinstance(section, dict) and name in section

    def has_stalled(self, evaluations: int) -> bool:
        """Whether the goal is out of reach and none of the last evaluations is better than all before them."""
        if len(self.scores) <= evaluations or self.is_solved:
            return False
        return max(self.scores[-evaluations:]) <= max(self.scores[:-evaluations])

    @property
    def is_solved(self) -> bool:
        """Whether the last score reaches the goal of the config or of the env."""
        stated: list[Any] = [self.run.evaluator.stop_value, self.run.spec.reward_threshold]
        goals = [float(goal) for goal in stated if _is_number(goal)]
        return bool(goals) and reaches(self.scores[-1], min(goals))

    @property
    def rescales_rewards(self) -> bool:
        """Whether the policy normalises rewards or returns, so that their scale does not matter."""
        return bool(self.option('policy.normalize_reward') or self.option('policy.learn.value_norm'))

    @property
    def returns(self) -> list[float]:
        """Returns of the episodes of this evaluation; empty if it played none."""
        return [float(value) for value in self.run.evaluation.info.get('eval_episode_return', ())]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
