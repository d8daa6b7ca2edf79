"""Envs in worker processes, which share memory with the process that trains."""
