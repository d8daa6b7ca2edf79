"""The hooks by which a learner passes its weights and results to a comm learner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlframe.worker.learner.base_learner import BaseLearner
from rlframe.worker.learner.learner_hook import LearnerHook


class SendPolicyHook(LearnerHook):
    """Calls ``send`` with the learner before the run, or every ``send_policy_freq`` train iterations."""

    position = 'after_iter'
    send: Callable[[BaseLearner], Any]
    send_policy_freq = 1

    def __call__(self, learner: BaseLearner) -> None:
        if self.position != 'after_iter' or learner.train_iter % self.send_policy_freq == 0:
            self.send(learner)


class SendLearnInfoHook(LearnerHook):
    """Calls ``send`` with the learner after the run, or every ``freq`` train iterations."""

    position = 'after_iter'
    send: Callable[[BaseLearner], Any]
    freq = 1

    def __call__(self, learner: BaseLearner) -> None:
        if self.position != 'after_iter' or learner.train_iter % self.freq == 0:
            self.send(learner)
