"""MetricWriter: writes one record per line to ``metrics.jsonl``, the reference, and the same numbers to TensorBoard."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import Any, Protocol

from rlframe.run.event_file import EventFile
from rlframe.safety.secrets import Secrets

METRICS, BOARD = 'metrics.jsonl', 'tensorboard'

DI_NAMES = {
    'rollout/ep_rew_mean': 'collector_step/reward_mean',
    'time/fps': 'collector_step/avg_envstep_per_sec',
    'eval/mean_reward': 'evaluator_step/eval_episode_return_mean',
    'train/total_loss': 'learner_step/total_loss_avg',
    'train/learning_rate': 'learner_step/cur_lr_avg',
}
"""Maps rlframe's tags to those of DI-engine; other tags keep their name."""


class ScalarWriter(Protocol):
    """Interface of the ``tb_logger`` of workers: tensorboardX's ``SummaryWriter`` and ``MetricWriter`` implement it."""

    def add_scalar(self, tag: str, value: float, step: int) -> Any:
        """Writes one number."""


class MetricWriter:
    """Writes records of numbers to a run folder.

    Args:
        folder: Run folder; ``metrics.jsonl`` and ``tensorboard/`` are written there.
        tag_style: ``sb3`` or ``di``: how TensorBoard's tags are named. The file always uses rlframe's own names.
        sizes: Result of ``state_dict()`` at the checkpoint of a resumed run: later output is cut off.
        secrets: Values that are never written, in tags and facts.
    """

    def __init__(
        self,
        folder: Path,
        tag_style: str = 'sb3',
        sizes: Mapping[str, int] | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self._folder, self._secrets = folder, secrets or Secrets()
        if sizes is not None:
            cut_off(folder, sizes)
        self._file = open(folder / METRICS, 'a', encoding='utf-8', buffering=1)  # noqa: SIM115  closed by close()
        self._board: EventFile | None = None
        self._names = DI_NAMES if tag_style == 'di' else {}

    @property
    def board(self) -> EventFile:
        """The TensorBoard file, made at its first use."""
        if self._board is None:
            self._board = EventFile(self._folder / BOARD)
        return self._board

    def write(self, values: Mapping[str, float], step: int, **facts: Any) -> None:
        """Writes one record: a line of the file, and each number to TensorBoard at ``step`` (env steps)."""
        numbers = {tag: float(value) for tag, value in values.items()}
        line = {
            'envstep': step,
            **facts,
            **{tag: v if math.isfinite(v) else None for tag, v in numbers.items()},
        }
        self._file.write(self._secrets.scrub(json.dumps({**line, 'time': round(time(), 3)})) + '\n')
        for tag, value in numbers.items():
            self.board.add_scalar(self._secrets.scrub(self._names.get(tag, tag)), value, step)

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Writes a record of one number."""
        self.write({tag: value}, step)

    def add_histogram(self, tag: str, values: Any, step: int) -> None:
        """Writes a histogram to TensorBoard."""
        self.board.add_histogram(self._secrets.scrub(tag), values, step)

    def add_video(self, tag: str, video: Any, step: int, fps: int = 30) -> None:
        """Writes clips, uint8 [N, T, C, H, W], to TensorBoard."""
        self.board.add_video(self._secrets.scrub(tag), video, step, fps)

    def state_dict(self) -> dict[str, int]:
        """Returns the size of each file, in bytes, after flushing all records."""
        self.flush()
        return {str(path.relative_to(self._folder)): path.stat().st_size for path in _files(self._folder)}

    def last_record(self) -> str:
        """Returns the last line of the file, empty if there is none."""
        self._file.flush()
        lines = (self._folder / METRICS).read_text(encoding='utf-8').splitlines()
        return lines[-1] if lines else ''

    def flush(self) -> None:
        """Flushes all records to disk."""
        self._file.flush()
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        """Closes the files; may be called twice."""
        self._file.close()
        if self._board is not None:
            self._board.close()
            self._board = None


def _files(folder: Path) -> list[Path]:
    return [folder / METRICS, *sorted((folder / BOARD).glob('events.*'))]


def copy_records(source: Path, folder: Path) -> None:
    """Copies the output of a ``MetricWriter`` to another run folder."""
    for path in _files(source):
        if path.is_file():
            target = folder / path.relative_to(source)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)


def cut_off(folder: Path, sizes: Mapping[str, int]) -> None:
    """Truncates the metric files to these sizes, which removes everything written later."""
    for path in _files(folder):
        size = sizes.get(str(path.relative_to(folder)))
        if size is None:
            path.unlink(missing_ok=True)
        elif path.exists() and path.stat().st_size > size:
            os.truncate(path, size)


def write_record(writer: ScalarWriter | None, values: Mapping[str, float], step: int, **facts: Any) -> None:
    """Writes a record to a ``MetricWriter``; number by number to any other writer; nowhere if there is none."""
    if writer is None:
        return
    if hasattr(writer, 'write'):
        writer.write(values, step, **facts)
        return
    for tag, value in values.items():
        writer.add_scalar(tag, float(value), step)
