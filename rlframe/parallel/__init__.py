"""Parallel mode: a coordinator, collectors and learners in processes of their own, and the run that starts them.

Each worker is a serial collector or learner with a connection to the coordinator; ``coordinator/`` decides what they do,
``transport/`` carries their messages. How a serial worker collects and learns belongs to ``worker``.
"""
