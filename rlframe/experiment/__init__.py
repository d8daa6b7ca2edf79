"""Experiments: whole runs, above the pipeline and below the command line.

``starting`` makes a config for an env that nobody has tuned, ``seeds`` trains several seeds, ``scoring`` scores checkpoints, and
``training`` and ``run`` are the Python API: ``rlframe.train`` returns a ``Run``.
"""
