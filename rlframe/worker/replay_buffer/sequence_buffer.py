"""The buffer of sequences: consecutive steps of one episode."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from easydict import EasyDict

from rlframe.data import Array, Batch, BoolArray, IntArray
from rlframe.errors import BufferUnderflowError
from rlframe.registry import BUFFER_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.schema import DICT, array, check_state, part
from rlframe.worker.replay_buffer.advanced_buffer import PriorityConfig
from rlframe.worker.replay_buffer.buffer import NaiveReplayBuffer, Rows
from rlframe.worker.replay_buffer.options import BufferConfig
from rlframe.worker.replay_buffer.ring import RingStorage, done_of, split_priority, to_items

if TYPE_CHECKING:
    from rlframe.worker.replay_buffer.prioritized import Draw

logger = logging.getLogger(__name__)

NONE = -1
"""Marks a missing row, in place of its number."""


class Trajectories:
    """Links each row of a ring to the rows before and after it in its trajectory, however trajectories are interleaved.

    Row numbers are those of a ``Ring``. An overwritten row is no predecessor, as it is older than ``first``; a
    successor is younger than its predecessor and so always exists.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._before = np.full(capacity, NONE)  # number of the row before, by slot
        self._after = np.full(capacity, NONE)
        self._running: dict[int, int] = {}  # env to the number of the last row of its running trajectory

    def append(self, row: int, env_id: IntArray, begins: BoolArray, ends: BoolArray) -> None:
        """Takes in new rows, from a row number on, in time order per env.

        ``env_id`` is the env of each row, [n]; ``begins`` and ``ends`` mark rows that start and end a trajectory, [n].
        """
        order = np.argsort(env_id, kind='stable')
        env = env_id[order]
        begun = begins[order]
        ended = ends[order]
        number = row + order
        is_same = env[1:] == env[:-1]
        before = np.full(len(env), NONE)
        before[1:] = np.where(is_same & ~ended[:-1], number[:-1], NONE)
        heads = [0, *(np.flatnonzero(~is_same) + 1).tolist()]
        for head, stop in zip(heads, [*heads[1:], len(env)], strict=True):
            before[head] = self._running.pop(int(env[head]), NONE)
            if not ended[stop - 1]:
                self._running[int(env[head])] = int(number[stop - 1])
        before[begun] = NONE
        self._link(number, before, row + len(env) - self._capacity)

    def _link(self, number: IntArray, before: IntArray, first: int) -> None:
        """Writes the links of the rows that stay, from number ``first`` on."""
        number, before = number[number >= first], before[number >= first]
        self._before[number % self._capacity] = before
        self._after[number % self._capacity] = NONE
        linked = before >= max(first, 0)
        self._after[before[linked] % self._capacity] = number[linked]

    def around(self, row: IntArray, back: int, ahead: int, first: int) -> IntArray:
        """Returns the rows that surround others in their trajectories.

        Args:
            row: Row numbers, [n].
            back: How many rows before each.
            ahead: How many rows after each.
            first: Number of the oldest row that is present.

        Returns:
            Row numbers in time order, ``NONE`` for missing rows, [n, back + 1 + ahead].
        """
        rows = np.full((len(row), back + 1 + ahead), NONE)
        rows[:, back] = row
        for column in range(back, 0, -1):
            here = rows[:, column]
            before = self._before[here % self._capacity]
            rows[:, column - 1] = np.where((here != NONE) & (before >= first), before, NONE)
        for column in range(back, back + ahead):
            here = rows[:, column]
            rows[:, column + 1] = np.where(here != NONE, self._after[here % self._capacity], NONE)
        return rows

    def state_dict(self, number: IntArray) -> dict[str, Any]:
        """Returns the data of the rows with these numbers, all that are present, oldest first."""
        running = np.array(list(self._running.items()), np.int64).reshape(-1, 2)
        return {'before': self._before[number % self._capacity], 'running': running}

    def load_state_dict(self, state: Mapping[str, Any], number: IntArray) -> None:
        """Restores the data of these rows."""
        check_state(state, {'running': array('iu', (None, 2)), 'before': array('iu', number.shape)})
        self._running = {int(env): int(row) for env, row in state['running']}
        if len(number):
            self._link(number, np.array(state['before'], np.int64), int(number[0]))


class SequenceConfig(BufferConfig, PriorityConfig):
    """Options of ``SequenceReplayBuffer``."""

    replay_buffer_size: int = option(
        10000, range='[1, inf)', unit='env steps', doc='Largest number of env steps'
    )
    unroll_len: int = option(
        16, range='[1, inf)', unit='env steps', doc='Length of a sequence, without burn-in'
    )
    burn_in: int = option(
        0, range='[0, inf)', unit='env steps', doc='Steps before a sequence that come along with it'
    )
    priority: bool = option(
        False, doc='Draw by priority; the drawn step carries the priority of its sequence'
    )


