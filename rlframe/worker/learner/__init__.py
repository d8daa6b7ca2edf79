"""Learning: the learner that updates a policy, and the hooks that run around each update.

A learner does not know the source of its data or what else is saved with it. Hooks use only its public attributes and
methods.
"""

from rlframe.worker.learner.base_learner import BaseLearner, create_learner
from rlframe.worker.learner.learner_hook import (
    LearnerHook,
    add_learner_hook,
    build_learner_hook_by_cfg,
    merge_hooks,
    register_learner_hook,
)

__all__ = [
    'BaseLearner',
    'LearnerHook',
    'add_learner_hook',
    'build_learner_hook_by_cfg',
    'create_learner',
    'merge_hooks',
    'register_learner_hook',
]
