"""Runs envs in worker processes, which share memory with the training process."""
