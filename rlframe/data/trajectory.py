"""TrajectoryRecorder: turns rows of env steps into training samples, each written once.

``NStepWindow`` holds a row back until its reward window is full; the recorder keeps the results in their order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlframe.data.timestep import Array, Batch, BoolArray, IntArray
from rlframe.utils.schema import FLAG, array, check_state, dict_of, load_arrays, part, rows, saved_arrays

Columns = dict[str, Array]
ARRAYS = ('count', 'start', 'reward', 'discount')
"""State of a window per env, beside the rows."""
OF_LAST = 'next_obs', 'terminated', 'truncated'
"""Columns that an n-step row has from the last step of its window."""


class NStepWindow:
    """Turns one-step rows into n-step rows, per env, however the envs' steps are interleaved.

    A row leaves when ``nstep`` rewards are known or its episode ends: ``reward`` is then the discounted sum over the k
    steps of its window, ``next_obs``, ``terminated`` and ``truncated`` are those of the window's last step, and
    ``value_gamma`` is ``discount_factor ** k``, the factor of the value of ``next_obs``.

    Args:
        env_num: Number of envs, N.
        nstep: Rewards in a window, in env steps, >= 1.
        discount_factor: Per env step, in [0, 1].

    Source:
        Sutton & Barto, Reinforcement Learning (2018), eq. 7.1; the true exponent at windows cut short.
    """

    def __init__(self, env_num: int, nstep: int, discount_factor: float) -> None:
        self._columns: Columns = {}  # of the rows held, [N, nstep, ...]; slot = number of the row modulo nstep
        self._nstep, self._discount_factor = nstep, discount_factor
        self._count = np.zeros(env_num, np.int64)  # rows held, per env
        self._start = np.zeros(env_num, np.int64)  # number of the oldest row held, per env
        self._reward = np.zeros((env_num, nstep))
        # discount of the next reward of the window in that slot; 0: empty
        self._discount = np.zeros((env_num, nstep))
        self._in_env_order = np.arange(env_num, dtype=np.int64).tobytes()

    def push(self, rows: Columns, env_id: IntArray, done: BoolArray) -> tuple[Columns, IntArray]:
        """Takes one row per env of ``env_id`` and returns the rows that are now complete, with their envs."""
        nstep = self._nstep
        if not self._columns:
            shape = self._reward.shape
            held = (item for item in rows.items() if item[0] not in ('reward', *OF_LAST))
            self._columns = {k: np.empty(shape + v.shape[1:], v.dtype) for k, v in held}
        # store the rows, and add their rewards to those before them
        which: Any = slice(None) if env_id.tobytes() == self._in_env_order else env_id
        first = env_id * nstep  # places are counted through all envs
        place = first + (self._start[which] + self._count[which]) % nstep
        for name, column in self._columns.items():
            _flat(column)[place] = rows[name]
        _flat(self._reward)[place] = 0.0
        _flat(self._discount)[place] = 1.0
        self._reward[which] += self._discount[which] * rows['reward'][:, None]
        self._discount[which] *= self._discount_factor
        # find the rows that are complete
        count = self._count[which] + 1
        leaving = np.where(done, count, count == nstep)  # rows per env, [n]
        at = np.repeat(np.arange(len(env_id)), leaving)  # env of each leaving row
        age = np.arange(len(at)) - (leaving.cumsum() - leaving)[at]
        place = first[at] + (self._start[which][at] + age) % nstep
        # take them out
        whole = {name: _flat(column).take(place, axis=0) for name, column in self._columns.items()}
        whole['reward'] = _flat(self._reward).take(place).astype(rows['reward'].dtype)
        whole['value_gamma'] = _flat(self._discount).take(place).astype(np.float32)
        for name in OF_LAST:
            whole[name] = rows[name].take(at, axis=0)
        _flat(self._discount)[place] = 0.0
        self._start[which] += leaving
        self._count[which] = count - leaving
        return whole, env_id[at]

    @property
    def held(self) -> int:
        """Number of rows held."""
        return int(self._count.sum())

    def discard(self, env_id: IntArray) -> int:
        """Drops the held rows of these envs and returns their number."""
        dropped = int(self._count[env_id].sum())
        self._count[env_id], self._start[env_id], self._discount[env_id] = 0, 0, 0.0
        return dropped

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of all held rows."""
        return {**saved_arrays(self, ARRAYS), 'columns': _copied(self._columns)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'columns': dict_of(rows(len(self._count)))})
        load_arrays(self, ARRAYS, state)
        self._columns = _copied(state['columns'])


