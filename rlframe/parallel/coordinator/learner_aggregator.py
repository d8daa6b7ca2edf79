"""LearnerAggregator: lets several learners of a coordinator train one policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.timestep import Batch
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import AVERAGED, batches_of, joined, split
from rlframe.run.machine import usable_cores
from rlframe.utils.field import Configurable, Section, option

OF_THE_FIRST = ('learner_step', 'train_iter', 'learner_done', 'buffer_id', 'task_id')
"""Entries of a report that are those of the first learner."""


class AggregatorConfig(Section):
    """Options of ``LearnerAggregator``."""

    learner_num: int = option(
        1, range='[1, inf)', unit='learners', doc='number of learners to wait for before training begins'
    )
    start_timeout: float = option(
        60.0,
        range='[0, inf)',
        unit='seconds',
        doc='longest wait for all learners; then training begins with those that are there',
        may_change=True,
    )


class Share(NamedTuple):
    """What a learner trains on in a round."""

    data: Any
    rows: int
    """Its size, over all batches."""


def shares_of(data: Any, count: int, learners: int) -> list[Share]:
    """Divides the rows of each batch evenly: every learner gets as many batches, of fewer rows.

    Args:
        data: A payload of training data, without extras.
        count: Number of batches in it.
        learners: Number of learners. If a batch has fewer rows, as many learners get none.

    Returns:
        The shares of the learners that get one. The share of a single learner is the payload itself.
    """
    batches = batches_of(data, count)
    learners = min(learners, *(len(batch) for batch in batches)) if learners > 1 else 1
    if learners <= 1:
        return [Share(data, sum(len(batch) for batch in batches))]
    shares = []
    for first in range(learners):
        parts = [batch[first::learners] for batch in batches]
        several = parts if isinstance(data, list) else Batch.cat(parts)
        shares.append(Share(several if len(parts) > 1 else parts[0], sum(len(part) for part in parts)))
    return shares


def average(trees: Sequence[Any], shares: Sequence[float]) -> Any:
    """Returns the weighted mean of each tensor of floating-point numbers; all else is that of the first tree.

    Args:
        trees: Trees of the same structure; a single one is returned itself.
        shares: Weight of each tree; they add up to 1.
    """
    first = trees[0]
    if len(trees) == 1:
        return first
    if isinstance(first, Mapping):
        return {name: average([tree[name] for tree in trees], shares) for name in first}
    if not (hasattr(first, 'is_floating_point') and first.is_floating_point()):
        return first
    total = sum(share * tree.detach().double() for share, tree in zip(shares, trees, strict=True))
    return total.to(first.dtype)


def _merged(values: Sequence[Any]) -> Any:
    """Returns the mean of numbers, lists or arrays one after the other, and the first of anything else."""
    first = values[0]
    if isinstance(first, list | tuple):
        return [item for value in values for item in value]
    if isinstance(first, np.ndarray) and first.ndim:
        return np.concatenate(values)
    if isinstance(first, bool) or not isinstance(first, int | float | np.number):
        return first
    return first if len(values) == 1 else float(np.mean(values))


@dataclasses.dataclass(eq=False)
class Member:
    """A learner of a task, and what it did in the current round."""

    weights: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What it published last."""
    train_iter: int = 0
    share: Share | None = None
    """What it trains on; None if it does not take part in the round."""
    is_given: bool = False
    """Whether it has got its share."""
    batches: int = 0
    """Batches that it used in this round."""
    info: dict[str, float] = dataclasses.field(default_factory=dict)
    priorities: list[Any] = dataclasses.field(default_factory=list)
    has_finished: bool = False
    """Whether it has completed the task."""

    def begin_round(self, share: Share | None) -> None:
        """Forgets the round before, and gets a share of the next one."""
        self.share, self.is_given, self.batches = share, False, 0
        self.info, self.priorities = {}, []


