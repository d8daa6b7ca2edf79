"""The types of a learner's options."""

from __future__ import annotations

from typing import Any

from rlframe.utils.resolved_config import ResolvedConfig


class LoaderConfig(ResolvedConfig):
    """Section ``dataloader`` of a learner."""

    num_workers: int


class LearnerConfig(ResolvedConfig):
    """Options of ``BaseLearner``."""

    train_iterations: int
    dataloader: LoaderConfig
    log_policy: bool
    is_multitask_pipeline: bool
    only_monitor_rank0: bool
    hook: dict[str, Any]
