"""Commanders: they set what the next round of training does."""

from rlframe.worker.coordinator.base_serial_commander import BaseSerialCommander, create_commander

__all__ = ['BaseSerialCommander', 'create_commander']