class LearnerAggregator(Configurable):
    """Lets several learners train one policy: synchronous data parallelism by averaging parameters.

    A coordinator asks it whenever one of several learners sends a message. All learners share one task. For each round,
    the rows of each batch are divided evenly among them; when each has trained on its share, their networks are averaged,
    weighted by rows. The average is published, and every learner gets it with its next data. The state of an optimizer
    stays with its learner. A state for a checkpoint is that of the first learner, with the average. This is averaging of
    local updates, as in the sources.

    If a learner is lost or leaves, the task ends, and all begin again from the last state that the coordinator has, with
    those that are there after ``start_timeout``. One that joins later waits for that.

    Args:
        cfg: Options.
        clock: Returns seconds that never go back.

    Source:
        McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data (2017), algorithm 1.
        Stich, Local SGD Converges Fast and Communicates Little (2019).
    """

    _cfg: AggregatorConfig

    def __init__(self, cfg: Mapping[str, Any] | None = None, clock: Callable[[], float] = monotonic) -> None:
        self._cfg, self._clock = self.resolve_config(cfg), clock
        self.start()

    def start(self) -> None:
        """Forgets the task and its learners, and waits for others."""
        self.task: m.Task | None = None
        """The task of all learners; None before they begin."""
        self.members: dict[str, Member] = {}
        """The learners of the task by id, the first one first."""
        self.is_open = False
        """Whether learners train on the data of a round."""
        self.train_iter = 0
        """Train iterations of the learner with most of them."""
        self.weights: dict[str, Any] = {}
        """The average, as collectors get it; empty before the first learner has published its weights."""
        self._networks: Mapping[str, Any] = {}
        self._extras: Mapping[str, Any] = {}
        self._count = 0  # batches of the round
        # of the first learner, until the end of the round
        self._state: tuple[m.PutState, Mapping[str, Any]] | None = None
        self._waits_since: float | None = None

    def close(self) -> None:
        """Ends the task of all learners; may be called twice."""
        self.start()

    def task_for(
        self, learner: str, present: Sequence[str], choose: Callable[[], m.Task | None]
    ) -> m.Task | None:
        """Returns the task of an idle learner; None if it has to wait.

        Args:
            learner: Its id.
            present: Ids of all learners, by rank.
            choose: Returns the task of all; called when they begin.
        """
        if self.task is None:
            now = self._clock()
            self._waits_since = now if self._waits_since is None else self._waits_since
            if len(present) < self._cfg.learner_num and now - self._waits_since < self._cfg.start_timeout:
                return None
            if (task := choose()) is not None:
                self.deal_with_learner_start(task, present)
        return self.task if self.owes(learner) else None

    def owes(self, learner: str) -> bool:
        """Whether a learner belongs to those that train, and has not completed the task."""
        return learner in self.members and not self.members[learner].has_finished

    def is_first(self, learner: str) -> bool:
        """Whether the state of this learner is the one that is kept."""
        return next(iter(self.members), '') == learner

    def is_busy(self, learner: str) -> bool:
        """Whether a learner has data that it has not used yet."""
        member = self.members.get(learner)
        return member is not None and member.is_given and member.batches < self._count

    @property
    def is_round_over(self) -> bool:
        """Whether all learners have used their shares of the current round."""
        return self.is_open and not any(
            member.share is not None and member.batches < self._count for member in self.members.values()
        )

    def take_weights(self, learner: str, message: m.PutWeights, weights: Mapping[str, Any]) -> bool:
        """Takes the weights of a learner; returns whether they are the first of all, which are published at once."""
        member = self.members[learner]
        member.weights, member.train_iter = weights, message.train_iter
        if self.weights or not self.is_first(learner):
            return False
        self._average([member])
        return True

    def payload_for(self, learner: str) -> tuple[int, Any]:
        """Returns the number of batches for a learner and their data, once in each round; else 0 and None."""
        member = self.members[learner]
        if member.share is None or member.is_given:
            return 0, None
        member.is_given = True
        averaged = {AVERAGED: self._networks} if len(self.members) > 1 else {}
        return self._count, joined(member.share.data, {**self._extras, **averaged})

    def take_info(self, learner: str, message: m.LearnInfo, priorities: Any) -> None:
        """Takes a report of a learner on its share."""
        member = self.members[learner]
        member.train_iter, member.batches = message.train_iter, member.batches + message.batches
        member.info |= message.info
        if priorities is not None:
            member.priorities.append(priorities)

    def take_state(self, learner: str, message: m.PutState, state: Mapping[str, Any]) -> None:
        """Takes the state of a learner; ``state`` returns it when the round is over."""
        if self.is_first(learner):
            self._state = message, state

    def state(self) -> tuple[str, int, Mapping[str, Any]] | None:
        """Returns purpose, train iterations and state that the first learner has sent, with the average, once.

        None if there is none, or its round is not over.
        """
        if self.is_open or self._state is None:
            return None
        (message, state), self._state = self._state, None
        if len(self.members) == 1:
            return message.purpose, message.train_iter, state
        progress = {**state['progress'], 'train_iter': self.train_iter}
        state = {**state, 'policy': {**state['policy'], **self._networks}, 'progress': progress}
        return message.purpose, self.train_iter, state

    def has_finished(self, learner: str) -> bool:
        """Takes note that a learner has completed the task; returns whether all have."""
        self.members[learner].has_finished = True
        return all(member.has_finished for member in self.members.values())

    # the steps of a task, under DI-engine's names

    def deal_with_get_resource(self) -> dict[str, int]:
        """Returns the number of learners, as GPUs, and the number of CPU cores."""
        return {'gpu': len(self.members), 'cpu': usable_cores()}

    def deal_with_learner_start(self, task: m.Task, learners: Sequence[str] = ()) -> dict[str, str]:
        """Begins a task with learners, by their ids; the first one's state counts."""
        self.start()
        self.task = dataclasses.replace(task, settings={**task.settings, AVERAGED: True})
        self.members = {learner: Member() for learner in learners}
        return {'message': 'learner task has started'}

    def deal_with_get_data(self, task: tuple[int, Any]) -> list[Share]:
        """Begins a round: divides its data, given with the number of batches, among the learners."""
        self._count, payload = task
        data, self._extras = split(payload)
        shares = shares_of(data, self._count, len(self.members))
        for place, member in enumerate(self.members.values()):
            member.begin_round(shares[place] if place < len(shares) else None)
        self.is_open = True
        return shares

    def deal_with_learn(self, task: Any = None) -> dict[str, Any]:
        """Ends a round: averages the networks of the learners, and returns their reports as one.

        It has the entries ``train_iter``, ``batches`` and ``priority_info``, too.
        """
        trained = [member for member in self.members.values() if member.share is not None]
        self._average(trained)
        priorities = [one for member in trained for one in member.priorities]
        report = {
            **self.merge_info([member.info for member in trained if member.info]),
            'train_iter': self.train_iter,
            'batches': min(member.batches for member in trained),
            'priority_info': self.merge_info(priorities) if priorities else None,
        }
        for member in trained:
            member.begin_round(None)
        self.is_open = False
        return report

    @staticmethod
    def merge_info(info: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Returns the reports of several learners as one: means of numbers, and all items of lists and arrays.

        Counts and names (``OF_THE_FIRST``), flags and texts are those of the first.
        """
        return {
            name: first if name in OF_THE_FIRST else _merged([one[name] for one in info if name in one])
            for name, first in (info[0] if info else {}).items()
        }

    def _average(self, trained: Sequence[Member]) -> None:
        """Averages the networks of some learners."""
        rows = [member.share.rows if member.share is not None else 1 for member in trained]
        trees = [
            {name: member.weights[name] if tree is None else tree for name, tree in networks.items()}
            for member in trained
            for networks in [member.weights[AVERAGED]]
        ]
        networks = average(trees, [count / sum(rows) for count in rows])
        weights = {name: tree for name, tree in trained[0].weights.items() if name != AVERAGED}
        self._networks, self.weights = networks, {name: networks.get(name, weights[name]) for name in weights}
        self.train_iter = max(self.train_iter, *(member.train_iter for member in trained))
