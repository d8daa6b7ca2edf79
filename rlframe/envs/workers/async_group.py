"""Runs N envs in W worker processes that answer asynchronously."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.timestep import Array, IntArray
from rlframe.envs.faults import Fault
from rlframe.envs.workers.worker_group import WorkerGroup, failed_resets, first_env

NO_ENV = np.zeros(0, np.int64)


class Through(NamedTuple):
    """The received results; the rows of failed envs are meaningless."""

    stepped: IntArray
    """Envs that finished a step or were lost in it, [n]."""
    begun: IntArray
    """Envs that finished a reset or were lost in it, [n]."""
    told: Mapping[int, Mapping[str, Any]]
    """Infos of the steps, by env, if not empty."""
    faults: Sequence[Fault]


class AsyncWorkerGroup(WorkerGroup):
    """N envs in W worker processes, each with at most one pending answer.

    The envs of a worker are asked and answer together; those of other workers do not wait for them. What takes the
    answers of all (``capture``, ``restore``, ``render``) may be used only while no env is busy.

    Args:
        make: Factory of each env, [N].
        worker_num: Number of workers, W <= N.
        step_timeout: Maximum seconds per env for a step.
        reset_timeout: Maximum seconds per env for creating, resetting or anything else.
    """

    def __init__(
        self, make: Sequence[Callable[[], Any]], worker_num: int, step_timeout: float, reset_timeout: float
    ) -> None:
        super().__init__(make, worker_num, step_timeout, reset_timeout)
        self.busy = np.zeros(len(make), np.bool_)
        """Whether each env waits for its worker's answer, [N]."""
        self._stepping: dict[int, IntArray] = {}  # workers to the envs that they step
        self._beginning: dict[int, IntArray] = {}  # workers to the envs that they reset

    def begin_steps(self, action: Array, env_id: IntArray) -> None:
        """Starts a step of the given envs, [n]; none of them may be busy."""
        messages = self._step_messages(action, env_id, self._is_whole(env_id))
        self._stepping |= self._by_worker(env_id)
        self._begin(messages, 'step()', self._step_timeout)

    def begin_resets(self, env_id: IntArray, seeds: Sequence[int | None]) -> None:
        """Begins an episode in the given envs, [n], restarting missing workers; none of them may be busy."""
        due = self._by_worker(env_id)
        messages = self._reset_messages(due, env_id, seeds)
        self._beginning |= due
        self._begin(messages, 'reset()', self._reset_timeout)

    def _begin(self, messages: Mapping[int, bytes], what: str, limit: float) -> None:
        for index in messages:
            self.busy[self._owned[index]] = True
        self._pool.ask(messages, what, limit)

    def gather(self, patience: float) -> Through:
        """Waits until a worker finishes, or for the given seconds, and returns all answers so far."""
        replies, faults = self._pool.gather(1, patience)
        stepped = self._through(self._stepping)
        begun = self._through(self._beginning)
        told, more = self._unpacked({index: replies[index] for index in stepped if index in replies})
        faults += more
        faults += failed_resets(replies[index] for index in begun if index in replies)
        faults.sort(key=first_env)
        return Through(_ids(stepped), _ids(begun), told, faults)

    def _through(self, asked: dict[int, IntArray]) -> dict[int, IntArray]:
        """Removes and returns the workers without a pending answer."""
        through = {index: own for index, own in asked.items() if index not in self._pool.asked}
        for index in through:
            del asked[index]
            self.busy[self._owned[index]] = False
        return through

    def rows(self, env_id: IntArray) -> tuple[Array, ...]:
        """Returns copies of the last step results of these envs, [n]: obs, reward, terminated, truncated."""
        arrays = self._arrays
        columns = (arrays.obs[self._which], arrays.reward, arrays.terminated, arrays.truncated)
        return tuple(column[env_id] for column in columns)

    def first_obs(self, env_id: IntArray) -> Array:
        """Returns a copy of the first observations from the last resets of these envs, [n, ...]."""
        return self._arrays.first_obs[env_id]


def _ids(by_worker: Mapping[int, IntArray]) -> IntArray:
    return np.sort(np.concatenate(list(by_worker.values()))) if by_worker else NO_ENV
