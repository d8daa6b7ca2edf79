"""Requests: answers the messages of workers by calls of the coordinator."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlframe.errors import MessageError
from rlframe.transport import messages as m
from rlframe.transport.base import Reply
from rlframe.worker.coordinator.desk import Desk
from rlframe.worker.coordinator.weights_store import Version
from rlframe.worker.coordinator.workers import Worker

if TYPE_CHECKING:
    from rlframe.worker.coordinator.coordinator import Coordinator

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
        return m.Task(**job.to_dict())

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
