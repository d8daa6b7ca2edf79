"""Creates the workers of parallel mode by their registered names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.registry import (
    COMM_COLLECTOR_REGISTRY,
    COMM_LEARNER_REGISTRY,
    PARALLEL_COLLECTOR_REGISTRY,
    with_type,
)
from rlframe.worker.comm.comm_interface import BaseCommCollector, BaseCommLearner
from rlframe.worker.parallel.base_parallel_collector import BaseParallelCollector


def create_parallel_collector(cfg: Mapping[str, Any], **kwargs: Any) -> BaseParallelCollector:
    """Builds the parallel collector named by ``cfg.type``, by default ``zergling``.

    Args:
        cfg: Its options.
        kwargs: Further arguments of its constructor, such as ``make_collector``.

    Raises:
        RegistryError: If no parallel collector has that name; the closest one is named.
    """
    named = {'type': 'zergling', **{name: cfg[name] for name in ('type', 'import_names') if name in cfg}}
    return PARALLEL_COLLECTOR_REGISTRY.build(named, cfg, **kwargs)


def get_parallel_collector_cls(cfg: Mapping[str, Any]) -> type[BaseParallelCollector]:
    """Returns the class named by ``cfg.type``."""
    return PARALLEL_COLLECTOR_REGISTRY.get_cls(cfg)


def create_comm_collector(cfg: Mapping[str, Any], **kwargs: Any) -> BaseCommCollector:
    """Builds the comm collector named by ``cfg.type`` or, as in DI-engine, ``cfg.comm_collector_type``.

    Args:
        cfg: Its options.
        kwargs: Further arguments of its constructor, such as ``collector`` and ``transport``.

    Raises:
        RegistryError: If no comm collector has that name; the closest one is named.
    """
    cfg = with_type(cfg, 'comm_collector_type')
    return COMM_COLLECTOR_REGISTRY.build(cfg, cfg, **kwargs)


def create_comm_learner(cfg: Mapping[str, Any], **kwargs: Any) -> BaseCommLearner:
    """Builds the comm learner named by ``cfg.type`` or, as in DI-engine, ``cfg.comm_learner_type``.

    Args:
        cfg: Its options.
        kwargs: Further arguments of its constructor, such as ``make_learner`` and ``transport``.

    Raises:
        RegistryError: If no comm learner has that name; the closest one is named.
    """
    cfg = with_type(cfg, 'comm_learner_type')
    return COMM_LEARNER_REGISTRY.build(cfg, cfg, **kwargs)
