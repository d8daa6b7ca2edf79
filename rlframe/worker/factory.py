"""Creates a collector or an evaluator in this process from a config section; for others see ``rlframe.backend``."""

from __future__ import annotations

from typing import Any

from easydict import EasyDict

from rlframe.errors import ConfigError
from rlframe.option_names import named
from rlframe.registry import SERIAL_COLLECTOR_REGISTRY, SERIAL_EVALUATOR_REGISTRY
from rlframe.utils.field import ResolvedConfig
from rlframe.worker.collector.base_serial_collector import ISerialCollector
from rlframe.worker.evaluator.base_serial_evaluator import ISerialEvaluator


def create_serial_collector(cfg: EasyDict | str, **kwargs: Any) -> ISerialCollector:
    """Builds the collector named by ``cfg.type``, or by ``cfg`` with its options among the arguments.

    It collects in this process. Other backends are for ``rlframe.pipeline`` and, from Python, ``RayCollector``.

    Raises:
        ConfigError: If the config names another backend than ``'local'``.
    """
    cfg, kwargs = named(SERIAL_COLLECTOR_REGISTRY, cfg, kwargs)
    return SERIAL_COLLECTOR_REGISTRY.build(cfg, cfg=_local(cfg, 'policy.collect.collector'), **kwargs)


def get_serial_collector_cls(cfg: EasyDict | str) -> type[ISerialCollector]:
    """Returns the collector class named by ``cfg.type``, or by ``cfg``."""
    return SERIAL_COLLECTOR_REGISTRY.get_cls(cfg)


def create_serial_evaluator(cfg: EasyDict | str, **kwargs: Any) -> ISerialEvaluator:
    """Builds the evaluator named by ``cfg.type``, by default ``interaction``; it evaluates in this process.

    ``cfg`` may be the name alone, with its options among the arguments.

    Raises:
        ConfigError: If the config names another backend than ``'local'``.
    """
    cfg, kwargs = named(SERIAL_EVALUATOR_REGISTRY, cfg, kwargs)
    which = {'type': 'interaction', **{name: cfg[name] for name in ('type', 'import_names') if name in cfg}}
    return SERIAL_EVALUATOR_REGISTRY.build(which, cfg=_local(cfg, 'policy.eval.evaluator'), **kwargs)


def _local(cfg: EasyDict, section: str) -> Any:
    """Returns a section without the choice of a backend, which is no option of a collector or an evaluator."""
    backend = cfg.get('backend', 'local')
    if backend != 'local':
        raise ConfigError(
            'this function creates what runs in this process',
            where=f'{section}.backend',
            got=backend,
            expected="'local'",
            remedy='serial_pipeline(config) uses the backend that the config names.',
        )
    is_compiled = isinstance(cfg, ResolvedConfig)
    return cfg if is_compiled else {name: value for name, value in cfg.items() if name != 'backend'}
