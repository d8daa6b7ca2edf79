"""The buffer of whole episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from rlframe.data import Batch, IntArray
from rlframe.registry import BUFFER_REGISTRY
from rlframe.utils.field import Field
from rlframe.worker.replay_buffer.block import stack_items, to_items
from rlframe.worker.replay_buffer.buffer import NaiveReplayBuffer
from rlframe.worker.replay_buffer.storage import RingStorage, Storage
from rlframe.worker.replay_buffer.storage_buffer import to_numpy_block
from rlframe.worker.replay_buffer.trajectories import done_of


@BUFFER_REGISTRY.register('episode')
class EpisodeReplayBuffer(NaiveReplayBuffer):
    """Keeps the newest whole episodes, as many as have room, and samples them uniformly.

    Its size is in env steps, so that its memory is known beforehand; everything else counts episodes. The steps of all
    episodes lie in one ring: when the oldest step of an episode is overwritten, the episode goes.
    """

    config = dict(
        replay_buffer_size=Field(
            10000, range='[1, inf)', unit='env steps', doc='Largest number of env steps, over all episodes'
        ),
    )

    def _build(self, cfg: Any) -> None:
        super()._build(cfg)
        self._episodes = Episodes()

    @property
    def episode_len(self) -> list[int]:
        """Env steps of each episode, oldest first."""
        length: list[int] = self._episodes.length.tolist()
        return length

    def count(self) -> int:
        """Returns how many episodes there are."""
        return len(self._episodes)

    def push(self, data: Any, cur_collector_envstep: int) -> int:
        """Adds episodes; the oldest make room.

        Args:
            data: An episode, or a list of episodes. An episode is a ``Batch`` [T, ...], or a list of mappings, which
                must be wrapped in a list.
            cur_collector_envstep: Env steps made so far.

        Returns:
            How many episodes were accepted.

        Raises:
            TypeError: If an item is no episode.
            ValueError: If an episode is not whole (its last step alone is done), or larger than the buffer. Nothing is
                stored then.
        """
        given = [data] if isinstance(data, Batch) else to_items(data)
        episodes = [self._checked(item, number) for number, item in enumerate(given)]
        self._envstep = cur_collector_envstep
        if not episodes:
            return 0
        block = cast(Batch, self._to_block(Batch.cat(episodes)))
        before = self.count()
        storage = self._write(block)
        self._push_count += len(episodes) - len(block)  # _write counted steps
        self._episodes.append([len(episode) for episode in episodes], storage.stop, self._capacity)
        have = self.count()
        removed = before + len(episodes) - have
        self._throughput.record(pushed=len(episodes), removed=removed, have=have, envstep=self._envstep)
        return len(episodes)

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
                f'episode {number} is not whole: of its {len(episode)} steps the last one alone is to be done; done are'
                f' {ends.tolist()[:5]}'
            )
        if len(episode) > self._capacity:
            raise ValueError(
                f'episode {number} has {len(episode)} env steps, replay_buffer_size is {self._capacity}'
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
        steps = storage.gather(row % self._capacity)
        return [steps[stop - count : stop] for stop, count in zip(end.tolist(), length.tolist(), strict=True)]

    def clear(self) -> None:
        super().clear()
        self._episodes = Episodes()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), 'episode_len': self._episodes.length.copy()}

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        self._episodes = Episodes()
        if self._storage is not None:
            length = np.asarray(state['episode_len']).tolist()
            self._episodes.append(length, self._storage.stop, self._capacity)


class Episodes:
    """Where the steps of each episode lie in a ring of steps, oldest episode first."""

    def __init__(self) -> None:
        self.start: IntArray = np.empty(0, np.int64)
        """Number of the first step, [n]."""
        self.length: IntArray = np.empty(0, np.int64)
        """Steps, [n]."""

    def __len__(self) -> int:
        """Returns how many episodes there are."""
        return len(self.start)

    def slots(self, age: IntArray) -> IntArray:
        """Returns the ages as they are: by them episodes are gathered."""
        return age

    def append(self, length: list[int], stop: int, capacity: int) -> None:
        """Takes in the episodes that were stored last and drops those that are no longer whole.

        Args:
            length: Steps of each new episode.
            stop: Number of the step that comes next.
            capacity: Slots of the ring.
        """
        new = np.array(length, np.int64)
        start = np.concatenate([self.start, stop - np.cumsum(new[::-1])[::-1]])
        is_whole = start >= stop - capacity
        self.start, self.length = start[is_whole], np.concatenate([self.length, new])[is_whole]