@BUFFER_REGISTRY.register('sequence')
class SequenceReplayBuffer(NaiveReplayBuffer):
    """Keeps single env steps and samples sequences of them that never cross an episode.

    A step is drawn, uniformly or by priority, and the sequence that starts with it is returned. If the known part of
    the episode ends too soon, the sequence starts earlier; only an episode shorter than the sequence is padded, after
    its end. Up to ``burn_in`` steps before the sequence are included, with padding in front of them. So every step of
    an episode is drawn equally often, and its last step is in as many sequences as any other.

    Steps can be pushed as complete episodes, or in the order of collection, with the column ``env_id`` if there are
    several envs and ``episode_step`` (0 starts an episode) if episodes can be cut.
    """

    _cfg: SequenceConfig
    supports_device = supports_hindsight = False
    can_be_sharded = True

    def _build(self, cfg: EasyDict) -> None:
        super()._build(cfg)
        self._trajectories = Trajectories(self._capacity)
        self._unroll_len, self._burn_in = self._cfg.unroll_len, self._cfg.burn_in
        if self._cfg.priority:
            self._priorities = self._build_priorities(self._cfg)

    def push(self, data: Any, cur_collector_envstep: int) -> int:
        """Adds env steps; the oldest make room. With priorities, those without a ``priority`` get the largest one reported so far.

        Args:
            data: A list of episodes, each a ``Batch`` [T, ...], or steps in time order, as a ``Batch`` [n, ...], a
                mapping or a list of mappings.
            cur_collector_envstep: Env steps so far.

        Returns:
            How many steps were accepted.

        Raises:
            ValueError: If no column marks the ends of episodes, or steps of several envs lack ``env_id``.
            NonFiniteError: If a priority is NaN, infinite or negative.
        """
        # the env of each row, and where trajectories begin and end
        items = to_items(data)
        if isinstance(items, list) and items and all(isinstance(item, Batch) for item in items):
            lengths = [len(episode) for episode in items]
            block = self._to_block(Batch.cat(items))
            ends = np.zeros(len(block), bool)
            ends[np.cumsum(lengths) - 1] = True
            env_id: IntArray = np.repeat(-1 - np.arange(len(lengths)), lengths)  # no env has such a number
            begins = np.zeros(len(block), bool)
        else:
            block = self._to_block(items)
            if not isinstance(block, Batch):
                if not block:
                    return 0
                kind = type(block[0]).__name__
                raise TypeError(
                    f'{self._instance_name} takes whole episodes, or env steps as columns; got {kind} items'
                )
            env_id, begins, ends = self._places(block)
        # store
        priority = None
        if self._priorities is not None and isinstance(block, Batch):
            block, priority = split_priority(block)
        count = self._add(block, cur_collector_envstep, priority)
        if count and self._storage is not None:
            self._trajectories.append(self._storage.stop - count, env_id, begins, ends)
        return count

    def _places(self, rows: Batch) -> tuple[IntArray, BoolArray, BoolArray]:
        """Returns the env of each step, and where episodes begin and end, each [n]."""
        ends = done_of(rows)
        begins = np.zeros(len(rows), bool)
        if 'episode_step' in rows:
            begins = np.asarray(rows['episode_step']) == 0
        if 'env_id' in rows:
            return np.asarray(rows['env_id']).astype(np.int64), begins, ends
        self._check_one_env(rows, begins[1:] | ends[:-1])
        return np.zeros(len(rows), np.int64), begins, ends

    def _check_one_env(self, rows: Batch, free: BoolArray) -> None:
        """Refuses steps that do not follow each other, as steps of several envs do not.

        ``free`` marks the steps but the first that begin an episode, [n - 1].
        """
        if not ('obs' in rows and 'next_obs' in rows and isinstance(rows['obs'], np.ndarray)):
            return
        obs, reached = rows['obs'][1:], rows['next_obs'][:-1]
        is_same = (obs == reached) | ((obs != obs) & (reached != reached))  # NaN is the same as NaN
        if not (is_same.all(tuple(range(1, is_same.ndim))) | free).all():
            raise ValueError(
                f'{self._instance_name} got env steps that do not follow each other: the obs of one is not the next_obs of'
                " the one before. Push whole episodes (collector 'episode'), or steps with the columns env_id and"
                ' episode_step (collector.mark_episodes=True)'
            )

    def sample(  # type: ignore[override]  # the public signature
        self,
        batch: int,
        sequence: int,
        cur_learner_iter: int,
        sample_range: slice | None = None,
        replace: bool = False,
    ) -> Rows | None:
        """Returns ``batch`` random sequences, as fresh copies.

        Args:
            batch: Number of sequences, >= 0.
            sequence: Length of a sequence in env steps, without burn-in, >= 1.
            cur_learner_iter: Train iterations so far.
            sample_range: Slice over the age order of the steps that can be drawn, the oldest first. A sequence may
                contain others.
            replace: Whether a step may be drawn twice; with priorities it always may.

        Returns:
            The pushed columns, [batch, burn_in + sequence, ...], and ``mask``, False where there is padding (zeros).
            The sequence starts at column ``burn_in``. With priorities also ``replay_unique_id``, ``replay_buffer_idx``,
            ``priority`` and ``IS`` of the drawn steps, [batch]. ``None``, with a warning, if there are fewer than
            ``batch`` steps, or none.

        Raises:
            ValueError: If ``sequence`` is less than 1.
        """
        if sequence < 1:
            raise ValueError(f'sequence must be >= 1, got {sequence}')
        if batch == 0:
            return self._gather(np.empty(0, np.int64))
        try:
            items = self._items(1 if replace or self._priorities is not None else batch, sample_range)
        except BufferUnderflowError as error:
            logger.warning('returning None from %s', error)
            return None
        if self._priorities is None:
            draw = self._sampler.sample_with_replacement if replace else self._sampler.sample
            return self._sequences(items.slots(draw(batch, items)), sequence)
        assert isinstance(self._storage, RingStorage)  # which has the items
        if sample_range is None:
            drawn = self._priorities.draw(batch, self._storage.stop)
        else:
            drawn = cast('Draw', self._priorities.draw_in(sample_range, batch, self._storage))
        self._priorities.anneal()
        return self._described(drawn, sequence)

    def drawn(self, draw: Draw, cur_learner_iter: int) -> Rows:
        """Returns the sequences of ``unroll_len`` that start with the steps that its sampler has drawn."""
        return self._described(draw, self._unroll_len)

    def _described(self, draw: Draw, sequence: int) -> Batch:
        return self._sequences(draw.slot, sequence).replace(
            replay_unique_id=draw.row, replay_buffer_idx=draw.slot, priority=draw.priority, IS=draw.IS
        )

    def _sequences(self, slot: IntArray, sequence: int) -> Batch:
        """Returns the sequences of drawn steps, [n, burn_in + sequence, ...]."""
        assert isinstance(self._storage, RingStorage)  # which has the steps
        stop = self._storage.stop
        row = stop - 1 - (stop - 1 - slot) % self._capacity
        return self._rows(self._storage, self._around(row, sequence, self._storage.first))

    def batches(self, count: int, size: int, cur_learner_iter: int) -> Iterator[Rows]:
        """Returns ``count`` batches of ``size`` sequences of ``unroll_len``, each sampled when it is asked for."""
        return (self._required(size, self._unroll_len, cur_learner_iter) for _ in range(count))

    def _around(self, row: IntArray, sequence: int, first: int) -> IntArray:
        """Returns the rows of the sequence of each drawn row, ``NONE`` for padding, [n, burn_in + sequence]."""
        back = self._burn_in + sequence - 1
        rows = self._trajectories.around(row, back, sequence - 1, first)
        following = (rows[:, back:] != NONE).sum(1)  # the drawn one included
        preceding = (rows[:, :back] != NONE).sum(1)
        begin = back - np.minimum(sequence - following, preceding)
        column = (begin - self._burn_in)[:, None] + np.arange(self._burn_in + sequence)
        return np.take_along_axis(rows, column, 1)

    def _rows(self, storage: RingStorage, row: IntArray) -> Batch:
        mask = row != NONE
        padding = np.flatnonzero(~mask)

        def padded(column: Array) -> Array:
            column[padding] = 0
            return column.reshape(*row.shape, *column.shape[1:])

        slot = np.where(mask, row, storage.first) % self._capacity
        return storage.gather(slot.reshape(-1)).map(padded).replace(mask=mask)

    def _state(self, storage: Mapping[str, Any]) -> dict[str, Any]:
        return {**super()._state(storage), 'trajectories': self._trajectories.state_dict(self._numbers())}

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        check_state(state, {'trajectories': DICT})
        with part('trajectories'):
            self._trajectories.load_state_dict(state['trajectories'], self._numbers())

    def _numbers(self) -> IntArray:
        """Returns the numbers of all steps, oldest first."""
        storage = self._storage
        return np.arange(storage.first, storage.stop) if storage is not None else np.empty(0, np.int64)
