"""The program of a process that trains one of several seeds; see ``seeds``."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

from rlframe.config import split_config
from rlframe.errors import RLFrameError
from rlframe.utils.serialize import from_bytes

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.pipeline.serial import SerialPipeline

MESSAGE = '\x1erlframe '
"""Start of the lines that are messages to the parent; all other lines are the output of envs."""
MESSAGE_SECONDS = 0.5
"""Seconds between two messages."""


def main() -> None:
    """Trains as the config on stdin says, and tells the parent about it; SIGTERM saves the run and ends it.

    Stdin also says whether to resume the newest run of the config.
    """
    stopped: list[int] = []
    cfg, resumes = from_bytes(sys.stdin.buffer.read())
    from rlframe.run.exit_guard import told

    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    try:
        with told(), _pipeline(cfg, resumes) as pipeline:
            messages = Messages(pipeline)

            def is_over(_: Any = None) -> bool:
                messages.send()
                return bool(stopped)

            messages.send(now=True)
            if not pipeline.complete:
                pipeline.run(is_over, is_over)
            if stopped:
                pipeline.checkpoints.save_latest()
            messages.send(now=True, state='interrupted' if stopped else messages.state())
    except RLFrameError as error:
        sys.stderr.write(f'\nrlframe: {type(error).__name__}: {" ".join(str(error).split())}\n')
        sys.exit(error.exit_code)


def _pipeline(cfg: ExperimentConfig, resumes: bool) -> SerialPipeline:
    """Returns a new run of a config, or the newest one, to be resumed; without such a run, a new one."""
    from rlframe.pipeline.resume import newest_run, resume, unbegun_run
    from rlframe.pipeline.serial import SerialPipeline

    start = newest_run(cfg) if resumes else None
    if start is None:
        return SerialPipeline(cfg, unbegun_run(cfg) if resumes else None)
    found = resume(start, split_config(cfg))
    return SerialPipeline(found.cfg, found.folder, resume=found.saved)


class Messages:
    """Sends the progress of a run to the parent.

    Args:
        pipeline: The run.
    """

    def __init__(self, pipeline: SerialPipeline) -> None:
        self._pipeline, self._last = pipeline, -math.inf

    def send(self, now: bool = False, state: str = 'running') -> None:
        """Sends the state, if it is time to."""
        time = monotonic()
        if not now and time - self._last < MESSAGE_SECONDS:
            return
        self._last = time
        pipeline = self._pipeline
        facts = {
            'state': state,
            'folder': str(pipeline.folder),
            'envstep': pipeline.progress.envstep,
            'train_iter': pipeline.progress.train_iter,
            'mean_return': _number(pipeline.collector.mean_return()),
            'score': _number(pipeline.evaluator.score),
        }
        os.write(1, f'\n{MESSAGE}{json.dumps(facts)}\n'.encode())

    def state(self) -> str:
        """Returns the outcome of a run that is over."""
        if self._pipeline.solved:
            return 'solved'
        return 'not solved' if self._pipeline.evaluator.goal else 'done'


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
