"""serial_pipeline: trains from a config in one call, with or without a display."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rlframe import config
from rlframe.display.live import Display, last_lines, resume_lines, start_lines
from rlframe.display.text import say, shell_commands
from rlframe.display.workers import ParallelDisplay
from rlframe.errors import RunWarning
from rlframe.pipeline.resume import resume
from rlframe.pipeline.run_output import nothing_left
from rlframe.pipeline.serial import SerialPipeline
from rlframe.run.exit_guard import readers_may_leave
from rlframe.run.read_checkpoint import OpenCheckpoint

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.parallel.pipeline import ParallelPipeline


@readers_may_leave()
def run_shown(
    pipeline: SerialPipeline | ParallelPipeline,
    saved: OpenCheckpoint | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
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
    if more:
        say(more)
    if saved is not None:
        say(resume_lines(pipeline, saved))
    if pipeline.complete:
        say(nothing_left(pipeline))
    else:
        kind = Display if isinstance(pipeline, SerialPipeline) else ParallelDisplay
        with kind(pipeline) as display:
            run_until(pipeline, is_stopped, display.show)
    interrupted = is_stopped()
    lines = [last_lines(pipeline, perf_counter() - since, interrupted), *commands(pipeline, interrupted)]
    say('\n'.join(lines))


def run_until(
    pipeline: SerialPipeline | ParallelPipeline,
    is_stopped: Callable[[], bool],
    show: Callable[[], object] = lambda: None,
) -> None:
    """Trains a run to its end, or until it is stopped: then it is saved.

    Args:
        pipeline: The run.
        is_stopped: Asked all the time, also during evaluations; training stops when it returns True.
        show: Called all the time.
    """

    def interrupted(_: object = None) -> bool:
        show()
        return is_stopped()

    if not isinstance(pipeline, SerialPipeline):
        pipeline.run(interrupted)
        return
    pipeline.run(interrupted, interrupted)
    if is_stopped():
        pipeline.checkpoints.save_latest()


def serial_pipeline(
    input_cfg: str | Path | tuple[Mapping[str, Any], Mapping[str, Any]] | None,
    seed: int = 0,
    model: Any = None,
    max_train_iter: int | None = None,
    max_env_step: int | None = None,
    overrides: Iterable[str] = (),
    resume_from: str | Path | None = None,
    progress: bool = False,
) -> Any:
    """Trains from a config in one call.

    Args:
        input_cfg: Path of a config file, or a pair of main and create config; None: the config of the resumed run.
        seed: Seed of the experiment; a resumed run keeps its own.
        model: A network that replaces the one named in the config.
        max_train_iter: Budget in train iterations.
        max_env_step: Budget in env steps.
        overrides: Options such as ``policy.learn.batch_size=128``.
        resume_from: A run folder or checkpoint to resume from.
        progress: Whether to show what the command line shows.

    Returns:
        The trained policy.
    """
    since = perf_counter()
    budgets: dict[str, Any] = dict(max_train_iter=max_train_iter, max_env_step=max_env_step)
    cfg, folder, saved = starting_point(input_cfg, resume_from, seed, overrides=list(overrides), **budgets)
    config.warn_of_own_parts(cfg, model)
    with SerialPipeline(cfg, folder, model, saved) as pipeline:
        if progress:
            # no command can create the network of this program
            shown: dict[str, Any] = {} if model is None else {'commands': lambda *_: ()}
            run_shown(pipeline, saved, since=since, **shown)
        elif pipeline.complete:
            warnings.warn(nothing_left(pipeline), RunWarning, stacklevel=2)
        else:
            pipeline.run()
        return pipeline.policy


def starting_point(
    input_cfg: Any, resume_from: str | Path | None, seed: int, parallel: bool = False, **given: Any
) -> tuple[ExperimentConfig, Path | None, OpenCheckpoint | None]:
    """Returns the config of a run, its folder (None: a new one), and the checkpoint that it resumes from, if any.

    Args:
        input_cfg: A config, as for ``serial_pipeline``.
        resume_from: A run folder or checkpoint to resume from, or None.
        seed: Seed of a new run.
        parallel: Whether a new run is one of parallel mode.
        given: Budgets and overrides.
    """
    if resume_from is None:
        pair = config.config_pair(input_cfg)
        cfg = config.compile_config(pair[0], pair[1], seed=seed, parallel=parallel, **given)
        return cfg, None, None
    found = resume(resume_from, None if input_cfg is None else config.config_pair(input_cfg), **given)
    return found.cfg, found.folder, found.saved
