"""The prioritized buffer, with limits on use and staleness; the elastic buffer."""

from __future__ import annotations

import logging
import math
import numbers
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from easydict import EasyDict

from rlframe.data import Array, Batch, FloatArray, IntArray
from rlframe.errors import BufferUnderflowError, ConfigError
from rlframe.registry import BUFFER_REGISTRY, named_object
from rlframe.utils.field import Section, option
from rlframe.worker.replay_buffer.buffer import AnyStorage, NaiveReplayBuffer, Rows
from rlframe.worker.replay_buffer.device import check_memory
from rlframe.worker.replay_buffer.options import BufferConfig
from rlframe.worker.replay_buffer.ring import ADDED, Storage, StorageRange, split_priority, to_items

if TYPE_CHECKING:
    from rlframe.worker.replay_buffer.prioritized import Draw, PrioritizedSampler

logger = logging.getLogger(__name__)

SLOT_NBYTES = 14
"""Bytes of the priority and the use count of an item, and of the sums above it."""
SWEEP = 256
"""Items looked at together when stale ones are removed."""


KEPT_RATIO = 'the loop, or the coordinator, keeps the ratio of updates to collection'

KEY = 'set_buffer_size'


class ControlConfig(Section):
    """Section ``thruput_controller``."""

    push_sample_rate_limit: dict[str, Any] = option({}, ignored=KEPT_RATIO)
    window_seconds: float = option(30.0, range='(0, inf)', ignored=KEPT_RATIO)
    sample_min_limit_ratio: float = option(1.0, range='[0, inf)', doc='Items needed per item sampled')


class PriorityConfig(Section):
    """Options of buffers that draw by priority."""

    alpha: float = option(0.6, range='[0, 1]', doc='Exponent of priorities: 0 samples uniformly')
    beta: float = option(
        0.4, range='[0, 1]', doc='Exponent of importance weights at the start: 1 corrects fully'
    )
    anneal_step: int = option(
        100000, range='[0, inf)', unit='sample calls', doc='Calls until beta is 1; 0: constant'
    )
    is_normalization: Literal['buffer', 'batch'] = option(
        'buffer', doc='Items of which the smallest priority has an importance weight of 1'
    )


class AdvancedConfig(BufferConfig, PriorityConfig):
    """Options of ``AdvancedReplayBuffer``."""

    max_use: float = option(
        math.inf,
        range='[1, inf]',
        unit='samples',
        doc='An item sampled that often is removed; a round ends where too few are left',
    )
    max_staleness: float = option(
        math.inf, range='(0, inf]', unit='train iterations', doc='Items collected that long ago are removed'
    )
    thruput_controller: ControlConfig
    monitor: dict[str, Any] = option(
        {}, ignored='each sample has the use, priority and staleness of its items'
    )


