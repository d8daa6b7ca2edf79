"""ScoreBoard: the scores of a parallel run, as the displays and rules of every run read them."""

from __future__ import annotations

import math

from rlframe.scores import reaches
from rlframe.worker.commanders.base_parallel_commander import BaseParallelCommander


class ScoreBoard:
    """The scores that a commander knows.

    Args:
        commander: The commander.
    """

    scores_returns = True
    """Whether scores are mean returns of episodes."""
    pending = 0
    """Number of requested evaluations without a result."""

    def __init__(self, commander: BaseParallelCommander) -> None:
        self._commander = commander

    @property
    def best(self) -> float:
        """Highest score so far."""
        return float(getattr(self._commander, 'best', -math.inf))

    @property
    def latest(self) -> float:
        """Score of the last evaluation; NaN before the first."""
        return float(getattr(self._commander, 'latest', math.nan))

    @property
    def stop_value(self) -> float | None:
        """Score that ends training, or None."""
        return self._commander.stop_value

    def reached(self, score: float) -> bool:
        """Whether a score reaches ``stop_value``."""
        return self.stop_value is not None and reaches(score, self.stop_value)

    def describe(self, score: float) -> str:
        """Returns a score as text; empty if there is none."""
        return self._commander.describe(score)

    @property
    def goal(self) -> str:
        """What ends training, in words; empty if only a budget does."""
        return self._commander.goal
