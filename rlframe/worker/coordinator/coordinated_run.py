"""CoordinatedRun: what a coordinator asks and tells the run that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.run.progress import Progress
from rlframe.transport.messages import Collected
from rlframe.worker.coordinator.weights_store import Version


class CoordinatedRun:
    """A run without a budget, which writes nothing; a subclass does."""

    def is_spent(self, progress: Progress, updates_due: int) -> bool:
        """Returns whether a budget is spent, if the due updates are made, too."""
        return False

    def collected(self, message: Collected, progress: Progress) -> None:
        """Takes the facts that a collector sent with its data."""

    def learned(self, info: Mapping[str, float], progress: Progress) -> None:
        """Takes the training variables and metrics of a learner."""

    def evaluated(self, facts: Mapping[str, Any], weights: Version | None, is_best: bool) -> None:
        """Takes the result of an evaluation and the evaluated weights."""

    def take_state(self, state: Any, train_iter: int) -> None:
        """Takes the whole state of the learner, for a checkpoint."""
