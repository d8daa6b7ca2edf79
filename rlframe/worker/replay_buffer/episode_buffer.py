"""The buffer of whole episodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from rlframe.data import Batch
from rlframe.data.timestep import to_tree
from rlframe.errors import CheckpointStateError
from rlframe.registry import BUFFER_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.schema import COLUMN, DICT, TEXT, array, check_state, dict_of, part, part_of
from rlframe.worker.replay_buffer.buffer import NaiveReplayBuffer
from rlframe.worker.replay_buffer.options import BufferConfig
from rlframe.worker.replay_buffer.ring import (
    ObjectStorage,
    done_of,
    pair_columns,
    stack_items,
    to_items,
    to_numpy,
)


class EpisodeBufferConfig(BufferConfig):
    """Options of ``EpisodeReplayBuffer``."""

    replay_buffer_size: int = option(
        10000, range='[1, inf)', unit='episodes', doc='Largest number of episodes'
    )
    frames: Literal['auto', 'copied'] = option('auto', doc='Stacked images are kept whole in either case')


@BUFFER_REGISTRY.register('episode')
class EpisodeReplayBuffer(NaiveReplayBuffer):
    """Keeps the newest whole episodes and samples them uniformly.

    Its size is counted in episodes, so their memory depends on their length. An episode is a ``Batch``, kept as an object.
    """

    _cfg: EpisodeBufferConfig
    _storage: ObjectStorage | None
    supports_device = supports_hindsight = False

    def _build(self, cfg: Any) -> None:
        super()._build(cfg)
        self._lengths: deque[int] = deque(maxlen=self._capacity)

    @property
    def episode_len(self) -> list[int]:
        """Env steps of each episode, oldest first."""
        return list(self._lengths)

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
            ValueError: If an episode is not whole (its last step alone is done), or has other columns than the episodes
                before. Nothing is stored then.
        """
        given = [data] if isinstance(data, Batch) else to_items(data)
        episodes = [self._checked(item, number) for number, item in enumerate(given)]
        known = [*self._newest(1), *episodes]
        for episode in known[1:]:
            pair_columns(to_tree(known[0]), episode)
        count = super().push(episodes, cur_collector_envstep)
        self._lengths.extend(map(len, episodes))
        return count

    def _checked(self, item: Any, number: int) -> Batch:
        if isinstance(item, list | tuple) and item and all(isinstance(step, Mapping) for step in item):
            item = stack_items(item)
        if not isinstance(item, Batch):
            raise TypeError(
                f'{self._instance_name} takes episodes: each a Batch, or a list of mappings; item {number} is a'
                f' {type(item).__name__}. A single episode that is a list must be wrapped in a list'
            )
        episode: Batch = to_numpy(item)
        ends = np.flatnonzero(done_of(episode))
        if ends.tolist() != [len(episode) - 1]:
            raise ValueError(
                f'episode {number} is not whole: only the last of its {len(episode)} steps may be done; done are'
                f' {ends.tolist()[:5]}'
            )
        return episode

    def _copy(self, items: list[Batch]) -> list[Batch]:
        return [episode.map(np.copy) for episode in items]

    def _newest(self, count: int | None = None) -> list[Batch]:
        """Returns the newest episodes, all by default, oldest first."""
        storage = self._storage
        if storage is None:
            return []
        return storage.gather(storage.window(slice(None if count is None else -count, None)))

    def clear(self) -> None:
        super().clear()
        self._lengths.clear()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state, in which the steps of all episodes are joined to columns."""
        storage = self._storage
        episodes = self._newest()
        saved: dict[str, Any] = {}
        if storage is not None:
            saved = {'capacity': storage.capacity, 'first': storage.first, 'stop': storage.stop}
            saved['columns'] = to_tree(Batch.cat(self._copy(episodes))) if episodes else {}
        return {**self._state(saved), 'episode_len': np.array(self._lengths, np.int64)}

    def _restore(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'kind': TEXT, 'storage': DICT})
        lengths = part_of(state, 'episode_len', array('iu', (None,))).tolist()
        saved = state['storage']
        if state['kind']:
            with part('storage'):
                columns = part_of(saved, 'columns', dict_of(COLUMN))
            steps = to_numpy(columns) if lengths else []
            if len(steps) != sum(lengths):
                raise CheckpointStateError(
                    f'the state should have {sum(lengths)} env steps, but has {len(steps)}'
                )
            stops = np.cumsum(lengths).tolist()
            items = [steps[stop - length : stop] for stop, length in zip(stops, lengths, strict=True)]
            saved = {**saved, 'items': {str(number): item for number, item in enumerate(items)}}
        super()._restore({**state, 'storage': saved})
        self._lengths = deque(lengths, maxlen=self._capacity)