@BUFFER_REGISTRY.register('advanced')
class AdvancedReplayBuffer(NaiveReplayBuffer):
    """Samples mappings in proportion to ``priority ** alpha``; the oldest, stale and worn-out ones go.

    Source:
        Schaul et al., Prioritized Experience Replay (2016), arXiv 1511.05952.
    """

    _cfg: AdvancedConfig
    config = dict(replay_buffer_size=4096)

    can_be_sharded = True
    _priorities: PrioritizedSampler

    def _build(self, cfg: EasyDict) -> None:
        super()._build(cfg)
        check_memory(SLOT_NBYTES * self._capacity, 'replay_buffer_size')
        own = self._cfg
        self._max_use, self._max_staleness = own.max_use, own.max_staleness
        self._priorities = self._build_priorities(own)
        self._min_ratio = own.thruput_controller.sample_min_limit_ratio

    @property
    def alpha(self) -> float:
        """Exponent of priorities."""
        return self._priorities.alpha

    @property
    def beta(self) -> float:
        """Exponent of the importance weights of the next sample."""
        return self._priorities.beta

    @beta.setter
    def beta(self, beta: float) -> None:
        self._priorities.beta = beta

    def count(self) -> int:
        return self._priorities.count

    def metrics(self) -> dict[str, float]:
        return {**super().metrics(), 'buffer/beta': self.beta}

    def push(self, data: Any, cur_collector_envstep: int) -> int:
        """Adds items with their ``priority`` or, without one, the largest priority reported so far.

        Args:
            data: A ``Batch``, a mapping (one item) or a list of mappings.
            cur_collector_envstep: Env steps so far.

        Returns:
            How many items were accepted.

        Raises:
            TypeError: If an item is no mapping.
            NonFiniteError: If a priority is NaN, infinite or negative.
        """
        data, priority = self._split_priority(self._whole(data))
        block = self._to_block(data)
        if priority is not None and len(priority) != len(block):
            raise ValueError(f'got {len(priority)} priorities for {len(block)} items')
        return self._add(block, cur_collector_envstep, priority)

    def sample(  # type: ignore[override]  # by priority, an item may always recur
        self, size: int, cur_learner_iter: int, sample_range: slice | None = None
    ) -> Rows | None:
        """Draws ``size`` items by priority, one from each of ``size`` equal parts of the total weight.

        Stale items are removed before sampling, items used up (``max_use``) afterwards; ``beta`` advances by one step.

        Args:
            size: Number of items, >= 0. An item can recur.
            cur_learner_iter: Train iterations so far.
            sample_range: Slice over the age order that is sampled, the oldest item first, with importance weights for
                that range alone. Takes time proportional to the range. ``None`` samples all.

        Returns:
            The pushed columns and ``replay_unique_id`` (int64), ``replay_buffer_idx`` (int64), ``priority`` (float32),
            ``IS`` (float32), ``use`` (int32) and ``staleness`` (int64, -1 without ``collect_iter``); for pushed
            objects, a list of copies with these keys. ``None``, with a warning, if there are fewer than ``size *
            sample_min_limit_ratio`` items, or none.
        """
        if size == 0:
            return self._gather(np.empty(0, np.int64))
        self._remove_stale(cur_learner_iter)
        try:
            need = math.ceil(size * self._min_ratio)
            have = self.count()
            if have < max(need, 1):
                raise self._underflow(need, have)
            draw = self._draw(size, sample_range)
        except BufferUnderflowError as error:
            logger.warning('returning None from %s', error)
            return None
        rows = self.drawn(draw, cur_learner_iter)
        if self._max_use != math.inf:
            self._priorities.remove(np.unique(draw.slot[draw.use >= self._max_use]))
        self._priorities.anneal()
        return rows

    def drawn(self, draw: Draw, cur_learner_iter: int, chance: FloatArray | None = None) -> Rows:
        """Returns the items that its sampler has drawn, as ``sample`` does; ``chance`` decides on goals of hindsight."""
        staleness = self._staleness(draw.slot, cur_learner_iter)
        return self._annotate(self._gather(draw.slot, chance), draw, staleness)

    def clear(self) -> None:
        """Forgets all items and the largest priority; ``push_count``, unique ids and ``beta`` continue."""
        pushed = self._push_count
        super().clear()
        self._push_count = pushed

    def load_state_dict(self, _state_dict: Mapping[str, Any], deepcopy: bool = False) -> None:
        """Restores a ``state_dict``; ``{'data': rows}`` pushes rows, a demonstration set for example.

        ``deepcopy`` has no effect: restored data are always copies.
        """
        super().load_state_dict(_state_dict)

    def _split_priority(self, data: Any) -> tuple[Any, FloatArray | None]:
        """Parts the pushed priorities, float64 [n], from the rest, without the columns that a sample adds."""
        if isinstance(data, Batch):
            return split_priority(data)
        items = to_items(data)
        for i, item in enumerate(items):
            if not isinstance(item, Mapping):
                raise TypeError(f'{self._instance_name} takes mappings; item {i} is a {type(item).__name__}')
        given = [item.get('priority') for item in items]
        rows = [{name: value for name, value in item.items() if name not in ADDED} for item in items]
        if all(priority is None for priority in given):
            return rows, None
        default = self._priorities.max_priority
        return rows, np.array([default if p is None else float(p) for p in given])

    def _draw(self, size: int, sample_range: slice | None) -> Draw:
        storage = cast(AnyStorage, self._storage)
        if sample_range is None:
            return self._priorities.draw(size, storage.stop)
        draw = self._priorities.draw_in(sample_range, size, storage)
        if draw is None:
            raise self._underflow(1, 0)
        return draw

    def _annotate(self, rows: Rows, draw: Draw, staleness: IntArray) -> Rows:
        added: dict[str, Array] = {
            'replay_unique_id': draw.row,
            'replay_buffer_idx': draw.slot,
            'priority': draw.priority,
            'IS': draw.IS,
            'use': draw.use,
            'staleness': staleness,
        }
        if isinstance(rows, Batch):
            return Batch.unchecked({**dict(rows.items()), **added}, len(rows))
        columns = zip(*(column.tolist() for column in added.values()), strict=True)
        return [
            {**row, **dict(zip(added, values, strict=True))}
            for row, values in zip(rows, columns, strict=True)
        ]

    def _staleness(self, slot: IntArray, cur_learner_iter: int) -> IntArray:
        """Returns the number of updates since the items were collected, -1 if unknown. int64 [n]."""
        collect_iter = self._storage.row_min('collect_iter', slot) if self._storage is not None else None
        if collect_iter is None:
            return np.full(len(slot), -1)
        staleness: IntArray = np.nan_to_num(cur_learner_iter - collect_iter, nan=-1).astype(np.int64)
        return staleness

    def _remove_stale(self, cur_learner_iter: int) -> None:
        """Removes the oldest items as long as they are too stale."""
        storage = self._storage
        if self._max_staleness == math.inf or storage is None:
            return
        while len(storage):
            slot = storage.window(slice(SWEEP))
            is_stale = self._staleness(slot, cur_learner_iter) >= self._max_staleness
            is_gone = is_stale | ~self._priorities.is_present(slot)
            count = len(slot) if is_gone.all() else int(is_gone.argmin())
            self._priorities.remove(slot[:count])
            storage.drop_oldest(count)
            if count < len(slot):
                break


