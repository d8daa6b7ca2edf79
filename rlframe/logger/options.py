"""The option ``loggers`` of a config."""

from __future__ import annotations

from typing import Any

from rlframe.registry import LOGGER_REGISTRY
from rlframe.utils.component_list import ComponentList

LOGGERS = ComponentList(
    ['tensorboard'],
    type=list,
    doc='where metrics are written, besides metrics.jsonl; see docs/logging.md',
    may_change=True,
    reaches='network',
    registry=LOGGER_REGISTRY,
)
"""The option ``loggers`` of a config."""


def check_loggers(loggers: Any) -> None:
    """Checks that all loggers of a config can work here.

    Args:
        loggers: Value of the option ``loggers``.

    Raises:
        RLFrameError: If one of them cannot; before anything is written.
    """
    for _, cls, options in LOGGERS.classes(loggers):
        cls.check(cls.resolve_config(options))
