"""Who decides what the workers do next."""

from rlframe.worker.coordinator.base_serial_commander import BaseSerialCommander

__all__ = ['BaseSerialCommander']
