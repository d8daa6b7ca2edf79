"""parallel_pipeline: trains from a config in parallel mode in one call."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from rlframe.errors import ConfigError, RunWarning
from rlframe.pipeline import build
from rlframe.pipeline.ending import nothing_left
from rlframe.pipeline.parallel.pipeline import ParallelPipeline
from rlframe.pipeline.shown import run_shown
from rlframe.pipeline.training import starting_point


def parallel_pipeline(
    input_cfg: str | Path | tuple[Mapping[str, Any], ...] | None,
    seed: int = 0,
    max_train_iter: int | None = None,
    max_env_step: int | None = None,
    overrides: Iterable[str] = (),
    resume_from: str | Path | None = None,
    progress: bool = False,
) -> Any:
    """Trains from a config of parallel mode in one call; the workers are started by this process.

    Args:
        input_cfg: Path of a config file, or main and create config, and DI-engine's system config if there is one;
            None: the config of the resumed run.
        seed: Seed of the experiment; a resumed run keeps its own.
        max_train_iter: Budget in train iterations.
        max_env_step: Budget in env steps.
        overrides: Options such as ``parallel.collector_num=4``.
        resume_from: A run folder or checkpoint to resume from.
        progress: Whether to show what the command line shows.

    Returns:
        The trained policy.

    Raises:
        WorkerLostError: If there is no collector or no learner for too long, or a worker dies again and again.
    """
    since = perf_counter()
    budgets: dict[str, Any] = dict(max_train_iter=max_train_iter, max_env_step=max_env_step)
    start = starting_point(input_cfg, resume_from, seed, parallel=True, overrides=list(overrides), **budgets)
    if start.cfg.get('parallel') is None:
        raise ConfigError(
            'this run is of serial mode', where=str(resume_from), remedy='serial_pipeline continues it.'
        )
    with ParallelPipeline(start.cfg, start.folder, start.saved) as pipeline:
        if progress:
            run_shown(pipeline, start.saved, since=since)
        elif pipeline.complete:
            warnings.warn(nothing_left(pipeline), RunWarning, stacklevel=2)
        else:
            pipeline.run()
        policy = build.make_policy(start.cfg, pipeline.factory.spec)
        if pipeline.record.policy.state is not None:
            policy.learn_mode.load_state_dict(pipeline.record.policy.state)
        return policy
