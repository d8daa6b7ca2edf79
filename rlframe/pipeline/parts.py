"""Parts of a run whose states make up a checkpoint, apart from the workers themselves."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rlframe.errors import BufferUnderflowError
from rlframe.utils import schema
from rlframe.utils.seed import global_rng_state, set_global_rng_state

if TYPE_CHECKING:
    from rlframe.worker import BaseLearner, ISerialCollector

logger = logging.getLogger('rlframe.checkpoint')

State = Mapping[str, Any]

ROUND: schema.Schema = {
    'warm': schema.FLAG,
    'evaluated_at': schema.INT,
    'idle_rounds': schema.COUNT,
    'stopped': schema.FLAG,
    'past_goal?': schema.FLAG,
}
"""State of a ``LoopState``."""


class Stateful(Protocol):
    """A part of a run that is saved in checkpoints: a worker, or any other object with these two methods."""

    def state_dict(self) -> State:
        """Returns everything that the part needs to continue, as plain values, arrays and tensors."""

    def load_state_dict(self, state: Any, /) -> object:
        """Continues from ``state_dict()``."""


class Inexactness:
    """Collects the reasons why a run may differ from one with the same seed that was never interrupted."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        """The reasons; empty if it cannot differ."""

    def note(self, reason: str) -> None:
        """Adds a reason and warns of it once; '' is no reason."""
        if reason and reason not in self.reasons:
            self.reasons.append(reason)
            logger.warning('this run cannot be repeated or resumed bit for bit: %s', reason)


class CollectorPart:
    """A collector, which may continue from the state that a collector of another backend saved.

    Args:
        collector: The collector.
        convert: Converts a saved state to the collector's backend.
        note: Receives a reason for each env whose state could not be restored.
    """

    def __init__(
        self, collector: ISerialCollector, convert: Callable[[State], State], note: Callable[[str], None]
    ) -> None:
        self._collector, self._convert, self._note = collector, convert, note

    def state_dict(self) -> State:
        """Returns the state of the collector."""
        return self._collector.state_dict()

    def load_state_dict(self, state: State, /) -> None:
        """Restores the collector."""
        self._collector.load_state_dict(self._convert(state))
        for env, why in self._collector.unsaved.items():
            self._note(f'the state of env {env} could not be restored: {why}')


class MonitorPart:
    """The training variables that a learner has not shown yet; a learner gets a new monitor with another policy.

    Args:
        learner: The learner.
    """

    def __init__(self, learner: BaseLearner) -> None:
        self._learner = learner

    def state_dict(self) -> State:
        """Returns the state of the current monitor."""
        return self._learner.monitor.state_dict()

    def load_state_dict(self, state: State, /) -> None:
        """Restores the current monitor."""
        self._learner.monitor.load_state_dict(state)


class GlobalRng:
    """The global random generators of Python, numpy and torch."""

    def state_dict(self) -> State:
        """Returns the state of all three."""
        return global_rng_state()

    def load_state_dict(self, state: State, /) -> None:
        """Restores all three."""
        set_global_rng_state(state)


@dataclasses.dataclass
class LoopState:
    """State of the training loop itself between two rounds."""

    warm: bool = False
    """Whether the replay buffer has been filled at random, if that was requested."""
    evaluated_at: int = -1
    """Train iterations at the last evaluation."""
    idle_rounds: int = 0
    """Rounds in a row without enough data for an update."""
    stopped: bool = False
    """Whether an evaluation reached the stop value, so that training ended."""
    past_goal: bool = False
    """Whether a solved run continues until a budget is spent."""

    def idle(self, held: int, needed: int, most: int) -> None:
        """Counts a round without an update.

        Args:
            held: Transitions in the replay buffer.
            needed: Transitions that an update needs.
            most: Such rounds in a row that are allowed.

        Raises:
            BufferUnderflowError: If there were more.
        """
        self.idle_rounds += 1
        if self.idle_rounds > most:
            raise BufferUnderflowError(
                f'after {most} rounds the replay buffer still holds {held} of the {needed} transitions that an update needs',
                remedy='Raise policy.random_collect_size or policy.collect.n_sample, or lower policy.learn.batch_size.',
            )

    def state_dict(self) -> State:
        """Returns all fields; ``past_goal`` only if it is set."""
        state = dataclasses.asdict(self)
        if not self.past_goal:
            del state['past_goal']
        return state

    def load_state_dict(self, state: State, /) -> None:
        """Restores all fields."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, state.get(field.name, field.default))


class HasGoal:
    """A run that may end because an evaluation reached its goal."""

    loop: LoopState
    """State of its loop."""

    @property
    def stopped(self) -> bool:
        """Whether training ended because an evaluation reached the stop value."""
        return self.loop.stopped

    @property
    def past_goal(self) -> bool:
        """Whether a solved run continues until a budget is spent."""
        return self.loop.past_goal

    @property
    def solved(self) -> bool:
        """Whether an evaluation reached the stop value."""
        return self.stopped or self.past_goal
