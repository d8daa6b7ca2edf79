"""The metrics of a run as its workers write them, and the files in which they lie."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

METRICS, BOARD = 'metrics.jsonl', 'tensorboard'
CHANGED = 'config/'
"""Start of the tags of options that changed on a resume."""


class ScalarWriter(Protocol):
    """Interface of the ``tb_logger`` of workers: tensorboardX's ``SummaryWriter`` and ``MetricWriter`` implement it."""

    def add_scalar(self, tag: str, value: float, step: int) -> Any:
        """Writes one number."""


def _files(folder: Path) -> list[Path]:
    events = (path for path in sorted((folder / BOARD).glob('events.*')) if not path.is_dir())
    return [folder / METRICS, *events]


def sizes_of(folder: Path) -> dict[str, int]:
    """Returns the size of each metric file, in bytes."""
    return {str(path.relative_to(folder)): path.stat().st_size for path in _files(folder)}


def copy_records(source: Path, folder: Path) -> None:
    """Copies the metric files of a run to another run folder."""
    for path in _files(source):
        if path.is_file():
            target = folder / path.relative_to(source)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)


def records(folder: Path, containing: str = '') -> Iterator[dict[str, float]]:
    """Yields the numbers of each record of a run; damaged lines, such as a last one that is cut off, are skipped.

    Args:
        folder: The run folder.
        containing: Text that a line must contain, such as a tag; the others are not parsed.
    """
    path = folder / METRICS
    if not path.is_file():
        return
    with open(path, encoding='utf-8', errors='replace') as file:
        for line in file:
            if containing not in line:
                continue
            try:
                record = json.loads(line)
                if not isinstance(record, dict):
                    continue
                numbers = {
                    name: float(value) for name, value in record.items() if isinstance(value, int | float)
                }
            except (ValueError, RecursionError, OverflowError):  # no JSON, or an int beyond all floats
                continue
            yield numbers


def cut_off(folder: Path, sizes: Mapping[str, Any]) -> int:
    """Truncates the metric files to these sizes, which removes everything written later.

    Returns:
        The number of whole records that were removed from ``metrics.jsonl``.
    """
    removed = 0
    for path in _files(folder):
        size = sizes.get(str(path.relative_to(folder)))
        if size is None:
            path.unlink(missing_ok=True)
        elif path.exists() and path.stat().st_size > size:
            if path.name == METRICS:
                with open(path, 'rb') as file:
                    file.seek(size)
                    removed = sum(line.endswith(b'\n') for line in file)
            os.truncate(path, size)
    return removed


def write_record(writer: ScalarWriter | None, values: Mapping[str, float], step: int, **facts: Any) -> None:
    """Writes a record to a ``MetricWriter``; number by number to any other writer; nowhere if there is none."""
    if writer is None:
        return
    if hasattr(writer, 'write'):
        writer.write(values, step, **facts)
        return
    for tag, value in values.items():
        writer.add_scalar(tag, float(value), step)
