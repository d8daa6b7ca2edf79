"""Files of a run, and the life of its processes.

The run folder and its lock, metrics and loggers, progress, the format of checkpoints, stop signals. What
is saved, and when, is decided by ``pipeline``.
"""
