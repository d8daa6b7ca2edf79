"""The plain buffer, whose samples are uniform; the others extend it."""

from __future__ import annotations

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, cast

import numpy as np
from easydict import EasyDict

from rlframe.data import Batch, IntArray
from rlframe.data.staging import existing_device
from rlframe.errors import BufferUnderflowError, ConfigError
from rlframe.registry import BUFFER_REGISTRY
from rlframe.run.metrics import ScalarWriter
from rlframe.utils.field import Section, option
from rlframe.utils.schema import COUNT, DICT, GENERATOR, TEXT, Schema, check_state, part
from rlframe.worker.replay_buffer.base_buffer import IBuffer, Rows
from rlframe.worker.replay_buffer.device import DEVICE, DEVICE_KEY
from rlframe.worker.replay_buffer.frames import FrameStorage, stacked_columns
from rlframe.worker.replay_buffer.ring import (
    ObjectStorage,
    RingStorage,
    Storage,
    StorageRange,
    is_numeric,
    read_priorities,
    stack_items,
    to_items,
    to_numpy,
)

if TYPE_CHECKING:
    import torch

    from rlframe.worker.replay_buffer.prioritized import PrioritizedSampler

logger = logging.getLogger(__name__)

AnyStorage: TypeAlias = RingStorage | ObjectStorage


STATE: dict[str, Schema] = {
    'kind': TEXT,
    'storage': DICT,
    'push_count': COUNT,
    'envstep': COUNT,
    'rng': GENERATOR,
}


class Sampler(ABC):
    """Draws items by age; the buffer checks beforehand that it is not empty.

    What draws depend on is the buffer's own random generator, which is saved with the buffer.
    """

    @abstractmethod
    def sample(self, size: int, storage: Storage) -> IntArray:
        """Draws one batch.

        Args:
            size: Number of items, >= 1; at most ``len(storage)``, unless the user allowed repetition.
            storage: Storage to sample from; with a ``sample_range``, only the items in that range.

        Returns:
            Ages in [0, len(storage)), int [size].
        """

    def sample_with_replacement(self, size: int, storage: Storage) -> IntArray:
        """Draws one batch in which items may recur, int [size]."""
        return self.sample(size, storage)

    def sample_batches(self, count: int, size: int, storage: Storage) -> IntArray:
        """Draws several batches from one state of the storage, int [count, size]."""
        return np.stack([self.sample(size, storage) for _ in range(count)])


