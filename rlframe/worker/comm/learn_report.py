"""LearnReport: what a learner reports to its coordinator, and the hooks by which a comm learner notices updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

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


class InterruptHook(LearnerHook):
    """Calls ``check`` before each update, which raises an error if training is to end there."""

    position = 'before_iter'
    check: Callable[[], Any]

    def __call__(self, learner: BaseLearner) -> None:
        self.check()


class LearnReport:
    """Collects training variables, metrics and priorities between two reports; acts as a learner's ``tb_logger``."""

    def __init__(self) -> None:
        self._variables: Mapping[str, Any] = {}
        self._metrics: dict[str, float] = {}
        self._priorities: list[Mapping[str, Any]] = []
        self._batches = self._updates = 0

    @property
    def is_empty(self) -> bool:
        """Whether there was neither an update nor a batch since the last report."""
        return not (self._batches or self._updates)

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Keeps a metric for the next report."""
        self._metrics[tag] = float(value)

    def add(self, learner: BaseLearner) -> None:
        """Takes note of an update."""
        self._variables = learner.log_buffer['scalar']
        self._updates += 1

    def count_batch(self, learner: BaseLearner) -> None:
        """Takes note of a used batch, and of its priorities."""
        self._batches += 1
        if learner.priority_info:
            self._priorities.append(learner.priority_info)

    def take(self) -> tuple[int, dict[str, float], dict[str, Any] | None]:
        """Returns and clears the number of batches, the variables and metrics, and the priorities of all batches."""
        values = {**{name: float(value) for name, value in self._variables.items()}, **self._metrics}
        info = {name: value for name, value in values.items() if math.isfinite(value)}
        batches, priorities = self._batches, _joined(self._priorities)
        self._variables, self._metrics, self._priorities, self._batches, self._updates = {}, {}, [], 0, 0
        return batches, info, priorities


def _joined(infos: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Returns the priorities of several batches as those of one; None if there are none."""
    if not infos:
        return None
    return {name: np.concatenate([_array(info[name]) for info in infos]) for name in infos[0]}


def _array(column: Any) -> Any:
    return column.detach().cpu().numpy() if hasattr(column, 'detach') else np.asarray(column)
