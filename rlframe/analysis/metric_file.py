"""MetricFile: the numbers in a ``metrics.jsonl``, by tag, read in one pass and continued where the last pass ended."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeGuard

import numpy as np

from rlframe.errors import ExperimentDirError
from rlframe.safety.limits import LimitExceededError, check_limit, remedy_of
from rlframe.safety.plain_text import printable

MOST_TAGS = 10_000
"""Tags of one file; more are no metrics."""
LONGEST_LINE = 2**20
"""Bytes of one record."""
LARGEST, MOST_STEPS = 1e100, 2**52
"""Numbers above these count as infinite: sums, squares and differences of them would overflow or be inexact."""
FACTS = ('envstep', 'train_iter', 'time')
"""Keys of a record that are no metrics."""


class Curve(NamedTuple):
    """The values of one tag."""

    steps: np.ndarray[Any, Any]
    """Env steps, increasing. float64 [K]."""
    values: np.ndarray[Any, Any]
    """Values; none is NaN. float64 [K]."""


class MetricFile:
    """The records of a run.

    Args:
        path: The file, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = ''
        """Says that the last line is cut, if it is."""
        self._clear()

    def _clear(self) -> None:
        self._columns: dict[str, tuple[array[float], array[float]]] = {}
        self._offset = self._lines = 0
        self.first_time = self.last_time = math.nan
        """Unix times of the first and the last record."""
        self.envstep = self.train_iter = 0
        """Largest counts of all records."""

    def update(self) -> bool:
        """Reads the records that were added since the last call, or all if a resumed run cut the file.

        Returns:
            Whether anything changed.

        Raises:
            ExperimentDirError: If it is too large, cannot be read, or a line other than the last is no record.
        """
        try:
            if not self.path.exists():
                return False
            if not self.path.is_file():  # a pipe would be waited for
                raise ExperimentDirError('this is not a regular file', where=str(self.path))
            size = self.path.stat().st_size
            check_limit('METRICS_BYTES', size, 'bytes of the file')
            if size < self._offset:
                self._clear()
            if size == self._offset:
                return False
            with open(self.path, 'rb') as file:
                file.seek(self._offset)
                self._read(file, size)
        except LimitExceededError as error:
            raise ExperimentDirError(str(error), where=str(self.path), remedy=remedy_of(error)) from error
        except OSError as error:
            raise ExperimentDirError(f'cannot be read: {error.strerror}', where=str(self.path)) from error
        return True

    def _read(self, file: IO[bytes], size: int) -> None:
        """Reads records up to a size; the last line may be incomplete, as a run writes or was killed."""
        self.note, broken = '', ''
        while self._offset < size and (line := file.readline(LONGEST_LINE)):
            if broken:
                raise ExperimentDirError(broken, where=f'{self.path}:{self._lines}')
            record: Any = None
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                broken = 'this line is no JSON'
            if not broken and not _is_record(record):
                broken = 'this line is no record with an "envstep"'
            if len(line) == LONGEST_LINE:
                broken = f'this line is longer than {LONGEST_LINE:,} bytes'
            elif broken and not line.endswith(b'\n'):
                break  # read again when it is complete
            self._offset, self._lines = self._offset + len(line), self._lines + 1
            if not broken:
                self._add(record)
        if broken:
            self.note = f'{self.path}: the last line is cut and was skipped'

    def _add(self, record: dict[str, Any]) -> None:
        step = float(record['envstep'])
        self.envstep = max(self.envstep, int(step))
        if _is_count(train_iter := record.get('train_iter')):
            self.train_iter = max(self.train_iter, int(train_iter))
        if _is_number(seconds := record.get('time')):
            self.first_time = float(seconds) if math.isnan(self.first_time) else self.first_time
            self.last_time = float(seconds)
        for name, value in record.items():
            if name not in FACTS and _is_number(value):
                tag = printable(name)
                columns = self._columns.get(tag)
                if columns is None:
                    if len(self._columns) >= MOST_TAGS:
                        raise ExperimentDirError(f'more than {MOST_TAGS:,} tags', where=str(self.path))
                    columns = self._columns[tag] = (array('d'), array('d'))
                columns[0].append(step)
                columns[1].append(float(value))

    @property
    def tags(self) -> list[str]:
        """The tags, those of evaluations and episodes first."""
        order = {'eval': 0, 'rollout': 1, 'train': 2, 'buffer': 3}
        return sorted(self._columns, key=lambda tag: (order.get(tag.partition('/')[0], 4), tag))

    def curve(self, tag: str) -> Curve:
        """Returns the values of a tag; of several at one env step, the last."""
        steps, values = (np.array(column, float) for column in self._columns.get(tag, ((), ())))
        order = np.argsort(steps, kind='stable')
        steps, values = steps[order], values[order]
        keep = np.append(steps[1:] != steps[:-1], True)[: len(steps)]
        return Curve(steps[keep], values[keep])

    def last(self, tag: str) -> float:
        """Returns the last value of a tag, NaN if there is none."""
        column = self._columns.get(tag)
        return column[1][-1] if column else math.nan

    def rows(self, tags: list[str]) -> Iterator[tuple[float, ...]]:
        """Yields env step and values of tags that are written together; NaN where one is missing."""
        curves = [self.curve(tag) for tag in tags]
        known = [dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True)) for curve in curves]
        for step in known[0]:
            yield step, *(values.get(step, math.nan) for values in known)


def _is_number(value: Any) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LARGEST  # False for NaN


def _is_count(value: Any) -> TypeGuard[float]:
    return _is_number(value) and abs(value) <= MOST_STEPS


def _is_record(record: Any) -> bool:
    return isinstance(record, dict) and _is_count(record.get('envstep'))
