"""Coordinator: brings collectors and learners together; it keeps tasks, data and weights, and watches the workers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from rlframe.config.schema import CoordinatorConfig
from rlframe.errors import ConfigError, MessageError, RLFrameError
from rlframe.parallel.coordinator import assembly
from rlframe.parallel.coordinator.assembly import CoordinatedRun, TrainingData, Version
from rlframe.parallel.coordinator.base_parallel_commander import MAIN, BaseParallelCommander, Situation
from rlframe.parallel.coordinator.workers import AwakeClock, Worker, WorkerTable, check_same
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.answering import Server
from rlframe.parallel.transport.base import Envelope, Reply
from rlframe.run.progress import Progress
from rlframe.utils.field import Configurable
from rlframe.utils.schema import COUNT, DICT, FINITE, Schema, check_state, part

logger = logging.getLogger('rlframe.coordinator')

STATE_NAME = f'{MAIN}.state'
"""Name under which a learner that takes the place of another fetches its last saved state."""
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
        cfg: The config of an experiment, from which missing parts are created.
        server: The coordinator's end of a transport.
        commander: Decides what to do.
        data: Takes the data of collectors.
        run: Is told what happens.
        fingerprint: Hash of the part of the config that all roles share; workers with another one are refused. Empty: it is
            not compared.
        clock: Returns seconds that never go back. None: the computer's, and deadlines of workers do not run on while this
            process is frozen.

    Raises:
        ConfigError: If ``cfg`` has options of the coordinator outside of the section ``parallel.coordinator``.
    """

    _cfg: CoordinatorConfig

    def __init__(
        self,
        cfg: Mapping[str, Any] | None = None,
        *,
        server: Server | None = None,
        commander: BaseParallelCommander | None = None,
        data: TrainingData | None = None,
        run: CoordinatedRun | None = None,
        fingerprint: str = '',
        clock: Callable[[], float] | None = None,
    ) -> None:
        cfg = cfg or {}
        if own := sorted(cfg.keys() & self.config_fields().keys()):
            place = f'parallel.coordinator.{own[0]}'
            raise ConfigError('a coordinator takes the config of an experiment', where=own[0], expected=place)
        self._cfg = self.resolve_config(assembly.options_of(cfg))
        server = assembly.make_server(cfg) if server is None else server
        commander = assembly.make_commander(cfg) if commander is None else commander
        data = assembly.make_data(cfg) if data is None else data
        self.server, self._fingerprint = server, fingerprint
        self.workers = WorkerTable(self._cfg.worker_deadline, clock or AwakeClock())
        """The present workers."""
        self.lock = threading.RLock()
        """Held while a request is answered."""
        self.failure: BaseException | None = None
        """What a request raised that was no fault of its sender."""
        self._run = run if run is not None else CoordinatedRun()
        self.commander, self.data = commander, data
        self.progress = Progress()
        """Counters of the experiment."""
        self._clock = clock or monotonic
        self._began = self._clock()
        self._seconds = 0.0
        self._state_at = self._clock()
        self.weights: dict[str, Version] = {}
        """Newest weights of each policy, and under ``STATE_NAME`` the last state of the learner."""
        self.received = self.pushed = self.dropped = 0
        """Training samples or episodes that were produced; ``received == pushed + dropped``."""
        self.save_at = -1
        """Train iteration at which the learner was asked for its state; -1 if it is not asked."""
        self.reason = ''
        """Why the run is over; empty before."""
        self._learn_info: dict[str, Any] = {}
        self._evaluating: dict[str, Version] = {}  # weights of running evaluations, by task
        self._learned_before = 0  # updates that the last saved state of the learner contains
        self._added_places = 0  # of collectors beyond those that the config has
        ahead = self._cfg.max_updates_due
        self._max_due = PARTS_AHEAD * data.updates_per_part if ahead is None else ahead

    def version(self, policy: str) -> int:
        """Returns the newest version of a policy's weights; -1 if there are none."""
        found = self.weights.get(policy)
        return -1 if found is None else found.version

    # life

    def start(self) -> None:
        """Begins to answer workers.

        Raises:
            ConfigError: If the address cannot be used, as by a second coordinator.
        """
        with assembly.naming_address():
            self.server.start(self.handle)

    def close(self) -> None:
        """Stops answering; may be called twice."""
        self.shut_down('the coordinator ends')
        self.server.close()

    @property
    def system_shutdown_flag(self) -> bool:
        """Whether the run is over; it stays set."""
        return self.reason != ''

    def shut_down(self, reason: str) -> None:
        """Tells all workers to leave, with the reason; the first one stays."""
        self.reason = self.reason or reason

    def check(self) -> None:
        """Removes silent workers and looks whether training goes on; to be called once a second or more often.

        Raises:
            WorkerLostError: If a role has had no worker for too long.
            Exception: Whatever a callback raised while a request was answered.
        """
        with self.lock:
            self.raise_failure()
            for worker, is_silent in self.workers.late(self._cfg.stall_deadline):
                if is_silent:
                    self.leave(worker, f'no sign of life for {self._cfg.worker_deadline:g} s')
                elif what := self._lacks(worker):
                    self.leave(worker, f'no {what} for {self._cfg.stall_deadline:g} s')
            has_learned = self.data.learned > self._learned_before
            if has_learned and self._clock() - self._state_at >= self._cfg.state_interval:
                self._state_at = self._clock()
                self.save_at = self.progress.train_iter
            if self.commander.is_complete(self.situation()):
                self.shut_down('training is complete')
            for role in () if self.system_shutdown_flag else ('learner', 'collector'):
                self.workers.check_present(role, self._cfg.role_deadline, self.server.address)

    def _lacks(self, worker: Worker) -> str:
        if worker.role == 'collector':
            return 'step of an env'
        return 'update' if self.data.given > self.data.learned else ''

    def lose(self, role: str, name: str, cause: str) -> None:
        """Removes a worker, if it is present, whose end was noticed by other means; it is not waited for."""
        with self.lock:
            if (worker := self.workers.find(role, name)) is not None:
                self.leave(worker, cause)
            self.workers.forget_loss(role, name)

    def expect(self, role: str, name: str) -> None:
        """Waits for a worker whose process runs, however slowly it starts, unless it is present."""
        with self.lock:
            if self.workers.find(role, name) is None:
                self.workers.expect(role)

    # workers

    def leave(self, worker: Worker, cause: str) -> None:
        """Removes a worker and ends its task; with a cause, as one that was lost."""
        if cause:
            logger.warning('%s is lost: %s', worker, cause)
        if worker.task:
            self.end_task(worker)
        self.workers.leave(worker, cause)
        self.server.forget(worker.session)
        if worker.role == 'collector' and self._added_places:
            self._added_places -= 1
            self.deal_with_decrease_collector()

    def end_task(self, worker: Worker) -> None:
        """Ends a task that its worker does not complete; others will do what it would have done."""
        task = worker.task
        worker.task = ''
        self._evaluating.pop(task, None)
        if worker.role == 'collector':
            self.commander.notify_fail_collector_task(task)
            return
        saved = self.weights.get(STATE_NAME)
        self.progress.train_iter = saved.train_iter if saved is not None else 0
        self.data.learner_lost(self._learned_before)
        self.commander.notify_fail_learner_task(task)

    # requests

    def handle(self, envelope: Envelope, payload: Any = None) -> Reply:
        """Answers a request.

        Raises:
            MessageError: If it does not fit the situation, such as a message of a worker that has not joined.
            RequestRefusedError: If the worker may not join.
        """
        with self.lock:
            message = envelope.message
            try:
                if isinstance(message, m.Join):
                    check_same(message, self._fingerprint)
                    return Reply(self._admit(message, envelope.session))
                worker = self.workers.hear(envelope.sender, envelope.session)
                answer = self._answers().get(type(message))
                if answer is None:
                    raise MessageError(f'{type(message).__name__} of {worker} is not expected here')
                reply = answer(worker, message, payload)
                return reply if isinstance(reply, Reply) else Reply(reply)
            except RLFrameError:
                raise
            # the run must not continue after half of a request: the thread that watches the workers raises the error
            except BaseException as error:
                self.failure = error
                raise

    def raise_failure(self) -> None:
        """Raises what a request raised that was no fault of its sender, if one did."""
        if self.failure is not None:
            raise self.failure

    def _answers(self) -> Mapping[type[m.Message], Callable[[Worker, Any, Any], m.Message | Reply]]:
        return {
            m.Beat: self._on_beat,
            m.AskTask: self._on_ask_task,
            m.Collected: self._on_collected,
            m.Finished: self._on_finished,
            m.AskWeights: self._on_ask_weights,
            m.PutWeights: self._on_put_weights,
            m.AskData: self._on_ask_data,
            m.LearnInfo: self._on_learn_info,
            m.PutState: self._on_put_state,
            m.Farewell: self._on_farewell,
        }

    def _admit(self, message: m.Join, session: str) -> m.Joined:
        """Adds a worker; one that is present and joins again over its connection loses its task."""
        if (before := self.workers.holder(message, session)) is not None:
            self.leave(before, 'it joined again')
        worker = self.workers.join(message, session)
        self._count_lost(worker, message.produced)
        if worker.role == 'collector' and self.workers.present('collector') > self.commander.collector_places:
            self._added_places += 1
            self.deal_with_increase_collector()
        logger.info('%s joined', worker)
        return m.Joined(worker.id, self._cfg.beat_interval, worker.rank, worker.incarnation)

    def _orders(self, worker: Worker, abandon: bool = False) -> m.Orders:
        save = self.save_at if worker.role == 'learner' else -1
        return m.Orders(self.system_shutdown_flag, abandon, save, self.reason)

    def _wait(self, reason: str, stop: bool = False) -> m.Wait:
        return m.Wait(self._cfg.wait, stop, reason)

    def _on_beat(self, worker: Worker, message: m.Beat, _: Any) -> m.Orders:
        self.workers.take_beat(worker, message.progress)
        return self._orders(worker, abandon=message.task not in ('', worker.task))

    def _on_ask_task(self, worker: Worker, message: m.AskTask, _: Any) -> m.Task | m.Wait:
        if worker.task:  # its reply was lost with a connection, or the worker lost its task
            self.end_task(worker)
        if self.system_shutdown_flag:
            return self._wait(self.reason, stop=True)
        if worker.role == 'learner':
            task = self.commander.get_learner_task(worker.id, self.situation())
        else:
            is_behind = self._is_behind()
            situation = self.situation()
            task = None if is_behind else self.commander.get_collector_task(worker.id, situation)
        if task is None:
            return self._wait('nothing to do yet')
        self.workers.give(worker, task.task)
        return task

    def _is_behind(self) -> bool:
        """Returns whether collectors have to wait for the learner."""
        return self.data.due > self._max_due

    def _on_collected(self, worker: Worker, message: m.Collected, payload: Any) -> m.Taken:
        rows = message.rows
        if message.task != worker.task or self.system_shutdown_flag:
            self._count_rows(worker, 0, rows)
            return self._taken(0, True)
        self.progress.envstep += message.envstep
        self.progress.episodes += int(message.facts.get('episode_count', 0))
        self._run.collected(message, self.progress)
        pushed = self.deal_with_collector_send_data(message.task, MAIN, str(message.part), payload, rows)
        self._count_rows(worker, pushed, rows - pushed)
        stop = self.deal_with_collector_judge_finish(message.task, message.facts)
        return self._taken(pushed, stop or self._is_behind())

    def _taken(self, pushed: int, stop: bool) -> m.Taken:
        settings = {} if stop else self.commander.settings(self.situation())
        return m.Taken(pushed, stop, self.version(MAIN), settings)

    def _count_rows(self, worker: Worker, pushed: int, dropped: int) -> None:
        """Counts training samples or episodes that a collector produced."""
        self.received, self.pushed = self.received + pushed + dropped, self.pushed + pushed
        self.dropped += dropped
        worker.counted += pushed + dropped

    def _count_lost(self, worker: Worker, produced: int) -> None:
        """Counts what a collector has produced and nobody has, such as rows after the last checkpoint, as dropped."""
        self._count_rows(worker, 0, max(produced - worker.counted, 0))

    def _on_finished(self, worker: Worker, message: m.Finished, payload: Any) -> m.Orders:
        if message.task != worker.task:
            return self._orders(worker)
        if not message.completed:
            logger.warning('%s gave up %s: %s', worker, message.task, message.reason)
            self.end_task(worker)
            return self._orders(worker)
        worker.task = ''
        if worker.role == 'learner':
            self.deal_with_learner_finish_task(message.task, message.facts)
        else:
            self.deal_with_collector_finish_task(message.task, message.facts)
        return self._orders(worker)

    def _on_ask_weights(self, worker: Worker, message: m.AskWeights, _: Any) -> Reply:
        found = self.weights.get(message.policy)
        if found is None:
            return Reply(m.Weights(-1, 0))
        running = self.commander.running.get(worker.task)
        if running is not None and running.job.kind == 'evaluate':
            self._evaluating.setdefault(worker.task, found)
        reply = m.Weights(found.version, found.train_iter)
        return Reply(reply, found.weights if found.version > message.newer_than else None)

    def _on_put_weights(self, worker: Worker, message: m.PutWeights, payload: Any) -> m.Orders:
        if worker.role != 'learner' or not worker.task:
            raise MessageError('weights come from a learner that has a task', where='PutWeights')
        if message.version >= self.version(message.policy):
            self.weights[message.policy] = Version(message.version, message.train_iter, payload)
            if message.policy == MAIN:
                self.data.follow(payload)
        return self._orders(worker)

    def _on_ask_data(self, worker: Worker, message: m.AskData, _: Any) -> m.Wait | Reply:
        if message.task != worker.task:
            return self._wait('the task is over', stop=True)
        if self.deal_with_learner_judge_finish(message.task, {}):
            return self._wait('training is complete', stop=True)
        batches, drawn = self.data.draw(message.train_iter)
        if not batches:
            return self._wait('no data yet')
        self.workers.give(worker, worker.task)
        return Reply(m.Data(batches, self.progress.envstep), drawn)

    def _on_learn_info(self, worker: Worker, message: m.LearnInfo, payload: Any) -> m.Orders:
        if message.task == worker.task:
            counts = {'train_iter': message.train_iter, 'batches': message.batches, 'priority_info': payload}
            self.deal_with_learner_send_info(message.task, MAIN, {**message.info, **counts})
        return self._orders(worker)

    def _on_put_state(self, worker: Worker, message: m.PutState, payload: Any) -> m.Orders:
        """Keeps the state of the learner, for one that may take its place; passes one on that is for a checkpoint."""
        self.save_at = -1
        self._state_at = self._clock()
        self._learned_before = self.data.learned
        self.keep_state(payload, message.train_iter)
        if message.purpose == m.CHECKPOINT:
            self._run.take_state(payload, message.train_iter)
        return self._orders(worker)

    def keep_state(self, state: Any, train_iter: int) -> None:
        """Keeps the whole state of a learner, which the next one begins from."""
        if train_iter >= self.version(STATE_NAME):
            self.weights[STATE_NAME] = Version(train_iter, train_iter, state)

    def _on_farewell(self, worker: Worker, message: m.Farewell, _: Any) -> m.Orders:
        orders = self._orders(worker)
        self._count_lost(worker, message.produced)
        self.leave(worker, '')
        logger.info('%s left: %s', worker, message.reason)
        return orders

    # the bookkeeping, under the names of DI-engine

    def deal_with_collector_send_data(
        self, task_id: str, buffer_id: str, data_id: str, data: Any, rows: int | None = None
    ) -> int:
        """Takes the data of a collector, whose size is ``rows`` or their length; returns how many items were accepted.

        Data of an unknown task, or with another name, are dropped.
        """
        running = self.commander.running.get(task_id)
        if running is None or buffer_id != MAIN:
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
        is_evaluation = self.commander.running[task_id].job.kind == 'evaluate'
        is_over = self.commander.finish_collector_task(task_id, finished_task)
        if is_evaluation:
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

        ``info`` has training variables, ``train_iter``, ``priority_info``, and ``batches`` used since the last report.
        """
        counts = {name: info.get(name) for name in ('train_iter', 'batches', 'priority_info')}
        self._learn_info = {name: value for name, value in info.items() if name not in counts}
        self.data.report(int(counts['batches'] or 0), counts['priority_info'])
        self.progress.train_iter = int(counts['train_iter'] or 0)
        snapshot = self.commander.update_learner_info(task_id, self._learn_info, self.situation())
        if snapshot is not None:
            self.weights[snapshot] = self.weights[MAIN]
        kept = {MAIN, STATE_NAME, *self.commander.kept_policies}
        self.weights = {name: version for name, version in self.weights.items() if name in kept}
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
            version=self.version(MAIN),
            updates_due=due,
            seconds=self._seconds + self._clock() - self._began,
            spent=self._run.is_spent(self.progress, due),
            learn_info=self._learn_info,
        )

    def state_dict(self) -> dict[str, Any]:
        """Returns everything but the replay buffer and the learner's state, which are saved on their own."""
        with self.lock:
            weights = self.weights
            return {
                'commander': self.commander.state_dict(),
                'data': self.data.state_dict(),
                'weights': {name: weights[name]._asdict() for name in weights if name != STATE_NAME},
                'rows': {'received': self.received, 'pushed': self.pushed, 'dropped': self.dropped},
                'seconds': self._seconds + self._clock() - self._began,
                'workers': self.workers.state_dict(),
            }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``; tasks of that time are ended, as their workers join again."""
        check_state(state_dict, STATE)
        with self.lock:
            with part('commander'):
                self.commander.load_state_dict(state_dict['commander'])
            with part('data'):
                self.data.load_state_dict(state_dict['data'])
            with part('weights'):
                self.weights = {name: Version(**saved) for name, saved in state_dict['weights'].items()}
                if MAIN in self.weights:
                    self.data.follow(self.weights[MAIN].weights)
            if 'workers' in state_dict:
                with part('workers'):
                    self.workers.load_state_dict(state_dict['workers'])
            rows = state_dict['rows']
            self.received, self.pushed, self.dropped = rows['received'], rows['pushed'], rows['dropped']
            self._learned_before = self.data.learned
            self._began = self._clock()
            self._seconds = state_dict['seconds']

    def info(self, s: str) -> None:
        """Writes to the log."""
        logger.info('%s', s)

    def error(self, s: str) -> None:
        """Writes an error to the log."""
        logger.error('%s', s)
