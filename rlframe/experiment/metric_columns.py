"""The metrics of a run as columns."""

from __future__ import annotations

import html
import importlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.data.timestep import Array
from rlframe.errors import MissingDependencyError
from rlframe.registry import nearest
from rlframe.run.metrics import records
from rlframe.scores import exact_text


class MetricColumns(Mapping[str, Array]):
    """All records of a run: a column for each name, NaN in records without that number.

    ``metrics['eval/mean_reward']`` is a column, ``metrics.curve('eval/mean_reward')`` its numbers over env steps.

    Args:
        columns: One array for each name, float64 [records].
    """

    def __init__(self, columns: Mapping[str, Array]) -> None:
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> Array:
        try:
            return self._columns[name]
        except KeyError:
            raise KeyError(f'no metric {name!r}.{nearest(name, self._columns)}') from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def curve(self, name: str) -> tuple[Array, Array]:
        """Returns the env steps and the values of the records that have a number."""
        values = self[name]
        has = np.isfinite(values)
        return self['envstep'][has], values[has]

    def to_pandas(self) -> Any:
        """Returns a ``pandas.DataFrame`` with a row for each record.

        Raises:
            MissingDependencyError: If pandas is not installed.
        """
        try:
            pandas: Any = importlib.import_module('pandas')
        except ImportError as error:
            raise MissingDependencyError(
                'to_pandas needs pandas', where='to_pandas', remedy='pip install pandas'
            ) from error
        return pandas.DataFrame(self._columns)

    def __repr__(self) -> str:
        rows = len(next(iter(self._columns.values()), ()))
        return f'MetricColumns({rows} records of {", ".join(self) or "nothing"})'

    def _repr_html_(self) -> str:
        rows = []
        for name, values in self._columns.items():
            numbers = values[np.isfinite(values)]
            last = exact_text(numbers[-1]) if len(numbers) else ''
            rows.append(f'<tr><td>{html.escape(name)}</td><td>{len(numbers)}</td><td>{last}</td></tr>')
        return f'<table><tr><th>metric</th><th>values</th><th>last</th></tr>{"".join(rows)}</table>'


def read_columns(folder: Path) -> MetricColumns:
    """Returns the metrics of a run folder; lines that are damaged, such as a last one cut off, are skipped."""
    found = list(records(folder))
    names = dict.fromkeys(name for record in found for name in record)
    columns = {name: np.full(len(found), math.nan) for name in names}
    for row, record in enumerate(found):
        for name, value in record.items():
            columns[name][row] = value
    return MetricColumns(columns)