def _check_function(value: Any) -> str:
    is_name = isinstance(value, str) and value.count(':') == 1
    return '' if callable(value) or is_name else "a function of the env step, or 'module:function'"


class ElasticConfig(BufferConfig):
    """Options of ``ElasticReplayBuffer``."""

    set_buffer_size: Any = option(
        None,
        unit='items',
        doc="Function of the env step that says how many of the newest items are sampled, or 'module:function'; None: all",
        check=_check_function,
        reaches='code',
    )


@BUFFER_REGISTRY.register('elastic')
class ElasticReplayBuffer(NaiveReplayBuffer):
    """Samples the newest k items uniformly, where k is a function of the env steps so far.

    Items that are not among the newest k are kept, so k can grow again.
    """

    _cfg: ElasticConfig

    def _build(self, cfg: Any) -> None:
        super()._build(cfg)
        self._size_at = _function(self._cfg.set_buffer_size)
        self._resize(0)

    def _resize(self, envstep: int) -> None:
        size = self._capacity if self._size_at is None else self._size_at(envstep)
        if not isinstance(size, numbers.Integral) or size < 1:
            raise ConfigError(
                f'the function returned an impossible size at env step {envstep}',
                where=f'policy.other.replay_buffer.{KEY}',
                got=size,
                expected='an int >= 1',
            )
        self._newest = int(size)

    def count(self) -> int:
        """Returns the number of items that can be sampled: all, or the newest k."""
        return min(super().count(), self._newest)

    def push(self, data: Any, cur_collector_envstep: int) -> int:
        count = super().push(data, cur_collector_envstep)
        self._resize(cur_collector_envstep)
        return count

    def update(self, info: Mapping[str, Any] | int) -> None:
        """Recomputes the number of items that are sampled, from the env steps so far; ``push`` receives them too.

        Reports of a learner, mappings, are ignored.
        """
        if isinstance(info, Mapping):
            super().update(info)
        else:
            self._envstep = int(info)
            self._resize(self._envstep)

    def _sampled_items(self) -> Storage | None:
        storage = super()._sampled_items()
        return None if storage is None else StorageRange(storage, slice(-self.count(), None))

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        self._resize(self._envstep)


def _function(value: Any) -> Callable[[int], Any] | None:
    """Returns the function that a config means.

    Raises:
        ConfigError: If a name is unknown.
    """
    if isinstance(value, str):
        value = named_object(value, f'policy.other.replay_buffer.{KEY}')
    function: Callable[[int], Any] | None = value
    return function
