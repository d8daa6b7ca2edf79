"""serial_pipeline: trains from a config in one call."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from rlframe import config
from rlframe.errors import RunWarning
from rlframe.pipeline.ending import nothing_left
from rlframe.pipeline.resume import resume
from rlframe.pipeline.serial import SerialPipeline
from rlframe.pipeline.shown import no_commands, run_shown

if TYPE_CHECKING:
    from rlframe.checkpoint import OpenCheckpoint
    from rlframe.config.sections import ExperimentConfig


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
    start = starting_point(input_cfg, resume_from, seed, overrides=list(overrides), **budgets)
    config.warn_of_own_parts(start.cfg, model)
    with SerialPipeline(start.cfg, start.folder, model, start.saved) as pipeline:
        if progress:
            shown: dict[str, Any] = {} if model is None else {'commands': no_commands}
            run_shown(pipeline, start.saved, since=since, **shown)
        elif pipeline.complete:
            warnings.warn(nothing_left(pipeline), RunWarning, stacklevel=2)
        else:
            pipeline.run()
        return pipeline.policy


class StartingPoint(NamedTuple):
    """What a run begins or resumes with."""

    cfg: ExperimentConfig
    """The compiled config."""
    folder: Path | None
    """The run folder; None: a new one."""
    saved: OpenCheckpoint | None
    """The checkpoint; None: it begins."""


def starting_point(
    input_cfg: Any, resume_from: str | Path | None, seed: int, parallel: bool = False, **given: Any
) -> StartingPoint:
    """Returns what a run begins with.

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
        return StartingPoint(cfg, None, None)
    found = resume(resume_from, None if input_cfg is None else config.config_pair(input_cfg), **given)
    return StartingPoint(found.cfg, found.folder, found.saved)
