"""serial_pipeline: trains from a config in one call."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlframe import config
from rlframe.errors import RunWarning
from rlframe.pipeline.ending import nothing_left
from rlframe.pipeline.resume import resume
from rlframe.pipeline.serial import SerialPipeline


def serial_pipeline(
    input_cfg: str | Path | tuple[Mapping[str, Any], Mapping[str, Any]] | None,
    seed: int = 0,
    model: Any = None,
    max_train_iter: int | None = None,
    max_env_step: int | None = None,
    overrides: Iterable[str] = (),
    resume_from: str | Path | None = None,
) -> Any:
    """Trains from a config, without a display.

    Args:
        input_cfg: Path of a config file, or a pair of main and create config; None: the config of the resumed run.
        seed: Seed of the experiment; a resumed run keeps its own.
        model: A network that replaces the one named in the config.
        max_train_iter: Budget in train iterations.
        max_env_step: Budget in env steps.
        overrides: Options such as ``policy.learn.batch_size=128``.
        resume_from: A run folder or checkpoint to resume from.

    Returns:
        The trained policy.
    """
    given: Any = dict(max_train_iter=max_train_iter, max_env_step=max_env_step, overrides=list(overrides))
    if resume_from is None:
        pair = config.config_pair(input_cfg)
        cfg, folder, start = config.compile_config(*pair, seed=seed, **given), None, None
    else:
        found = resume(resume_from, None if input_cfg is None else config.config_pair(input_cfg), **given)
        cfg, folder, start = found.cfg, found.folder, found.saved
    config.warn_of_own_parts(cfg, model)
    with SerialPipeline(cfg, folder, model, start) as pipeline:
        if pipeline.complete:
            warnings.warn(nothing_left(pipeline), RunWarning, stacklevel=2)
        else:
            pipeline.run()
        return pipeline.policy
