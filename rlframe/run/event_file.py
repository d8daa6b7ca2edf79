"""Writes TensorBoard event files at once; tensorboardX queues events for a thread, so a killed run loses them."""

from __future__ import annotations

from pathlib import Path
from time import time, time_ns
from typing import Any

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
