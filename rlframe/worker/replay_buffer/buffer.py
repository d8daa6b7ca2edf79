"""The plain buffer: uniform samples."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from easydict import EasyDict

from rlframe.data import Batch
from rlframe.errors import BufferUnderflowError
from rlframe.registry import BUFFER_REGISTRY
from rlframe.utils.schema import DICT, part, part_of
from rlframe.worker.replay_buffer.base_buffer import Rows, locks_itself
from rlframe.worker.replay_buffer.monitor import PeriodicThruputMonitor
from rlframe.worker.replay_buffer.sampler import Sampler, UniformSampler
from rlframe.worker.replay_buffer.storage_buffer import (
    DEEPCOPY,
    SIZE,
    THROUGHPUT_SECONDS,
    TRACK_USED_DATA,
    BufferConfig,
    StorageBuffer,
)
from rlframe.worker.replay_buffer.stores.ring import Storage, StorageRange

logger = logging.getLogger(__name__)


class NaiveConfig(BufferConfig):
    """Options of buffers that draw uniformly."""

    periodic_thruput_seconds: float


@BUFFER_REGISTRY.register('naive')
class NaiveReplayBuffer(StorageBuffer):
    """Keeps the newest items and samples them uniformly, or as the sampler of a subclass says."""

    _cfg: NaiveConfig
    config = dict(
        replay_buffer_size=SIZE,
        deepcopy=DEEPCOPY,
        enable_track_used_data=TRACK_USED_DATA,
        periodic_thruput_seconds=THROUGHPUT_SECONDS,
    )

    def _build(self, cfg: EasyDict) -> None:
        self._sampler = self._build_sampler(cfg)
        seconds = self._cfg.periodic_thruput_seconds
        self._throughput = PeriodicThruputMonitor(seconds, self._instance_name, self._tb_logger, self._clock)
        self._has_warned = False

    def _build_sampler(self, cfg: EasyDict) -> Sampler:
        """Returns the sampler that draws the items; ``self._rng`` exists already."""
        return UniformSampler(self._rng)

    @locks_itself
    def push(self, data: Any, cur_collector_envstep: int) -> int:
        with self._lock:
            block = self._to_block(data)
            self._envstep, count = cur_collector_envstep, len(block)
            if not count:
                return 0
            before = len(self._storage) if self._storage is not None else 0
            self._write(block)
            removed = max(before + count - self._capacity, 0)
            self._throughput.record(pushed=count, removed=removed, have=self.count(), envstep=self._envstep)
            return count

    def sample(
        self, size: int, cur_learner_iter: int, sample_range: slice | None = None, replace: bool = False
    ) -> Rows | None:
        """Returns ``size`` random items, as fresh copies.

        Args:
            size: Number of items, >= 0.
            cur_learner_iter: Train iterations so far.
            sample_range: Slice over the age order that is sampled, the oldest item first: ``slice(-1000,
                None)`` is the newest thousand. ``None`` samples all.
            replace: Whether an item may recur in the batch.

        Returns:
            A ``Batch`` of numpy columns, or a list of objects; ``None``, with a warning, if there are fewer than
            ``size`` items, or none.
        """
        try:
            storage = self._sampled_storage(size, sample_range, replace)
        except BufferUnderflowError as error:
            self._lacking(error)
            return None
        if storage is None:
            return self._gather(np.empty(0, np.int64))
        draw = self._sampler.sample_with_replacement if replace else self._sampler.sample
        rows = self._gather(storage.slots(draw(size, storage)))
        self._throughput.record(sampled=size, have=self.count(), envstep=self._envstep)
        return rows

    @locks_itself
    def batches(self, count: int, size: int, cur_learner_iter: int) -> Iterator[Rows]:
        """Returns ``count`` batches of ``size`` items, all drawn and copied now, each without repetition.

        If a subclass overrides ``sample``, it is called once per batch.

        Raises:
            BufferUnderflowError: If there are fewer than ``size`` items, or none.
        """
        if type(self).sample is not NaiveReplayBuffer.sample:
            return super().batches(count, size, cur_learner_iter)
        with self._lock:
            storage = self._sampled_storage(min(count, 1) * size, None, False)
            if storage is None:
                return iter([self._gather(np.empty(0, np.int64)) for _ in range(count)])
            rows = self._gather(storage.slots(self._sampler.sample_batches(count, size, storage).reshape(-1)))
            self._throughput.record(sampled=count * size, have=self.count(), envstep=self._envstep)
        parts = (slice(start, start + size) for start in range(0, count * size, size))
        if isinstance(rows, list):
            return (rows[part] for part in parts)
        columns = dict(rows.items())
        return (Batch.unchecked({name: c[part] for name, c in columns.items()}, size) for part in parts)

    def update(self, info: Mapping[str, Any]) -> None:
        """Ignores priorities, as this buffer has none; logs so once."""
        if not self._has_warned:
            logger.warning("%s has no priorities to update; type 'advanced' has", self._instance_name)
        self._has_warned = True

    def clear(self) -> None:
        self._delete_tracked()
        if self._storage is not None:
            self._storage.clear()
        self._push_count = 0

    def _state(self, storage: Mapping[str, Any]) -> dict[str, Any]:
        return {**super()._state(storage), 'sampler': self._sampler.state_dict()}

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        with part('sampler'):
            self._sampler.load_state_dict(part_of(state, 'sampler', DICT))

    def _sampled_items(self) -> Storage | None:
        """Returns the items that can be sampled, ``None`` if nothing was ever pushed."""
        return self._storage

    def _sampled_storage(self, size: int, sample_range: slice | None, replace: bool) -> Storage | None:
        """Returns the view to sample from, ``None`` if nothing is requested."""
        if size == 0:
            return None
        storage = self._sampled_items()
        if storage is not None and sample_range is not None:
            storage = StorageRange(storage, sample_range)
        self._require(1 if replace else size, len(storage) if storage is not None else 0)
        return storage
