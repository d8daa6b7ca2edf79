"""Policies, which act in envs and learn from the data; each algorithm is one file, next to its paper.

A policy is built from its config section and the spec of an env, and is used through four faces that each have only the
functions one worker needs. It meets envs, collectors and buffers only as arguments; its networks come from ``model``.
"""

from rlframe.data.faces import CollectMode, CommandMode, EvalMode, LearnMode
from rlframe.policy.base_policy import Policy
from rlframe.policy.creation import create_policy

__all__ = ['CollectMode', 'CommandMode', 'EvalMode', 'LearnMode', 'Policy', 'create_policy']
