"""CsvLogger: writes all records as one table."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from rlframe.logger.json_lines import line_of
from rlframe.logger.logger import LoggedRun, Logger, Record
from rlframe.registry import LOGGER_REGISTRY
from rlframe.run.metrics import METRICS

TABLE = 'metrics.csv'
FIRST = ('envstep', 'train_iter', 'time')
"""Columns of every table; the others follow in the order of their first records."""


@LOGGER_REGISTRY.register('csv')
class CsvLogger(Logger):
    """Writes the records to metrics.csv, a row each and a column per tag; cells without a number are empty.

    The table is always that of ``metrics.jsonl``: if a record has a new tag, and when a run is resumed, it is written again
    from that file, with all columns.
    """

    def __init__(self, cfg: Mapping[str, Any] | None, run: LoggedRun) -> None:
        super().__init__(cfg, run)
        self._path, self._file = run.folder / TABLE, _nothing()
        self._columns: dict[str, None] = dict.fromkeys(FIRST)
        self._write_again()

    def write(self, record: Record) -> None:
        row = line_of(record)
        if row.keys() <= self._columns.keys():
            self._rows.writerow(row)
        else:  # metrics.jsonl has this record already
            self._write_again()

    def _write_again(self) -> None:
        """Writes the table from ``metrics.jsonl``, and then replaces the file, which is whole at any time."""
        self._file.close()
        source, new = self._run.folder / METRICS, self._path.with_suffix('.csv.new')
        for row in _records(source):
            self._columns |= dict.fromkeys(row)
        self._file = open(new, 'w', encoding='utf-8', newline='')  # noqa: SIM115  closed by close()
        self._rows = csv.DictWriter(self._file, list(self._columns), restval='', lineterminator='\n')
        self._rows.writeheader()
        for row in _records(source):
            self._rows.writerow(row)
        self._file.flush()
        os.replace(new, self._path)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _nothing() -> IO[str]:
    return open(os.devnull, 'w', encoding='utf-8')  # a file to close


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the records of a file, without a last line that is cut off."""
    if not path.exists():
        return
    with open(path, encoding='utf-8') as lines:
        for line in lines:
            if line.endswith('\n') and isinstance(row := json.loads(line), dict):
                yield row
