"""JsonLinesLogger: writes ``metrics.jsonl``, the reference that resuming and analysis read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rlframe.logger.logger import LoggedRun, Logger, Record
from rlframe.registry import LOGGER_REGISTRY
from rlframe.run.metrics import METRICS


def line_of(record: Record) -> dict[str, Any]:
    """Returns a record as one flat dict that JSON can hold; numbers that are not finite become None."""
    values = {tag: value if math.isfinite(value) else None for tag, value in record.values.items()}
    return {'envstep': record.envstep, **record.facts, **values, 'time': round(record.time, 3)}


@LOGGER_REGISTRY.register('jsonl')
class JsonLinesLogger(Logger):
    """Writes one JSON object per record to metrics.jsonl; every run has this logger."""

    def __init__(self, cfg: Mapping[str, Any] | None, run: LoggedRun) -> None:
        super().__init__(cfg, run)
        self._path = run.folder / METRICS
        self._file = open(self._path, 'a', encoding='utf-8', buffering=1)  # noqa: SIM115  closed by close()

    def write(self, record: Record) -> None:
        self._file.write(json.dumps(line_of(record)) + '\n')

    def last_record(self) -> str:
        """Returns the last line of the file, empty if there is none."""
        self._file.flush()
        lines = self._path.read_text(encoding='utf-8').splitlines()
        return lines[-1] if lines else ''

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
