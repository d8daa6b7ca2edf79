"""TensorBoardLogger: writes event files, which ``tensorboard --logdir`` shows."""

from __future__ import annotations

from typing import Any

from rlframe.logger.logger import Logger, Record
from rlframe.registry import LOGGER_REGISTRY
from rlframe.run.event_file import EventFile
from rlframe.run.metrics import BOARD


@LOGGER_REGISTRY.register('tensorboard')
class TensorBoardLogger(Logger):
    """Writes event files to the folder tensorboard of the run, for the command tensorboard --logdir RUN."""

    follows_tag_style = True
    _file: EventFile | None = None

    @property
    def file(self) -> EventFile:
        """The event file, made at its first use."""
        if self._file is None:
            self._file = EventFile(self._run.folder / BOARD)
        return self._file

    def write(self, record: Record) -> None:
        file, step = self.file, record.envstep
        for tag, value in record.values.items():
            file.add_scalar(tag, value, step)

    def add_histogram(self, tag: str, values: Any, step: int) -> None:
        self.file.add_histogram(tag, values, step)

    def add_video(self, tag: str, video: Any, step: int, fps: int) -> None:
        self.file.add_video(tag, video, step, fps)

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
