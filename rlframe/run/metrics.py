"""The metrics of a run as its workers write them, and the files in which they lie."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import time, time_ns
from typing import Any, Protocol

from rlframe.utils.lazy import LazyModule

event_file_writer = LazyModule('tensorboardX.event_file_writer')
event_pb2 = LazyModule('tensorboardX.proto.event_pb2')
summary = LazyModule('tensorboardX.summary')


class EventFile:
    """Appends to a new event file in a folder, which is created if it does not exist.

    Args:
        folder: The folder to pass to ``tensorboard --logdir``.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._writer: Any = event_file_writer.EventsWriter(str(folder / 'events'), f'.{time_ns()}')

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Writes a number."""
        self._write(summary.scalar(tag, value), step)

    def add_histogram(self, tag: str, values: Any, step: int) -> None:
        """Writes a histogram of an array."""
        self._write(summary.histogram(tag, values, 'auto'), step)

    def add_video(self, tag: str, video: Any, step: int, fps: int) -> None:
        """Writes clips, uint8 [N, T, C, H, W]."""
        self._write(summary.video(tag, video, fps), step)

    def _write(self, content: Any, step: int) -> None:
        self._writer.write_event(event_pb2.Event(wall_time=time(), step=step, summary=content))

    def flush(self) -> None:
        """Flushes everything to disk."""
        self._writer.flush()

    def close(self) -> None:
        """Flushes and closes the file."""
        self._writer.close()


METRICS, BOARD = 'metrics.jsonl', 'tensorboard'
CHANGED = 'config/'
"""Start of the tags of options that changed on a resume."""


class ScalarWriter(Protocol):
    """Interface of the ``tb_logger`` of workers: tensorboardX's ``SummaryWriter`` and ``MetricWriter`` implement it."""

    def add_scalar(self, tag: str, value: float, step: int) -> Any:
        """Writes one number."""


def _files(folder: Path) -> list[Path]:
    return [folder / METRICS, *sorted((folder / BOARD).glob('events.*'))]


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
