"""MetricWriter: one record a line in ``metrics.jsonl``, which is the truth, and the same numbers in TensorBoard."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import Any, Protocol

from rlframe.utils.lazy import LazyModule

tensorboardX = LazyModule('tensorboardX')  # noqa: N816  the package's own name

DI_NAMES = {
    'rollout/ep_rew_mean': 'collector_step/reward_mean',
    'time/fps': 'collector_step/avg_envstep_per_sec',
    'eval/mean_reward': 'evaluator_step/eval_episode_return_mean',
    'train/total_loss': 'learner_step/total_loss_avg',
    'train/learning_rate': 'learner_step/cur_lr_avg',
}
"""rlframe's tags and what DI-engine calls them; others keep their name."""


class ScalarWriter(Protocol):
    """What a worker needs of a ``tb_logger``: tensorboardX's ``SummaryWriter`` has it, and ``MetricWriter``."""

    def add_scalar(self, tag: str, value: float, step: int) -> Any:
        """Writes one number."""


class MetricWriter:
    """Writes records of numbers to a run folder.

    Args:
        folder: Run folder; ``metrics.jsonl`` and ``tensorboard/`` are written there.
        tag_style: ``sb3`` or ``di``: how TensorBoard's tags are named. The file always has rlframe's own names.
        purge_step: First step to write anew after a resume.
    """

    def __init__(self, folder: Path, tag_style: str = 'sb3', purge_step: int | None = None) -> None:
        self._file = open(folder / 'metrics.jsonl', 'a', encoding='utf-8', buffering=1)  # noqa: SIM115  closed by close()
        self._board: Any = None
        self._board_args = {'logdir': str(folder / 'tensorboard'), 'purge_step': purge_step}
        self._names = DI_NAMES if tag_style == 'di' else {}

    @property
    def board(self) -> Any:
        """The TensorBoard writer, made at its first use."""
        if self._board is None:
            self._board = tensorboardX.SummaryWriter(**self._board_args)
        return self._board

    def write(self, values: Mapping[str, float], step: int, **facts: Any) -> None:
        """Writes one record: a line of the file, and each number to TensorBoard at ``step`` (env steps)."""
        numbers = {tag: float(value) for tag, value in values.items()}
        line = {
            'envstep': step,
            **facts,
            **{tag: v if math.isfinite(v) else None for tag, v in numbers.items()},
        }
        self._file.write(json.dumps({**line, 'time': round(time(), 3)}) + '\n')
        for tag, value in numbers.items():
            self.board.add_scalar(self._names.get(tag, tag), value, step)

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Writes a record of one number."""
        self.write({tag: value}, step)

    def add_histogram(self, tag: str, values: Any, step: int) -> None:
        """Writes a histogram to TensorBoard."""
        self.board.add_histogram(tag, values, step)

    def add_video(self, tag: str, video: Any, step: int, fps: int = 30) -> None:
        """Writes clips, uint8 [N, T, C, H, W], to TensorBoard."""
        self.board.add_video(tag, video, step, fps)

    def flush(self) -> None:
        """Makes sure that all records are on disk."""
        self._file.flush()
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        """Closes the files; may be called twice."""
        self._file.close()
        if self._board is not None:
            self._board.close()
            self._board = None


def write_record(writer: ScalarWriter | None, values: Mapping[str, float], step: int, **facts: Any) -> None:
    """Writes a record to a ``MetricWriter``, number by number to any other writer, or nowhere."""
    if writer is None:
        return
    if hasattr(writer, 'write'):
        writer.write(values, step, **facts)
        return
    for tag, value in values.items():
        writer.add_scalar(tag, float(value), step)
