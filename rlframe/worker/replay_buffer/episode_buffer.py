"""The buffer of whole episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from rlframe.data import Batch, IntArray
from rlframe.errors import CheckpointMismatchError
from rlframe.registry import BUFFER_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.schema import COUNT, array, part_of
from rlframe.worker.replay_buffer.buffer import BufferConfig, NaiveReplayBuffer, to_numpy_block
from rlframe.worker.replay_buffer.ring import RingStorage, Storage, stack_items, to_items
from rlframe.worker.replay_buffer.sequence_buffer import done_of

FIRST_STEPS = 1024
"""Minimum initial size of a growing ring, in env steps."""


class EpisodeBufferConfig(BufferConfig):
    """Options of ``EpisodeReplayBuffer``."""

    replay_buffer_size: int = option(
        10000, range='[1, inf)', unit='episodes', doc='Largest number of episodes'
    )
    max_env_steps: int | None = option(
        None,
        range='[1, inf)',
        unit='env steps',
        doc='Largest total over all episodes, allocated by the first push; None: no limit',
    )


@BUFFER_REGISTRY.register('episode')
class EpisodeReplayBuffer(NaiveReplayBuffer):
    """Keeps the newest whole episodes and samples them uniformly.

    Its size is counted in episodes. Their memory depends on their length, unless ``max_env_steps`` limits it as well.
    The steps of all episodes are stored in one ring, which grows up to that limit; an episode is removed when its
    oldest step is overwritten.
    """

    _cfg: EpisodeBufferConfig
    supports_device = False

    def _build(self, cfg: Any) -> None:
        super()._build(cfg)
        self._episodes = Episodes()
        self._max_steps = self._cfg.max_env_steps

    @property
    def episode_len(self) -> list[int]:
        """Env steps of each episode, oldest first."""
        length: list[int] = self._episodes.length.tolist()
        return length

    def count(self) -> int:
        """Returns the number of episodes."""
        return len(self._episodes)

    def push(self, data: Any, cur_collector_envstep: int) -> int:
        """Adds episodes; the oldest ones are removed to make room.

        Args:
            data: An episode, or a list of episodes. An episode is a ``Batch`` [T, ...], or a list of mappings, which
                must be wrapped in a list.
            cur_collector_envstep: Env steps so far.

        Returns:
            How many episodes were accepted.

        Raises:
            TypeError: If an item is not an episode.
            ValueError: If an episode is not whole (its last step alone is done), or longer than ``max_env_steps``.
                Nothing is stored then.
            ResourceError: If the episodes do not fit into memory.
        """
        given = [data] if isinstance(data, Batch) else to_items(data)
        episodes = [self._checked(item, number) for number, item in enumerate(given)]
        self._envstep = cur_collector_envstep
        if not episodes:
            return 0
        kept = episodes[-self._capacity :]
        block = cast(Batch, self._to_block(Batch.cat(kept)))
        before = self.count()
        self._make_room(len(kept), block)
        storage = self._write(block)
        self._push_count += len(episodes) - len(block)  # _write counted steps
        self._episodes.append([len(episode) for episode in kept], storage.stop, storage.capacity)
        removed = before + len(episodes) - self.count()
        self._tally(pushed=len(episodes), removed=removed)
        return len(episodes)

    def _make_room(self, episodes: int, block: Batch) -> None:
        """Removes the oldest episodes if there are too many, and grows the ring if allowed."""
        steps = len(block)
        storage = cast(RingStorage | None, self._storage)
        if storage is None:
            self._storage = self._storage_for(block, self._max_steps or max(steps, FIRST_STEPS))
            return
        self._episodes.drop(max(len(self._episodes) + episodes - self._capacity, 0))
        first = int(self._episodes.start[0]) if len(self._episodes) else storage.stop
        storage.drop_oldest(first - storage.first)
        need = len(storage) + steps
        if self._max_steps is None and need > storage.capacity:
            self._storage = storage.resized(max(2 * storage.capacity, need))

    def _checked(self, item: Any, number: int) -> Batch:
        if isinstance(item, list | tuple) and item and all(isinstance(step, Mapping) for step in item):
            item = stack_items(item)
        if not isinstance(item, Batch):
            raise TypeError(
                f'{self._instance_name} takes episodes: each a Batch, or a list of mappings; item {number} is a'
                f' {type(item).__name__}. A single episode that is a list must be wrapped in a list'
            )
        episode = to_numpy_block(item)
        ends = np.flatnonzero(done_of(episode))
        if ends.tolist() != [len(episode) - 1]:
            raise ValueError(
                f'episode {number} is not whole: only the last of its {len(episode)} steps may be done; done are'
                f' {ends.tolist()[:5]}'
            )
        if self._max_steps is not None and len(episode) > self._max_steps:
            raise ValueError(
                f'episode {number} has {len(episode)} env steps, max_env_steps is {self._max_steps}'
            )
        return episode

    def _sampled_items(self) -> Storage:
        return self._episodes

    def _gather(self, slot: IntArray) -> list[Any]:
        """Returns copies of the episodes of these ages."""
        if len(slot) == 0:
            return []
        storage = cast(RingStorage, self._storage)
        length = self._episodes.length[slot]
        end = np.cumsum(length)
        row = np.repeat(self._episodes.start[slot] - (end - length), length) + np.arange(end[-1])
        steps = storage.gather(row % storage.capacity)
        return [steps[stop - count : stop] for stop, count in zip(end.tolist(), length.tolist(), strict=True)]

    def clear(self) -> None:
        super().clear()
        self._episodes = Episodes()

    def state_dict(self) -> dict[str, Any]:
        size = {'replay_buffer_size': self._capacity, 'episode_len': self._episodes.length.copy()}
        return {**super().state_dict(), **size}

    def _saved_capacity(self, storage: Mapping[str, Any]) -> int:
        return part_of(storage, 'capacity', COUNT) if self._max_steps is None else self._max_steps

    def _restore(self, state: Mapping[str, Any]) -> None:
        if (size := state.get('replay_buffer_size', self._capacity)) != self._capacity:
            raise CheckpointMismatchError(
                'the replay buffer has another size',
                where='replay_buffer_size',
                got=self._capacity,
                expected=f'{size}, as when it was saved',
            )
        super()._restore(state)
        self._episodes = Episodes()
        if self._storage is not None:
            length = part_of(state, 'episode_len', array('iu', (None,))).tolist()
            self._episodes.append(length, self._storage.stop, self._storage.capacity)


class Episodes:
    """Positions of each episode's steps in a ring of steps, oldest episode first."""

    def __init__(self) -> None:
        self.start: IntArray = np.empty(0, np.int64)
        """Number of the first step, [n]."""
        self.length: IntArray = np.empty(0, np.int64)
        """Steps, [n]."""

    def __len__(self) -> int:
        """Returns the number of episodes."""
        return len(self.start)

    def slots(self, age: IntArray) -> IntArray:
        """Returns the ages as they are: by them episodes are gathered."""
        return age

    def drop(self, count: int) -> None:
        """Removes the oldest episodes."""
        self.start, self.length = self.start[count:], self.length[count:]

    def append(self, length: list[int], stop: int, capacity: int) -> None:
        """Takes in the episodes that were stored last and drops those that are no longer whole.

        Args:
            length: Steps of each new episode.
            stop: Number of the next step.
            capacity: Slots of the ring.
        """
        new = np.array(length, np.int64)
        start = np.concatenate([self.start, stop - np.cumsum(new[::-1])[::-1]])
        is_whole = start >= stop - capacity
        self.start, self.length = start[is_whole], np.concatenate([self.length, new])[is_whole]