class UniformSampler(Sampler):
    """Every set of ``size`` distinct items is equally likely.

    Args:
        rng: Random generator.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def sample(self, size: int, storage: Storage) -> IntArray:
        age: IntArray = self.sample_batches(1, size, storage)[0]
        return age

    def sample_with_replacement(self, size: int, storage: Storage) -> IntArray:
        age: IntArray = self._rng.integers(0, len(storage), size)
        return age

    def sample_batches(self, count: int, size: int, storage: Storage) -> IntArray:
        population = len(storage)
        if size * size > population:
            rows = [self._rng.choice(population, size, replace=False, shuffle=False) for _ in range(count)]
            return np.stack(rows)
        # A batch repeats an item with a probability below 0.4: drawing it again is less than a permutation.
        age = self._rng.integers(0, population, (count, size))
        bad = _has_repeat(age)
        while bad.size:
            age[bad] = self._rng.integers(0, population, (bad.size, size))
            bad = bad[_has_repeat(age[bad])]
        return age


def _has_repeat(age: IntArray) -> IntArray:
    """Returns which rows contain a number twice."""
    ordered = age.copy()
    ordered.sort(axis=1)
    is_same = ordered[:, 1:] == ordered[:, :-1]
    return np.flatnonzero(is_same.any(axis=1)) if is_same.any() else np.empty(0, np.int64)


class BufferConfig(Section):
    """Options of every built-in buffer."""

    replay_buffer_size: int = option(10000, range='[1, inf)', unit='items', doc='Largest number of items')
    device: str = DEVICE
    frames: Literal['auto', 'once', 'copied'] = option(
        'auto',
        doc="How stacked images are kept: 'once' keeps each frame once, 'copied' whole stacks, 'auto' once where"
        ' env.frame_stack stacks uint8 images',
    )
    frame_stack: int = option(
        1,
        range='[1, inf)',
        unit='env steps',
        doc='Frames in an observation, along its first axis; set by env.frame_stack',
    )
    deepcopy: bool = option(False, doc='Copy objects when pushed and when sampled; columns are always copied')
    enable_track_used_data: bool = option(False, ignored='rows are kept in memory')
    periodic_thruput_seconds: float = option(60.0, range='(0, inf]', ignored='nothing is logged by time')


class PriorityConfig(Section):
    """Options of buffers that draw by priority."""

    alpha: float = option(0.6, range='[0, 1]', doc='Exponent of priorities: 0 samples uniformly')
    beta: float = option(
        0.4, range='[0, 1]', doc='Exponent of importance weights at the start: 1 corrects fully'
    )
    anneal_step: int = option(
        100000, range='[0, inf)', unit='sample calls', doc='Until beta is 1; 0 keeps it constant'
    )
    is_normalization: Literal['buffer', 'batch'] = option(
        'buffer', doc='Which smallest priority has an importance weight of 1'
    )


@BUFFER_REGISTRY.register('naive')
class NaiveReplayBuffer(IBuffer):
    """Keeps the newest items in a storage, and draws from them with a sampler, by default uniformly.

    The first push decides what items are: columns, or Python objects.
    Columns are copied when they are pushed and sampled; those on a device are sampled as tensors. Objects are kept by
    reference, dicts as copies of their first level; ``deepcopy`` copies them wholly.
    """

    _cfg: BufferConfig
    supports_device: ClassVar[bool] = True
    """Whether its samples may be tensors on a device."""
    can_be_sharded: ClassVar[bool] = False
    """Whether a method ``drawn`` returns the items that a prioritized sampler has drawn for several of these buffers."""

    def __init__(
        self,
        cfg: Mapping[str, Any] | None = None,
        tb_logger: ScalarWriter | None = None,
        exp_name: str = 'default_experiment',
        instance_name: str = 'buffer',
        *,
        seed: int | np.random.SeedSequence | None = 0,
        **options: Any,
    ) -> None:
        super().__init__(cfg, tb_logger, exp_name, instance_name, seed=seed, **options)
        self._capacity: int = self._cfg.replay_buffer_size
        self._deepcopy: bool = self._cfg.deepcopy
        self._device = self._find_device()
        self._storage: AnyStorage | None = None
        self._push_count = 0
        self._envstep = 0
        self._has_warned = False
        self._priorities: PrioritizedSampler | None = None  # of a subclass that draws by priority
        self._build(self._cfg)

    def _build(self, cfg: EasyDict) -> None:
        """Creates the sampler, and the parts of a subclass; called at the end of the constructor."""
        self._sampler = self._build_sampler(cfg)

    def _build_sampler(self, cfg: EasyDict) -> Sampler:
        """Returns the sampler that draws the items; ``self._rng`` exists already."""
        return UniformSampler(self._rng)

    def _build_priorities(self, cfg: PriorityConfig) -> PrioritizedSampler:
        """Returns a sampler by priority."""
        # numba takes half a second to import: not for asking for the options, and not for other buffers.
        from rlframe.worker.replay_buffer.prioritized import PrioritizedSampler

        return PrioritizedSampler(self._capacity, cfg, self._rng)

    @classmethod
    def check_config(cls, cfg: BufferConfig) -> list[ConfigError]:
        """Refuses a device if samples are rearranged by NumPy."""
        if cls.supports_device or cfg.device == 'cpu':
            return []
        message = f'{cls.__name__} keeps its columns in main memory'
        remedy = "The replay buffers 'naive', 'advanced' and 'elastic' can keep transitions on a GPU."
        return [ConfigError(message, where='device', got=cfg.device, expected="'cpu'", remedy=remedy)]

    def _find_device(self) -> torch.device | None:
        """Returns the device that columns are kept on; None: main memory.

        Raises:
            DeviceError: If it does not exist.
        """
        name = self._cfg.device
        remedy = f"{DEVICE_KEY}='cpu' keeps columns in main memory."
        return None if name == 'cpu' else existing_device(name, DEVICE_KEY, remedy)

    @property
    def replay_buffer_size(self) -> int:
        """Largest number of items."""
        return self._capacity

    @property
    def push_count(self) -> int:
        """Items accepted so far."""
        return self._push_count

    def count(self) -> int:
        return len(self._storage) if self._storage is not None else 0

    def push(self, data: Any, cur_collector_envstep: int) -> int:
        block = self._to_block(data)
        self._envstep, count = cur_collector_envstep, len(block)
        if count:
            self._write(block)
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
        if size == 0:
            return self._gather(np.empty(0, np.int64))
        try:
            storage = self._items(1 if replace else size, sample_range)
        except BufferUnderflowError as error:
            self._lacking(error)
            return None
        draw = self._sampler.sample_with_replacement if replace else self._sampler.sample
        return self._gather(storage.slots(draw(size, storage)))

    def batches(self, count: int, size: int, cur_learner_iter: int) -> Iterator[Rows]:
        """Returns ``count`` batches of ``size`` items, all drawn and copied now, each without repetition.

        If a subclass overrides ``sample``, it is called once per batch.

        Raises:
            BufferUnderflowError: If there are fewer than ``size`` items, or none.
        """
        if type(self).sample is not NaiveReplayBuffer.sample or not count * size:
            return super().batches(count, size, cur_learner_iter)
        storage = self._items(size)
        rows = self._gather(storage.slots(self._sampler.sample_batches(count, size, storage).reshape(-1)))
        parts: list[Rows] = []
        for start in range(0, count * size, size):
            part = itemgetter(slice(start, start + size))
            if isinstance(rows, list):
                parts.append(part(rows))
            else:  # a call of C for each column
                columns = dict(zip(rows.columns, map(part, rows.columns.values()), strict=True))
                parts.append(Batch.unchecked(columns, size))
        return iter(parts)

    def update(self, info: Mapping[str, Any]) -> None:
        """Sets new priorities of sampled items; items that were overwritten or removed since then are skipped.

        A buffer that does not draw by priority ignores them, and logs so once.

        Args:
            info: ``replay_unique_id`` and ``replay_buffer_idx`` as sampled, and ``priority``, each [n].
                Without ``priority`` nothing happens.

        Raises:
            ValueError: If the three differ in length.
            NonFiniteError: If a priority is NaN, infinite or negative; no priority is changed then.
        """
        if self._priorities is None:
            if not self._has_warned:
                logger.warning("%s has no priorities to update; type 'advanced' has", self._instance_name)
            self._has_warned = True
        elif self._storage is not None and (reported := read_priorities(info)) is not None:
            self._priorities.update(*reported, (self._storage.first, self._storage.stop))

    def clear(self) -> None:
        """Forgets all items, and the largest priority."""
        if self._storage is not None:
            self._storage.clear()
        if self._priorities is not None:
            self._priorities.clear()
        self._push_count = 0

    def start(self) -> None:
        """Does nothing, as there is no thread to start. Kept for callers that expect it."""

    def close(self) -> None:
        """Does nothing, as there is nothing to close; the buffer stays usable."""

    def state_dict(self) -> dict[str, Any]:
        return self._state(self._storage.state_dict() if self._storage is not None else {})

    def checkpoint_state(self) -> dict[str, Any]:
        """Returns ``state_dict()`` with items by reference; for a subclass that overrides it, that result."""
        if type(self).state_dict is not NaiveReplayBuffer.state_dict:
            return self.state_dict()
        return self._state(self._storage.checkpoint_state() if self._storage is not None else {})

    def _state(self, storage: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the state of the buffer around that of its storage."""
        return {
            'kind': self._storage.saved_as if self._storage is not None else '',
            'storage': storage,
            'push_count': self._push_count,
            'envstep': self._envstep,
            'rng': copy.deepcopy(self._rng.bit_generator.state),
        }

    def load_state_dict(self, _state_dict: Mapping[str, Any]) -> None:
        check_state(_state_dict, DICT)
        if _state_dict.keys() == {'data'}:
            self.push(_state_dict['data'], self._envstep)
        else:
            self._restore(_state_dict)

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Restores the result of ``state_dict``."""
        check_state(state, STATE)
        self._storage = None
        if state['kind']:
            with part('storage'):
                self._storage = self._empty_storage(state['kind'])
                self._storage.load_state_dict(state['storage'])
        self._push_count, self._envstep = int(state['push_count']), int(state['envstep'])
        self._rng.bit_generator.state = copy.deepcopy(state['rng'])

    def _to_block(self, data: Any) -> Rows:
        """Converts pushed data to the form of the storage; an empty list if there is none.

        Raises:
            TypeError: If data of another kind was pushed before.
        """
        block: Rows
        if isinstance(data, Batch):
            block = to_numpy(data)
        else:
            items = cast(list[Any], to_items(data))
            is_columns = bool(items) and isinstance(items[0], Mapping) and is_numeric(items[0])
            if is_columns and not isinstance(self._storage, ObjectStorage):
                block = to_numpy(stack_items(items))
            else:
                block = self._copy(items)
        if len(block) and isinstance(
            self._storage, ObjectStorage if isinstance(block, Batch) else RingStorage
        ):
            got = 'Batch' if isinstance(block, Batch) else f'{type(block[0]).__name__} items'
            wanted = RingStorage if isinstance(block, Batch) else ObjectStorage
            raise TypeError(
                f'{self._instance_name} holds {self._storage.kind}, as its first push decided; got {got},'
                f' which would be {wanted.kind}'
            )
        return block

    def _write(self, block: Rows) -> AnyStorage:
        """Stores a block; the first one decides the kind of the storage."""
        if self._storage is None:
            self._storage = self._storage_for(block)
        self._storage.push(block)  # type: ignore[arg-type]  # _to_block made sure that the kinds agree
        self._push_count += len(block)
        return self._storage

    def _storage_for(self, block: Rows) -> AnyStorage:
        """Creates the storage for the rows or objects that a block begins.

        Raises:
            ConfigError: If frames are to be kept once, and no column is a stack of images.
        """
        if not isinstance(block, Batch):
            return self._empty_storage('ObjectStorage')
        frames, stack = self._cfg.frames, self._cfg.frame_stack
        if frames != 'copied' and stack > 1 and stacked_columns(block, stack):
            return self._empty_storage('FrameStorage')
        if frames == 'once':
            raise ConfigError(
                f'no column is a stack of uint8 images [{stack}, height, width, ...]',
                where='replay_buffer.frames',
                got=frames,
                expected="'auto' or 'copied'",
            )
        return self._empty_storage('RingStorage')

    def _empty_storage(self, kind: str) -> AnyStorage:
        """Returns an empty storage.

        Raises:
            ConfigError: If objects are to be kept on a device.
        """
        if kind == 'FrameStorage':
            return FrameStorage(self._capacity, self._cfg.frame_stack, self._device)
        if kind == 'RingStorage':
            return RingStorage(self._capacity, self._device)
        if self._device is not None:
            raise ConfigError(
                f'a device keeps {RingStorage.kind}, not {ObjectStorage.kind}',
                where=DEVICE_KEY,
                got=self._cfg.device,
                expected="'cpu'",
            )
        return ObjectStorage(self._capacity)

    def _gather(self, slot: IntArray) -> Rows:
        if self._storage is None:
            return []
        rows = self._storage.gather(slot)
        return self._copy(rows) if isinstance(rows, list) else rows

    def _copy(self, items: list[Any]) -> list[Any]:
        """Copies objects: dicts at their first level, or everything if ``deepcopy`` is set."""
        if self._deepcopy:
            return [copy.deepcopy(item) for item in items]
        return [dict(item) if isinstance(item, dict) else item for item in items]

    def _sampled_items(self) -> Storage | None:
        """Returns the items that can be sampled, ``None`` if nothing was ever pushed."""
        return self._storage

    def _items(self, need: int, sample_range: slice | None = None) -> Storage:
        """Returns the items to sample from.

        Raises:
            BufferUnderflowError: If there are fewer than ``need`` of them, or none.
        """
        storage = self._sampled_items()
        if storage is not None and sample_range is not None:
            storage = StorageRange(storage, sample_range)
        if storage is None or len(storage) < max(need, 1):
            raise self._underflow(need, 0 if storage is None else len(storage))
        return storage
