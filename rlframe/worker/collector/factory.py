"""From a section of a config to a collector or an evaluator: in this process, or in Ray actors."""

from __future__ import annotations

from typing import Any

from easydict import EasyDict

from rlframe.registry import SERIAL_COLLECTOR_REGISTRY, SERIAL_EVALUATOR_REGISTRY
from rlframe.worker.collector.base_serial_evaluator import ISerialEvaluator
from rlframe.worker.collector.collector_interface import ISerialCollector


def create_serial_collector(cfg: EasyDict, **kwargs: Any) -> ISerialCollector:
    """Builds the collector named by ``cfg.type``. Raises ``RegistryError`` naming the closest registered type.

    With ``cfg.backend='ray'`` it runs in actors: see ``RayCollector.from_config``.
    """
    if cfg.get('backend') == 'ray':
        from rlframe.worker.collector.ray_collector import RayCollector

        return RayCollector.from_config(cfg, **kwargs)
    return SERIAL_COLLECTOR_REGISTRY.build(cfg, cfg=cfg, **kwargs)


def get_serial_collector_cls(cfg: EasyDict) -> type[ISerialCollector]:
    """Returns the collector class named by ``cfg.type``."""
    return SERIAL_COLLECTOR_REGISTRY.get_cls(cfg)


def create_serial_evaluator(cfg: EasyDict, **kwargs: Any) -> ISerialEvaluator:
    """Builds the evaluator named by ``cfg.type``, ``interaction`` where there is none.

    With ``cfg.backend='ray'`` it runs in an actor, and ``env`` is that: see ``RaySerialEvaluator``.
    """
    if cfg.get('backend') == 'ray':
        from rlframe.worker.collector.ray_evaluator import RaySerialEvaluator

        return RaySerialEvaluator(cfg, **kwargs)
    named = {'type': 'interaction', **{name: cfg[name] for name in ('type', 'import_names') if name in cfg}}
    return SERIAL_EVALUATOR_REGISTRY.build(named, cfg=cfg, **kwargs)
