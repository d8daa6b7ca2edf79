"""Trains with a display: what is trained, its progress, how it ended and what to do next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rlframe.checkpoint import OpenCheckpoint, describe_cost
from rlframe.display.commands import shell_commands
from rlframe.display.lines import last_lines, resume_line, start_lines
from rlframe.display.live import Display
from rlframe.display.saying import count_of, say
from rlframe.display.workers import ParallelDisplay
from rlframe.pipeline import memory_needs
from rlframe.pipeline.ending import nothing_left
from rlframe.pipeline.serial import SerialPipeline

if TYPE_CHECKING:
    from rlframe.pipeline.parallel.pipeline import ParallelPipeline

logger = logging.getLogger('rlframe.pipeline')


def never() -> bool:
    """Returns False: nothing stops the run."""
    return False


def no_commands(pipeline: object, interrupted: bool) -> tuple[str, ...]:
    """Returns nothing: no command can create the parts of this run."""
    return ()


def run_shown(
    pipeline: SerialPipeline | ParallelPipeline,
    saved: OpenCheckpoint | None = None,
    is_stopped: Callable[[], bool] = never,
    *,
    since: float,
    more: str = '',
    commands: Callable[[Any, bool], Iterable[str]] = shell_commands,
) -> None:
    """Trains a run to its end, and shows it.

    Args:
        pipeline: The run.
        saved: The checkpoint that it resumes from, if any.
        is_stopped: Asked all the time; training stops and saves when it returns True.
        since: When the run began, by ``perf_counter``.
        more: Further lines for the start.
        commands: Returns what to do next, given the run and whether it was stopped.
    """
    say(start_lines(pipeline))
    logger.info('%s', resources(pipeline))
    if more:
        say(more)
    if saved is not None:
        say(resume_line(pipeline, saved.path))
    if pipeline.complete:
        say(nothing_left(pipeline))
    elif isinstance(pipeline, SerialPipeline):
        _run_serial(pipeline, is_stopped)
    else:
        _run_parallel(pipeline, is_stopped)
    interrupted = is_stopped()
    lines = [last_lines(pipeline, perf_counter() - since, interrupted), *commands(pipeline, interrupted)]
    say('\n'.join(lines))


def _run_serial(pipeline: SerialPipeline, is_stopped: Callable[[], bool]) -> None:
    with Display(pipeline) as display:

        def interrupted() -> bool:  # asked during evaluations
            display.show()
            return is_stopped()

        pipeline.run(lambda _: interrupted(), interrupted)
    if is_stopped():
        pipeline.checkpoints.save_latest()


def _run_parallel(pipeline: ParallelPipeline, is_stopped: Callable[[], bool]) -> None:
    with ParallelDisplay(pipeline) as display:

        def after_tick(_: ParallelPipeline) -> bool:
            display.show()
            return is_stopped()

        pipeline.run(after_tick)


def resources(pipeline: SerialPipeline | ParallelPipeline) -> str:
    """Returns the memory, checkpoints and threads that a run needs, in words."""
    cfg = pipeline.cfg
    size = memory_needs.buffer_nbytes(cfg, pipeline.factory.spec)
    memory = f'replay buffer {size / 2**20:.1f} MiB' if size else 'no replay buffer'
    saved = describe_cost(size, cfg.checkpoint)
    device, threads = cfg.policy.device, count_of(cfg.num_threads, 'torch thread')
    if isinstance(pipeline, SerialPipeline):
        device = pipeline.policy.get_attribute('device')
    return f'{pipeline.title}; {memory}; {saved}; device {device}, {threads}'
