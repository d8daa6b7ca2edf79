"""Commanders: they set the parameters of the next training round, or decide what the workers of parallel mode do."""

from rlframe.worker.commanders.base_parallel_commander import (
    BaseParallelCommander,
    create_parallel_commander,
)
from rlframe.worker.commanders.base_serial_commander import BaseSerialCommander, create_commander

__all__ = ['BaseParallelCommander', 'BaseSerialCommander', 'create_commander', 'create_parallel_commander']