class TrajectoryRecorder:
    """Stores the rows of env steps until they are taken as training samples.

    Every array given to ``append`` is copied, every array returned by ``take`` belongs to the caller: nothing aliases.

    Args:
        env_num: Number of envs, N.
        nstep: Rewards in an n-step window, in env steps.
        discount_factor: Per env step, in [0, 1]; used when ``nstep`` > 1.
    """

    def __init__(self, env_num: int, nstep: int = 1, discount_factor: float = 1.0) -> None:
        self._env_num = env_num
        self._window = NStepWindow(env_num, nstep, discount_factor) if nstep > 1 else None
        self._columns: Columns = {}  # [capacity, ...]
        self._owner = np.zeros(0, np.int64)  # env of each sample, [capacity]
        self._size = 0
        self.in_order = True
        """Whether every append so far held one row of each env, in env order."""
        self._in_env_order = np.arange(env_num, dtype=np.int64).tobytes()

    def __len__(self) -> int:
        return self._size

    @property
    def held(self) -> int:
        """Number of env steps that wait in a window and are not yet part of a sample."""
        return 0 if self._window is None else self._window.held

    def append(self, rows: Columns, env_id: IntArray, done: BoolArray, reserve: int = 0) -> None:
        """Takes one row per env of ``env_id``.

        Args:
            rows: Columns [n, ...]; with ``nstep`` > 1 they must include ``reward``, ``next_obs``, ``terminated``,
                ``truncated``.
            env_id: Env of each row, [n], each at most once.
            done: True where the row ends an episode, [n].
            reserve: Number of samples that will be taken together, to allocate once.
        """
        if self._window is not None:
            rows, env_id = self._window.push(rows, env_id, done)
        count = len(env_id)
        if count == 0:
            return
        end = self._size + count
        if end > len(self._owner):
            self._grow(max(end, reserve + self._env_num, 2 * self._size), rows)
        for name, column in self._columns.items():
            column[self._size : end] = rows[name]
        self._owner[self._size : end] = env_id
        self.in_order = self.in_order and env_id.tobytes() == self._in_env_order
        self._size = end

    def add_column(self, name: str, value: Any) -> None:
        """Adds a column of one value, a NumPy scalar, to all rows that were not taken yet, unless they have it."""
        if self._window is not None:
            _fill(self._window._columns, name, value, 2)
        _fill(self._columns, name, value, 1)

    def _grow(self, capacity: int, rows: Columns) -> None:
        for name, column in rows.items():
            bigger = np.empty((capacity, *column.shape[1:]), column.dtype)
            if self._size:
                bigger[: self._size] = self._columns[name][: self._size]
            self._columns[name] = bigger
        self._owner = np.concatenate([self._owner[: self._size], np.zeros(capacity - self._size, np.int64)])

    def take(self, count: int | None = None) -> Batch:
        """Returns the oldest ``count`` finished samples (all where not given) and forgets them.

        Raises:
            ValueError: If there are fewer, or none at all.
        """
        count = self._size if count is None else count
        if not 0 < count <= self._size:
            raise ValueError(f'{count} samples were requested, {self._size} are finished')
        batch = Batch.unchecked({name: c[:count] for name, c in self._columns.items()}, count)
        left = self._columns.items() if count < self._size else ()
        self._columns = {name: c[count : self._size].copy() for name, c in left}
        self._owner = self._owner[count : self._size].copy()
        self._size = len(self._owner)
        self.in_order = len(self._owner) == 0
        return batch

    def take_block(self) -> Batch:
        """Returns all finished rows as columns [T, N, ...], and forgets them.

        Where the envs have different numbers of rows, T is the largest, the others are padded with zeros behind their
        last row and a column ``mask`` marks the real rows.
        """
        if self.in_order:
            flat = self.take()
            return flat.map(lambda c: c.reshape((-1, self._env_num, *c.shape[1:])))
        owner = self._owner[: self._size]
        counts = self.samples_per_env()
        by_env = np.argsort(owner, kind='stable')
        rank = np.empty(self._size, np.int64)  # number of earlier rows of the same env
        rank[by_env] = np.arange(self._size) - np.repeat(np.cumsum(counts) - counts, counts)
        shape = (int(counts.max()), self._env_num)
        block: Columns = {}
        for name, column in self._columns.items():
            block[name] = np.zeros(shape + column.shape[1:], column.dtype)
            block[name][rank, owner] = column[: self._size]
        if counts.min() < counts.max():
            block['mask'] = np.arange(shape[0])[:, None] < counts
        self.take()
        return Batch(block)

    def take_episodes(self, episodes: Sequence[tuple[int, int, int]]) -> list[Batch]:
        """Returns parts of the envs' finished rows as separate ``Batch`` es, and drops all rows.

        Args:
            episodes: Env, number of the first row among the env's own, and number behind the last one.
        """
        by_env = np.argsort(self._owner[: self._size], kind='stable')
        first = np.cumsum(self.samples_per_env()) - self.samples_per_env()
        rows = [by_env[first[env] + start : first[env] + stop] for env, start, stop in episodes]
        taken = [Batch({name: c[index] for name, c in self._columns.items()}) for index in rows]
        self.take()
        return taken

    def samples_per_env(self) -> IntArray:
        """Returns the number of finished samples of each env, [N]."""
        return np.bincount(self._owner[: self._size], minlength=self._env_num)

    def discard(self, env_id: IntArray, since: IntArray | None = None) -> int:
        """Drops the held rows of these envs, as after a step that must not count, and returns the number dropped.

        ``since`` is the number of finished samples to keep of each of them, [n]; all by default.
        """
        dropped = 0 if self._window is None else self._window.discard(env_id)
        if since is None:
            return dropped
        keep = np.ones(self._size, bool)
        for env, first in zip(env_id, since, strict=True):
            keep[np.flatnonzero(self._owner[: self._size] == env)[first:]] = False
        dropped += int((~keep).sum())
        self._keep(keep)
        return dropped

    def _keep(self, keep: BoolArray) -> None:
        self._columns = {name: column[: self._size][keep] for name, column in self._columns.items()}
        self._owner = self._owner[: self._size][keep]
        self._size = len(self._owner)
        self.in_order = len(self._owner) == 0

    def clear(self) -> int:
        """Drops all rows, held or finished, and returns the number of rows and samples."""
        dropped = self._size + self.discard(np.arange(self._env_num))
        self._keep(np.zeros(self._size, bool))
        return dropped

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of all rows, held or finished."""
        finished = {name: column[: self._size] for name, column in self._columns.items()}
        owner = self._owner[: self._size].copy()
        state = {'owner': owner, 'in_order': self.in_order, 'columns': _copied(finished)}
        return state if self._window is None else state | {'window': self._window.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'owner': array('iu', (None,)), 'in_order': FLAG})
        check_state(state, {'columns': dict_of(rows(len(state['owner'])))})
        self._owner = state['owner'].copy()
        self.in_order = state['in_order']
        self._size = len(self._owner)
        self._columns = _copied(state['columns'])
        if self._window is not None:
            with part('window'):
                self._window.load_state_dict(state['window'])


def _fill(columns: Columns, name: str, value: Any, axes: int) -> None:
    """Adds a column of one value to columns that share their first ``axes`` axes; returns no columns unchanged."""
    if columns and name not in columns:
        columns[name] = np.full(next(iter(columns.values())).shape[:axes], value)


def _flat(column: Array) -> Array:
    """Returns a view of a column [N, nstep, ...] as [N * nstep, ...]."""
    return column.reshape(column.shape[0] * column.shape[1], *column.shape[2:])


def _copied(columns: Columns) -> Columns:
    return {name: column.copy() for name, column in columns.items()}
