"""What a run leaves on disk, and how its processes live and die.

The run folder and its lock, metrics and loggers, progress, the format of checkpoints, stop signals. What
is saved, and when, is decided by ``pipeline``.
"""
