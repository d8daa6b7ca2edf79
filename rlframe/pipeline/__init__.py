"""The training loop, the assembly of its parts from a config, and the state of a run.

``serial_pipeline`` trains an experiment; ``SerialPipeline`` is the loop behind it, step by step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlframe.utils.lazy import lazy_exports

if TYPE_CHECKING:
    from rlframe.pipeline.serial import SerialPipeline
    from rlframe.pipeline.training import serial_pipeline

__all__ = ['SerialPipeline', 'serial_pipeline']
__getattr__ = lazy_exports(
    __name__,
    {'SerialPipeline': 'rlframe.pipeline.serial', 'serial_pipeline': 'rlframe.pipeline.training'},
)
