"""Coordinator: brings collectors and learners together; it keeps tasks, data and weights, and watches the workers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from rlframe.errors import MessageError, WorkerLostError
from rlframe.parallel.coordinator.assembly import (
    CoordinatedRun,
    TrainingData,
    Version,
    WeightsStore,
    complete,
)
from rlframe.parallel.coordinator.base_parallel_commander import BaseParallelCommander
from rlframe.parallel.coordinator.running_tasks import Situation
from rlframe.parallel.coordinator.workers import Desk, Worker, WorkerTable
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import Reply, Server
from rlframe.parallel.transport.messages import Collected, Join, Joined
from rlframe.run.progress import Progress
from rlframe.utils.field import Configurable
from rlframe.utils.options import COORDINATOR_FIELDS, CoordinatorConfig
from rlframe.utils.schema import COUNT, DICT, FINITE, Schema, check_state, part

logger = logging.getLogger('rlframe.coordinator')


class Requests(Desk):
    """Answers one request after the other; none of them waits.

    Args:
        coordinator: Does the bookkeeping.
        wait: Seconds after which a worker asks again if there is nothing to do or no data yet.
        max_updates_due: Updates that the learner may be behind before collectors wait.
        welcome: Makes the answer to an admitted worker.
        fingerprint: Hash of the part of the config that all roles share; empty: it is not compared.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        wait: float,
        max_updates_due: int,
        welcome: Callable[[Worker], m.Joined],
        fingerprint: str,
    ) -> None:
        self._coordinator, self._wait, self._max_due = coordinator, wait, max_updates_due
        self._welcome = welcome
        super().__init__(coordinator.workers, fingerprint)
        self._answers = {
            m.Beat: self._beat,
            m.AskTask: self._ask_task,
            m.Collected: self._collected,
            m.Finished: self._finished,
            m.AskWeights: self._ask_weights,
            m.PutWeights: self._put_weights,
            m.AskData: self._ask_data,
            m.LearnInfo: self._learn_info,
            m.PutState: self._put_state,
            m.Farewell: self._farewell,
        }

    def _admit(self, message: m.Join, session: str) -> m.Joined:
        worker = self._coordinator.admit(message, session)
        logger.info('%s joined', worker)
        return self._welcome(worker)

    def _orders(self, worker: Worker, abandon: bool = False) -> m.Orders:
        c = self._coordinator
        save = c.save_at if worker.role == 'learner' else -1
        return m.Orders(c.system_shutdown_flag, abandon, save, c.reason)

    def _beat(self, worker: Worker, message: m.Beat, _: Any) -> m.Orders:
        self._coordinator.workers.take_beat(worker, message)
        return self._orders(worker, abandon=message.task not in ('', worker.task))

    def _ask_task(self, worker: Worker, message: m.AskTask, _: Any) -> m.Task | m.Wait:
        c = self._coordinator
        if worker.task:  # its reply was lost with a connection, or the worker lost its task
            c.end_task(worker)
        if c.system_shutdown_flag:
            return m.Wait(self._wait, True, c.reason)
        if worker.role == 'learner':
            job = c.commander.get_learner_task(worker.id, c.situation())
        else:
            job = None if self._is_behind() else c.commander.get_collector_task(worker.id, c.situation())
        if job is None:
            return m.Wait(self._wait, False, 'nothing to do yet')
        c.workers.give(worker, job.task)
        return job

    def _is_behind(self) -> bool:
        """Returns whether collectors have to wait for the learner."""
        return self._coordinator.data.due > self._max_due

    def _collected(self, worker: Worker, message: m.Collected, payload: Any) -> m.Taken:
        c = self._coordinator
        if message.task != worker.task or c.system_shutdown_flag:
            c.count_rows(worker, 0, message.rows)
            return self._taken(0, message.rows, 'the task is over', True)
        c.count(message)
        pushed = c.deal_with_collector_send_data(
            message.task, c.name, str(message.part), payload, message.rows
        )
        c.count_rows(worker, pushed, message.rows - pushed)
        stop = c.deal_with_collector_judge_finish(message.task, message.facts)
        reason = '' if pushed == message.rows else 'the replay buffer refused them'
        return self._taken(pushed, message.rows - pushed, reason, stop or self._is_behind())

    def _taken(self, pushed: int, dropped: int, reason: str, stop: bool) -> m.Taken:
        c = self._coordinator
        settings = {} if stop else c.commander.settings(c.situation())
        return m.Taken(pushed, dropped, reason, stop, c.weights.version(c.name), settings)

    def _finished(self, worker: Worker, message: m.Finished, payload: Any) -> m.Orders:
        c = self._coordinator
        if message.task != worker.task:
            return self._orders(worker)
        if not message.completed:
            logger.warning('%s gave up %s: %s', worker, message.task, message.reason)
            c.end_task(worker)
            return self._orders(worker)
        worker.task = ''
        if worker.role == 'learner':
            c.deal_with_learner_finish_task(message.task, message.facts)
        else:
            c.deal_with_collector_finish_task(message.task, message.facts)
        return self._orders(worker)

    def _ask_weights(self, worker: Worker, message: m.AskWeights, _: Any) -> Reply:
        found = self._coordinator.weights_for(worker, message.policy)
        if found is None:
            return Reply(m.Weights(message.policy, -1, 0))
        reply = m.Weights(message.policy, found.version, found.train_iter)
        shared = message.policy if worker.role == 'collector' else ''  # what a learner asks for is asked once
        return Reply(reply, found.weights if found.version > message.newer_than else None, shared)

    def _put_weights(self, worker: Worker, message: m.PutWeights, payload: Any) -> m.Orders:
        if worker.role != 'learner' or not worker.task:
            raise MessageError('weights come from a learner that has a task', where='PutWeights')
        version = Version(message.version, message.train_iter, payload)
        self._coordinator.weights.put(message.policy, version)
        return self._orders(worker)

    def _ask_data(self, worker: Worker, message: m.AskData, _: Any) -> m.Wait | Reply:
        c = self._coordinator
        if message.task != worker.task:
            return m.Wait(self._wait, True, 'the task is over')
        if c.deal_with_learner_judge_finish(message.task, {}):
            return m.Wait(self._wait, True, 'training is complete')
        batches, drawn = c.data.draw(message.train_iter)
        if not batches:
            return m.Wait(self._wait, False, 'no data yet')
        settings = c.commander.learn_settings(c.situation())
        return Reply(m.Data(batches, c.progress.envstep, settings), drawn)

    def _learn_info(self, worker: Worker, message: m.LearnInfo, payload: Any) -> m.Orders:
        if message.task == worker.task:
            counts = {'train_iter': message.train_iter, 'batches': message.batches, 'priority_info': payload}
            c = self._coordinator
            c.deal_with_learner_send_info(message.task, c.name, {**message.info, **counts})
        return self._orders(worker)

    def _put_state(self, worker: Worker, message: m.PutState, payload: Any) -> m.Orders:
        self._coordinator.take_state(payload, message.train_iter, message.purpose == 'checkpoint')
        return self._orders(worker)

    def _farewell(self, worker: Worker, message: m.Farewell, _: Any) -> m.Orders:
        orders = self._orders(worker)
        c = self._coordinator
        c.count_rows(worker, 0, max(message.produced - worker.pushed - worker.dropped, 0))
        c.leave(worker, '')
        logger.info('%s left: %s', worker, message.reason)
        return orders


