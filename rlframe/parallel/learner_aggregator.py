"""LearnerAggregator: several learners that train one policy, and that a coordinator takes for one."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from easydict import EasyDict

from rlframe.parallel.comm_learner import CHECKPOINT, SPARE, RoundWorker, TransportLearnerConfig
from rlframe.parallel.comm_worker import CLOSED
from rlframe.parallel.held_weights import AVERAGED, TaskAbandoned
from rlframe.parallel.learner_group import (
    LearnerGroup,
    Member,
    Round,
    State,
    average,
    merged_info,
    networks_in,
    with_networks,
)
from rlframe.parallel.transport.answering import InProcessServer
from rlframe.parallel.transport.base import Server
from rlframe.parallel.transport.messages import (
    AskWeights,
    Beat,
    Finished,
    LearnInfo,
    PutState,
    PutWeights,
    Task,
    Weights,
)
from rlframe.run.machine import usable_cores
from rlframe.utils.field import option
from rlframe.utils.options import DeadlinesConfig


class AggregatorConfig(TransportLearnerConfig, DeadlinesConfig):
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
    wait: float = option(
        0.01,
        range='(0, inf)',
        unit='seconds',
        doc='pause before a learner asks again if there is no share for it yet',
        may_change=True,
    )


class LearnerAggregator(RoundWorker):
    """Lets several learners train one policy: synchronous data parallelism by averaging parameters.

    Towards a coordinator it is one learner. Towards its learners, which are ordinary comm learners, it is a coordinator
    without collectors. For each round, it asks for data once, divides the rows of each batch evenly among the present
    learners, waits until each has trained on its share, and averages their networks, weighted by rows. The average is
    published, and every learner gets it with its next data. The state of an optimizer stays with its learner. A state
    for a checkpoint is that of the first learner, with the average.

    With one learner, everything equals a run without an aggregator bit for bit. With plain gradient descent, one update
    per round equals the update on the whole batch, up to rounding. With Adam, or several updates per round, this is
    averaging of local updates, as in the sources.

    A learner that is silent for ``worker_deadline``, or has data and makes no update for ``stall_deadline``, is lost: the
    others complete the round. If nobody is left, the round is repeated by those that come. A learner that joins begins
    with the next round, from the state of another one. Without any learner for ``role_deadline``, this worker ends.

    Args:
        cfg: Options.
        server: The end of a transport that the learners join; by default one for threads of this process.
        given: Further arguments of ``CommWorker``: ``transport`` or ``address``, ``name``, ``fingerprint``.

    Source:
        McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data (2017), algorithm 1.
        Stich, Local SGD Converges Fast and Communicates Little (2019).
    """

    _cfg: AggregatorConfig

    def __init__(
        self, cfg: EasyDict | Mapping[str, Any] | None = None, *, server: Server | None = None, **given: Any
    ) -> None:
        own = self.resolve_config(cfg)
        super().__init__(own, slots=own.learner_num, **given)
        self.server = server if server is not None else InProcessServer()
        """The end of a transport that the learners join, once this worker runs."""
        self._group = LearnerGroup(own, self.server, given.get('fingerprint', ''))
        self._part: list[Member] = []
        self._weights, self._train_iter = dict[str, Any](), 0
        self._is_due = self._owes_state = self._is_average = self._is_open = False

    # the steps of a task, under DI-engine's names

    def deal_with_get_resource(self) -> dict[str, int]:
        """Returns the number of learners, as GPUs, and the number of CPU cores."""
        return {'gpu': len(self._group.members), 'cpu': usable_cores()}

    def deal_with_learner_start(self, task: Task) -> dict[str, str]:
        """Begins a task with all learners, from the last state of a learner of this run, if there is one."""
        self._policy, self._published_at, self._part = task.policies[0], -1, []
        saved, state = self._ask(AskWeights(f'{self._policy}.state', -1), Weights)
        self._train_iter = saved.train_iter if state is not None else 0
        group, cfg = self._group, self._cfg
        group.begin(task, state)
        group.wait_until(
            lambda: len(group.ready) >= cfg.learner_num, self._check_interrupt, cfg.start_timeout
        )
        group.wait_until(lambda: bool(group.ready), self._check_interrupt)
        with group.lock:
            first = group.ready[0]
            self._take_weights([first])
            self._train_iter = max(self._train_iter, first.train_iter)
        self._publish()
        return {'message': 'learner task has started'}

    def deal_with_get_data(self, task: Task) -> Round | None:
        """Returns the data of the next round for all learners; None if the task is over.

        With a round, the next one is requested, unless collection and training take turns.
        """
        return self._next_round()

    @property
    def _updates(self) -> int:
        return self._train_iter

    def _pause(self, seconds: float) -> None:
        self._group.wait_until(self._task_is_over.is_set, _nothing, seconds)

    def deal_with_learn(self, task: Round) -> dict[str, Any]:
        """Lets the learners train on the data of a round; publishes their average, reports, and returns the report."""
        self._check_interrupt()
        group, part = self._group, list[Member]()
        while not any(not member.is_lost for member in part):
            group.wait_until(lambda: bool(group.ready), self._check_interrupt)
            part = self._part = group.hand_out(task)
            group.wait_until(self._round_is_over, self._check_interrupt)
        return self._collect()

    def deal_with_learner_close(self) -> dict[str, Any]:
        """Ends the tasks of all learners, publishes and reports the rest, and returns the facts about the task."""
        self._end_learners('the task is over', is_abandoned=False)
        self._collect(is_last=True)
        return {'train_iter': self._train_iter, 'learner_done': True}

    @staticmethod
    def merge_info(info: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Returns the reports of several learners as one; see ``merged_info``."""
        return merged_info(info)

    def _round_is_over(self) -> bool:
        return all(_has_ended(member) for member in self._part)

    # results of a round

    def _collect(self, is_last: bool = False) -> dict[str, Any]:
        """Averages, publishes and reports what the learners did since the last report; passes on a state that is due.

        Args:
            is_last: Whether the task ends, so that everything that is left is published.
        """
        with self._group.lock:
            part = [member for member in self._part if not member.is_lost]
            states, self._group.states = self._group.states, []
            before = self._train_iter
            if trained := [member for member in part if member.train_iter > member.before]:
                self._train_iter += max(member.train_iter - member.before for member in trained)
                self._take_weights(trained)
            batches = min((member.batches for member in part), default=0)
            infos = [
                dict(item for info in member.infos for item in info.items())
                for member in part
                if member.infos
            ]
            priorities = [one for member in part for one in member.priorities]
            for member in part:
                member.begin_report(batches)
        freq = self._cfg.send_policy_freq
        self._is_due = self._is_due or self._train_iter // freq > before // freq
        if self._is_due or self._cfg.lockstep or is_last:
            self._publish()
        info = self.merge_info(infos)
        if infos and self._task is not None:
            message = LearnInfo(self._task.task, self._train_iter, info, batches)
            self._tell(message, self.merge_info(priorities) if priorities else None)
        self._pass_on(states, is_last)
        return info

    def _take_weights(self, part: Sequence[Member]) -> None:
        """Averages the networks of some learners."""
        rows = [member.share.rows if member.share is not None else 1 for member in part]
        shares = [count / sum(rows) for count in rows]
        networks = average([networks_in(member.weights) for member in part], shares)
        self._group.take_networks(networks, part[0] if len(part) == 1 else None)
        self._is_average, weights = len(part) > 1, part[0].weights
        self._weights = {name: networks.get(name, tree) for name, tree in weights.items() if name != AVERAGED}

    def _publish(self) -> None:
        """Publishes the weights unless they are published already."""
        if self._published_at == self._train_iter:
            return
        tree, at = copy.deepcopy(self._weights), self._train_iter
        self._tell(PutWeights(self._policy, at, at), tree)
        self._published_at, self._is_due = at, False

    def _pass_on(self, states: Sequence[State], is_last: bool) -> None:
        """Gives the first learner's state to learners that join, and to the coordinator if that needs it."""
        group = self._group
        for message, state, member in states[:1]:
            at = message.train_iter + self._train_iter - member.train_iter
            if self._is_average or at != message.train_iter:
                state = with_networks(state, group.networks, at)
            group.take_state(state)
            if message.purpose == CHECKPOINT or self._owes_state or is_last:
                purpose = SPARE if self._stopped == CLOSED else message.purpose
                self._owes_state = False
                self._tell(PutState(purpose, at), state)
        self._owes_state = self._takes_state() or self._owes_state
        group.wants_state = group.wants_state or self._owes_state

    # running

    def open(self) -> None:
        """Begins to answer learners, so that the server has an address; ``run`` does it, too."""
        if not self._is_open:
            self._is_open = True
            self.server.start(self._group.handle)

    def run(self) -> None:
        """Joins the run and works until the coordinator or ``stop`` ends it; see ``CommWorker.run``.

        Raises:
            WorkerLostError: If there has been no learner for ``role_deadline``.
        """
        self.open()
        super().run()

    def _work_on(self, task: Task) -> Finished:
        self._task_is_over.clear()
        if self._stopped:
            raise TaskAbandoned(self._stopped)
        try:
            self.deal_with_learner_start(task)
            while (data := self.deal_with_get_data(task)) is not None:
                self.deal_with_learn(data)
            self._check_interrupt()
        except TaskAbandoned:
            if not self._stopped:
                self._end_learners(self._interrupt, is_abandoned=True)
                raise
            if self._stopped == CLOSED:
                self._end_learners(CLOSED, is_abandoned=False)
                self._collect(is_last=True)
                raise
        finally:
            self._task_is_over.set()
            self._ahead.drop()  # no request may outlive its task
        return Finished(task.task, True, '', self.deal_with_learner_close())

    def _end_learners(self, reason: str, is_abandoned: bool) -> None:
        """Ends the task of all learners, and waits until they have."""
        group = self._group
        if self._stopped:
            group.leave(self._stopped)
        group.end_task(reason, is_abandoned)
        group.wait_until(lambda: not group.working, _nothing, self._cfg.close_timeout / 2)

    def _sizes(self, task: Task) -> tuple[int, int]:
        """Returns the sum of the learners' batch sizes, and the number of batches of a round."""
        with self._group.lock:
            asked = [member.asked for member in self._group.ready if member.asked is not None]
        size = sum(message.batch_size for message in asked)
        return size, task.target or max((message.count for message in asked), default=1)

    def _beat(self) -> Beat:
        task, group = self._task, self._group
        facts = {'steps': float(group.progress), 'learners': float(len(group.members))}
        state, name = ('idle', '') if task is None else (task.kind, task.task)
        return Beat(state, name, 0, self._train_iter, max(self._published_at, 0), facts)

    def _release(self) -> None:
        group = self._group
        group.leave(self._stopped or 'the aggregator ends')
        self._ahead.close()
        if self._is_open:
            group.wait_until_empty(self._cfg.close_timeout / 4)
        self.server.close()


def _nothing() -> None:
    """Does nothing."""


def _has_ended(member: Member) -> bool:
    """Whether nothing more is to come of a learner in this round."""
    return member.is_lost or (member.is_done and not member.owes_state)
