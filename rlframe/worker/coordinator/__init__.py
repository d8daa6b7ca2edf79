"""Commanders: they set the parameters of the next training round."""

from rlframe.worker.coordinator.base_serial_commander import BaseSerialCommander, create_commander

__all__ = ['BaseSerialCommander', 'create_commander']