PARTS_AHEAD = 4
"""Parts of data that collectors may be ahead of the learner, by default."""
STATE: Schema = {
    'commander': DICT,
    'data': DICT,
    'weights': DICT,
    'rows': {'received': COUNT, 'pushed': COUNT, 'dropped': COUNT},
    'seconds': FINITE,
    'workers?': WorkerTable.SCHEMA,
}


class Coordinator(Configurable):
    """Answers the requests of collectors and learners; it never calls them, and no request waits inside it.

    Its commander decides which tasks workers get. Data go to a replay buffer and from there to the learner; weights go
    from the learner to the collectors. Workers may join, leave and come back at any time. A worker that is silent for
    ``worker_deadline`` counts as lost: its tasks are given to others. ``check`` raises an error if a role
    has had no worker for ``role_deadline``.

    Args:
        cfg: The config of an experiment, from which missing parts are created; or options, if all parts are given.
        server: The coordinator's end of a transport.
        commander: Decides what to do.
        data: Takes the data of collectors.
        run: Is told what happens.
        progress: Counters of the experiment.
        name: Name of the policy that is trained, and of its data.
        run_id: Name of the run, which workers are told.
        fingerprint: Hash of the part of the config that all roles share; workers with another one are refused. Empty: it is
            not compared.
        clock: Returns seconds that never go back.
    """

    _cfg: CoordinatorConfig
    config = COORDINATOR_FIELDS

    def __init__(  # noqa: PLR0913  parts of the coordinator
        self,
        cfg: Mapping[str, Any] | None = None,
        *,
        server: Server | None = None,
        commander: BaseParallelCommander | None = None,
        data: TrainingData | None = None,
        run: CoordinatedRun | None = None,
        progress: Progress | None = None,
        name: str = 'main',
        run_id: str = 'run',
        fingerprint: str = '',
        clock: Callable[[], float] = monotonic,
    ) -> None:
        cfg, server, commander, data = complete(cfg, server, commander, data)
        self._cfg = self.resolve_config(cfg)
        self.server = server
        """The coordinator's end of the transport."""
        self._run, self._run_id = run if run is not None else CoordinatedRun(), run_id
        self.commander, self.data, self.name = commander, data, name
        self.progress = progress if progress is not None else Progress()
        """Counters of the experiment."""
        self._clock, self._began, self._seconds = clock, clock(), 0.0
        self._state_at = clock()
        self.workers = WorkerTable(self._cfg.worker_deadline, clock)
        """The present workers."""
        self.weights = WeightsStore()
        """Newest weights of each policy, and under ``state_name`` the last state of the learner."""
        self.received = self.pushed = self.dropped = 0
        """Training samples or episodes that were produced; ``received == pushed + dropped``."""
        self.save_at = -1
        """Train iteration at which the learner was asked for its state; -1 if it is not asked."""
        self.reason = ''
        """Why the run is over."""
        self._learn_info: dict[str, Any] = {}
        self._evaluating: dict[str, Version] = {}  # weights of running evaluations, by task
        self._learned_before = 0  # updates that the last saved state of the learner contains
        self._added_places = 0  # of collectors beyond those that the config has
        self._stopping = threading.Event()
        ahead = self._cfg.max_updates_due
        ahead = PARTS_AHEAD * data.updates_per_part if ahead is None else ahead
        self._requests = Requests(self, self._cfg.wait, ahead, self._welcome, fingerprint)

    def _welcome(self, worker: Worker) -> Joined:
        interval, deadline = self._cfg.beat_interval, self._cfg.worker_deadline
        return Joined(worker.id, self._run_id, interval, deadline, worker.rank, worker.incarnation)

    @property
    def patience(self) -> float:
        """Seconds of silence after which a worker counts as lost."""
        return float(self._cfg.worker_deadline)

    @property
    def state_name(self) -> str:
        """Name under which a learner that takes the place of another fetches its last saved state."""
        return f'{self.name}.state'

    # life

    def start(self) -> None:
        """Begins to answer workers."""
        self.server.start(self._requests.handle)

    def close(self) -> None:
        """Stops answering; may be called twice."""
        self.shut_down('the coordinator ends')
        self.server.close()

    @property
    def system_shutdown_flag(self) -> bool:
        """Whether the run is over; it stays set."""
        return self._stopping.is_set()

    def shut_down(self, reason: str) -> None:
        """Tells all workers to leave, with the reason; the first one stays."""
        if not self._stopping.is_set():
            self.reason = reason
            self._stopping.set()

    def request_state(self) -> None:
        """Asks the learner for its state, to be kept for one that may have to take its place."""
        self.save_at = self.progress.train_iter

    def check(self) -> None:
        """Removes silent workers and looks whether training goes on; to be called about once a second.

        Raises:
            WorkerLostError: If a role has had no worker for too long.
            Exception: Whatever a callback raised while a request was answered.
        """
        with self._requests.lock:
            self.raise_error()
            for worker in self.workers.silent():
                self.leave(worker, f'no sign of life for {self._cfg.worker_deadline:g} s')
            self._look_for_stuck()
            if self._clock() - self._state_at >= self._cfg.state_interval and self._has_learned():
                self._state_at = self._clock()
                self.request_state()
            if self.commander.is_complete(self.situation()):
                self.shut_down('training is complete')
            for role in () if self._stopping.is_set() else ('learner', 'collector'):
                if (seconds := self.workers.missing(role)) > self._cfg.role_deadline:
                    self._raise_missing(role, seconds)

    def _has_learned(self) -> bool:
        return self.data.learned > self._learned_before

    def _look_for_stuck(self) -> None:
        """Removes workers that send signs of life but make no progress, as with an env that hangs."""
        for worker in self.workers.stuck(self._cfg.stall_deadline):
            if worker.role == 'collector' or self.data.given > self.data.learned:
                what = 'step of an env' if worker.role == 'collector' else 'update'
                self.leave(worker, f'no {what} for {self._cfg.stall_deadline:g} s')

    def lose(self, role: str, name: str, cause: str) -> None:
        """Removes a worker whose end was noticed by other means; ignored if it is not present."""
        with self._requests.lock:
            if (worker := self.workers.find(role, name)) is not None:
                self.leave(worker, cause)

    def raise_error(self) -> None:
        """Raises what a callback raised while a request was answered, if one did."""
        if self._requests.error is not None:
            raise self._requests.error

    def _raise_missing(self, role: str, seconds: float) -> None:
        lost = '; lost: ' + '; '.join(self.workers.lost[-3:]) if self.workers.lost else ''
        raise WorkerLostError(
            f'no {role} for {seconds:.0f} s{lost}',
            where='coordinator.role_deadline',
            remedy=f'Start one: python -m rlframe.entry -m {role} --join {self.server.address} -c CONFIG.',
        )

    # workers

    def admit(self, message: Join, session: str = '') -> Worker:
        """Adds a worker; one that is present and joins again over its connection loses its task.

        Raises:
            RLFrameError: If another worker has this name; see ``WorkerTable.holder``.
        """
        if (before := self.workers.holder(message, session)) is not None:
            self.leave(before, 'it joined again')
        worker = self.workers.join(message, session)
        if worker.role == 'collector' and self.workers.present('collector') > self.commander.collector_places:
            self._added_places += 1
            self.deal_with_increase_collector()
        return worker

    def leave(self, worker: Worker, cause: str) -> None:
        """Removes a worker and ends its task; with a cause, as one that was lost."""
        if cause:
            logger.warning('%s is lost: %s', worker, cause)
        if worker.task:
            self.end_task(worker)
        self.workers.leave(worker.id, cause)
        self.server.forget(worker.id)
        if worker.role == 'collector' and self._added_places:
            self._added_places -= 1
            self.deal_with_decrease_collector()

    def end_task(self, worker: Worker) -> None:
        """Ends a task that its worker does not complete; others will do what it would have done."""
        task, worker.task = worker.task, ''
        self._evaluating.pop(task, None)
        if worker.role == 'collector':
            self.commander.notify_fail_collector_task(task)
            return
        saved = self.weights.get(self.state_name)
        self.progress.train_iter = saved.train_iter if saved is not None else 0
        self.data.learner_lost(self._learned_before)
        self.commander.notify_fail_learner_task(task)

    # what requests bring

    def count(self, message: Collected) -> None:
        """Counts env steps and episodes of a collector."""
        self.progress.envstep += message.envstep
        self.progress.episodes += int(message.facts.get('episode_count', 0))
        self._run.collected(message, self.progress)

    def count_rows(self, worker: Worker, pushed: int, dropped: int) -> None:
        """Counts training samples or episodes that a collector produced."""
        self.received, self.pushed = self.received + pushed + dropped, self.pushed + pushed
        self.dropped += dropped
        worker.pushed, worker.dropped = worker.pushed + pushed, worker.dropped + dropped

    def weights_for(self, worker: Worker, policy: str) -> Version | None:
        """Returns the newest weights of a policy; those that an evaluation uses are kept until it is over."""
        found = self.weights.get(policy)
        running = self.commander.running.get(worker.task)
        if found is not None and running is not None and running.job.kind == 'evaluate':
            self._evaluating.setdefault(worker.task, found)
        return found

    def take_state(self, state: Any, train_iter: int, is_checkpoint: bool = True) -> None:
        """Keeps the state of the learner, for one that may take its place; passes one on that is for a checkpoint."""
        self.save_at, self._state_at = -1, self._clock()
        self._learned_before = self.data.learned
        self.weights.put(self.state_name, Version(train_iter, train_iter, state))
        if is_checkpoint:
            self._run.take_state(state, train_iter)

    # the bookkeeping, under the names of DI-engine

    def deal_with_collector_send_data(
        self, task_id: str, buffer_id: str, data_id: str, data: Any, rows: int | None = None
    ) -> int:
        """Takes the data of a collector, and returns how many items were accepted.

        Args:
            task_id: The collector's task; data of an unknown one are dropped.
            buffer_id: Name of the data.
            data_id: Name of this part, for the log.
            data: The training samples or episodes.
            rows: Their number; by default the length of the data.
        """
        running = self.commander.running.get(task_id)
        if running is None or buffer_id != self.name:
            logger.warning('part %s of the unknown task %s is dropped', data_id, task_id)
            return 0
        size = len(data) if rows is None else rows
        return self.data.push(size, data, self.progress.envstep, running.job.kind == 'collect')

    def deal_with_collector_judge_finish(self, task_id: str, data: Mapping[str, Any]) -> bool:
        """Returns whether a collector's task is over with the part that came last."""
        return self.commander.judge_collector_finish(task_id, data, self.situation())

    def deal_with_collector_finish_task(self, task_id: str, finished_task: Mapping[str, Any]) -> bool:
        """Ends a collector's task, an evaluation for example; returns whether training is over."""
        weights = self._evaluating.pop(task_id, None)
        kind = self.commander.running[task_id].job.kind
        is_over = self.commander.finish_collector_task(task_id, finished_task)
        if kind == 'evaluate':
            self._run.evaluated(finished_task, weights, self.commander.is_best)
        if is_over:
            self.shut_down('solved')
        return is_over

    def deal_with_learner_get_data(
        self, task_id: str, buffer_id: str, batch_size: int, cur_learner_iter: int
    ) -> Any:
        """Returns the data of the next updates, or None if none are due; the sizes are those of the config."""
        return self.data.draw(cur_learner_iter)[1]

    def deal_with_learner_send_info(self, task_id: str, buffer_id: str, info: Mapping[str, Any]) -> None:
        """Takes note of the updates that a learner made.

        Args:
            task_id: The learner's task.
            buffer_id: Name of the data.
            info: Training variables, and ``train_iter``, ``batches`` (used since the last report) and
                ``priority_info``.
        """
        counts = {name: info.get(name) for name in ('train_iter', 'batches', 'priority_info')}
        self._learn_info = {name: value for name, value in info.items() if name not in counts}
        self.data.report(int(counts['batches'] or 0), counts['priority_info'])
        self.progress.train_iter = int(counts['train_iter'] or 0)
        snapshot = self.commander.update_learner_info(task_id, self._learn_info, self.situation())
        if snapshot is not None:
            self.weights.copy(snapshot.policy, snapshot.name)
        self.weights.keep_only({self.name, self.state_name, *self.commander.kept_policies})
        self._run.learned(self._learn_info, self.progress)

    def deal_with_learner_judge_finish(self, task_id: str, info: Mapping[str, Any]) -> bool:
        """Returns whether a learner's task is over."""
        return self.commander.judge_learner_finish(task_id, info, self.situation())

    def deal_with_learner_finish_task(self, task_id: str, finished_task: Mapping[str, Any]) -> str:
        """Ends a learner's task, and returns the name of its data."""
        return self.commander.finish_learner_task(task_id, finished_task)

    def deal_with_increase_collector(self) -> None:
        """Lets one more collector work at the same time."""
        self.commander.increase_collector_task_space()

    def deal_with_decrease_collector(self) -> None:
        """Lets one collector fewer work at the same time."""
        self.commander.decrease_collector_task_space()

    # state

    def situation(self) -> Situation:
        """Returns the progress, as the commander sees it."""
        due = self.data.due
        return Situation(
            envstep=self.progress.envstep,
            train_iter=self.progress.train_iter,
            version=self.weights.version(self.name),
            updates_due=due,
            seconds=self._seconds + self._clock() - self._began,
            spent=self._run.is_spent(self.progress, due),
            learn_info=self._learn_info,
        )

    def state_dict(self) -> dict[str, Any]:
        """Returns everything but the replay buffer and the learner's state, which are saved on their own."""
        with self._requests.lock:
            return {
                'commander': self.commander.state_dict(),
                'data': self.data.state_dict(),
                'weights': self.weights.state_dict(without=self.state_name),
                'rows': {'received': self.received, 'pushed': self.pushed, 'dropped': self.dropped},
                'seconds': self._seconds + self._clock() - self._began,
                'workers': self.workers.state_dict(),
            }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``; tasks of that time are ended, as their workers join again."""
        check_state(state_dict, STATE)
        with self._requests.lock:
            with part('commander'):
                self.commander.load_state_dict(state_dict['commander'])
            for worker in {running.worker for running in self.commander.running.values()}:
                self.commander.worker_left(worker)
            with part('data'):
                self.data.load_state_dict(state_dict['data'])
            with part('weights'):
                self.weights.load_state_dict(dict(state_dict['weights']))
            if 'workers' in state_dict:
                with part('workers'):
                    self.workers.load_state_dict(state_dict['workers'])
            rows = state_dict['rows']
            self.received, self.pushed, self.dropped = rows['received'], rows['pushed'], rows['dropped']
            self._learned_before = self.data.learned
            self._began, self._seconds = self._clock(), state_dict['seconds']

    def info(self, s: str) -> None:
        """Writes to the log."""
        logger.info('%s', s)

    def error(self, s: str) -> None:
        """Writes an error to the log."""
        logger.error('%s', s)
