"""The plain buffer: uniform samples."""

from __future__ import annotations

import copy
import logging
import os
import stat
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
from easydict import EasyDict

from rlframe.data import Batch, IntArray
from rlframe.data.staging import existing_device
from rlframe.errors import BufferUnderflowError, ConfigError
from rlframe.registry import BUFFER_REGISTRY
from rlframe.run.metrics import ScalarWriter
from rlframe.utils.field import Field, ResolvedConfig
from rlframe.utils.schema import COUNT, DICT, GENERATOR, TEXT, check_state, loading, part, part_of
from rlframe.worker.replay_buffer.base_buffer import (
    Clock,
    ControlConfig,
    IBuffer,
    MonitorConfig,
    PeriodicThruputMonitor,
    Rows,
    locks_itself,
)
from rlframe.worker.replay_buffer.device import DEVICE, DEVICE_KEY, DeviceStorage
from rlframe.worker.replay_buffer.frames import FrameStorage, stacked_columns
from rlframe.worker.replay_buffer.ring import (
    ObjectStorage,
    Ring,
    RingStorage,
    Storage,
    StorageRange,
    is_numeric,
    stack_items,
    to_items,
    to_numpy,
)
from rlframe.worker.replay_buffer.sampler import Sampler, UniformSampler
from rlframe.worker.replay_buffer.state_file import load_state, save_state

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

AnyStorage: TypeAlias = RingStorage | ObjectStorage


SIZE = Field(10000, range='[1, inf)', unit='items', doc='Largest number of items')
DEEPCOPY = Field(False, doc='Copy objects when pushed and when sampled; columns are always copied')
TRACK_USED_DATA = Field(
    False, doc="Delete the file named by an item's data_id when the item is removed", reaches='file'
)
THROUGHPUT_SECONDS = Field(60.0, range='(0, inf]', unit='seconds', doc='Time between two throughput lines')
"""Options that buffers share."""
STATE = {
    'kind': TEXT,
    'storage': DICT,
    'push_count': COUNT,
    'envstep': COUNT,
    'rng': GENERATOR,
    'throughput': DICT,
}


class BufferConfig(ResolvedConfig):
    """Options of every built-in buffer."""

    replay_buffer_size: int
    device: str
    frames: Literal['auto', 'once', 'copied']
    frame_stack: int
    deepcopy: bool
    enable_track_used_data: bool


class PriorityConfig(ResolvedConfig):
    """Options of buffers that draw by priority."""

    alpha: float
    beta: float
    anneal_step: int
    is_normalization: Literal['buffer', 'batch']


class AdvancedConfig(BufferConfig, PriorityConfig):
    """Options of ``AdvancedReplayBuffer``."""

    max_use: float
    max_staleness: float
    thruput_controller: ControlConfig
    monitor: MonitorConfig


class StorageBuffer(IBuffer):
    """A ring of items whose kind is set by the first push: columns, or Python objects.

    Columns are copied when they are pushed and sampled; those on a device are sampled as tensors. Objects are kept by
    reference, dicts as copies of their first level; ``deepcopy`` copies them wholly.

    Args:
        cfg: Options; missing ones get their defaults.
        tb_logger: Receives statistics through ``add_scalar(tag, value, step)``; ``None`` drops them.
        exp_name: Of the experiment.
        instance_name: Of this buffer; it appears in messages.
        seed: Of its random generator.
        clock: Returns seconds; for throughput.
    """

    _cfg: BufferConfig
    _throughput: PeriodicThruputMonitor
    supports_device: ClassVar[bool] = True
    """Whether its samples may be tensors on a device."""
    config = dict(
        device=DEVICE,
        frames=Field(
            'auto',
            choices=('auto', 'once', 'copied'),
            doc="How stacked images are kept: 'once' keeps each frame once, 'copied' whole stacks, 'auto' once where"
            ' env.frame_stack stacks uint8 images',
        ),
        frame_stack=Field(
            1,
            range='[1, inf)',
            unit='env steps',
            doc='Frames in an observation, along its first axis; set by env.frame_stack',
        ),
    )

    def __init__(
        self,
        cfg: Mapping[str, Any] | None,
        tb_logger: ScalarWriter | None = None,
        exp_name: str = 'default_experiment',
        instance_name: str = 'buffer',
        *,
        seed: int | np.random.SeedSequence | None = 0,
        clock: Clock = time.monotonic,
    ) -> None:
        super().__init__(cfg, tb_logger, exp_name, instance_name, seed=seed)
        self._clock = clock
        self._capacity: int = self._cfg.replay_buffer_size
        self._deepcopy: bool = self._cfg.deepcopy
        self._track_used_data: bool = self._cfg.enable_track_used_data
        self._device = self._find_device()
        self._storage: AnyStorage | None = None
        self._push_count = 0
        self._envstep = 0
        self._build(self._cfg)

    @abstractmethod
    def _build(self, cfg: EasyDict) -> None:
        """Creates the sampler and the monitors; called at the end of the constructor."""

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

    @classmethod
    def estimate_nbytes(cls, cfg: Mapping[str, Any] | None, row_nbytes: int) -> int:
        """Returns the bytes that a buffer of columns will allocate, without allocating any.

        Args:
            cfg: Its options.
            row_nbytes: Bytes of one transition, over all columns.
        """
        return int(cls.resolve_config(cfg).replay_buffer_size) * row_nbytes

    def nbytes(self) -> int:
        """Returns the bytes that are allocated."""
        return self._storage.nbytes() if self._storage is not None else 0

    def count(self) -> int:
        return len(self._storage) if self._storage is not None else 0

    def start(self) -> None:
        """Does nothing, as there is no thread to start. Kept for callers that expect it."""

    def close(self) -> None:
        """Deletes the files of tracked items; the buffer stays usable and may be closed again."""
        if self._track_used_data:
            self.clear()

    def save_data(self, file_name: str) -> None:
        save_state(self.state_dict(), file_name)

    def load_data(self, file_name: str) -> None:
        state = load_state(file_name)
        with loading(file_name), part(''):
            self.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        return self._state(self._storage.state_dict() if self._storage is not None else {})

    def checkpoint_state(self) -> dict[str, Any]:
        """Returns ``state_dict()`` with items by reference; for a subclass that overrides it, that result."""
        if type(self).state_dict is not StorageBuffer.state_dict:
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
            'throughput': self._throughput.state_dict(),
        }

    def load_state_dict(self, _state_dict: Mapping[str, Any]) -> None:
        check_state(_state_dict, DICT)
        if _state_dict.keys() == {'data'}:
            self.push(_state_dict['data'], self._envstep)
        else:
            self._restore(_state_dict)

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Restores the result of ``state_dict``."""
        kinds: dict[str, Callable[[int], AnyStorage]] = {
            'RingStorage': self._empty_ring,
            'FrameStorage': lambda capacity: FrameStorage(capacity, device=self._device),
            'ObjectStorage': self._empty_objects,
        }
        check_state(state, STATE)
        storage = kinds[state['kind']](self._saved_capacity(state['storage'])) if state['kind'] else None
        if storage is not None:
            with part('storage'):
                storage.load_state_dict(state['storage'])
        self._storage = storage
        self._push_count, self._envstep = int(state['push_count']), int(state['envstep'])
        self._rng.bit_generator.state = copy.deepcopy(state['rng'])
        with part('throughput'):
            self._throughput.load_state_dict(state['throughput'])

    def _saved_capacity(self, storage: Mapping[str, Any]) -> int:
        """Returns the number of slots for the rows of a saved storage."""
        return self._capacity

    def _to_block(self, data: Any) -> Rows:
        """Converts pushed data to the form of the storage; an empty list if there is none.

        Raises:
            TypeError: If data of another kind was pushed before.
        """
        if isinstance(data, Batch) and isinstance(self._storage, RingStorage):
            return to_numpy_block(data)
        items = to_items(data)
        if not len(items):
            return []
        is_columns = isinstance(items, Batch) or (isinstance(items[0], Mapping) and is_numeric(items[0]))
        if isinstance(self._storage, ObjectStorage) and not isinstance(items, Batch):
            is_columns = False
        wanted: type[Ring] = RingStorage if is_columns else ObjectStorage
        if self._storage is not None and not isinstance(self._storage, wanted):
            got = type(items).__name__ if isinstance(items, Batch) else f'{type(items[0]).__name__} items'
            raise TypeError(
                f'{self._instance_name} holds {self._storage.kind}, as its first push decided; got {got},'
                f' which would be {wanted.kind}'
            )
        if isinstance(items, Batch):
            return to_numpy_block(items)
        if is_columns:
            return to_numpy_block(stack_items(items))
        return self._copy(items)

    def _write(self, block: Rows) -> AnyStorage:
        """Stores a block; the files of tracked items that it overwrites are deleted."""
        if self._storage is None:
            if isinstance(block, Batch):
                self._storage = self._make_ring(block, self._capacity)
            else:
                self._storage = self._empty_objects(self._capacity)
        if self._track_used_data and isinstance(self._storage, ObjectStorage):
            gone = self._storage.oldest(self._storage.overflow(len(block)))
            delete_files([*self._storage.gather(gone), *block[: max(len(block) - self._capacity, 0)]])
        self._storage.push(block)  # type: ignore[arg-type]  # _to_block made sure that the kinds agree
        self._push_count += len(block)
        return self._storage

    def _make_ring(self, block: Batch, capacity: int) -> RingStorage:
        """Creates the storage of columns that a block begins.

        Raises:
            ConfigError: If frames are to be kept once, and no column is a stack of images.
        """
        frames, stack = self._cfg.frames, self._cfg.frame_stack
        if frames != 'copied' and stack > 1 and stacked_columns(block, stack):
            return FrameStorage(capacity, stack, self._device)
        if frames == 'once':
            raise ConfigError(
                f'no column is a stack of uint8 images [{stack}, height, width, ...]',
                where='replay_buffer.frames',
                got=frames,
                expected="'auto' or 'copied'",
            )
        return self._empty_ring(capacity)

    def _empty_ring(self, capacity: int) -> RingStorage:
        return RingStorage(capacity) if self._device is None else DeviceStorage(capacity, self._device)

    def _empty_objects(self, capacity: int) -> ObjectStorage:
        """Returns a storage of objects.

        Raises:
            ConfigError: If columns are kept on a device.
        """
        if self._device is not None:
            raise ConfigError(
                f'a device keeps {RingStorage.kind}, not {ObjectStorage.kind}',
                where=DEVICE_KEY,
                got=self._cfg.device,
                expected="'cpu'",
            )
        return ObjectStorage(capacity)

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

    def _require(self, need: int, have: int) -> None:
        """Raises ``BufferUnderflowError`` if there are fewer items than needed."""
        if have < max(need, 1):
            raise BufferUnderflowError(
                f'{self._instance_name} has {have} items to sample from, need {max(need, 1)}',
                where='sample',
                remedy='Set policy.random_collect_size to at least that many, or take a smaller batch.',
            )

    def _delete_tracked(self) -> None:
        """Deletes the files of all tracked items."""
        if self._track_used_data and isinstance(self._storage, ObjectStorage):
            delete_files(self._storage.gather(self._storage.window()))


def to_numpy_block(block: Batch) -> Batch:
    """Returns a ``Batch`` with numpy columns; the same one if it has nothing else."""
    is_numpy = all([type(column) is np.ndarray for _, column in block.items()])
    return block if is_numpy else Batch({name: to_numpy(column) for name, column in block.items()})


def delete_files(items: Iterable[Any]) -> None:
    """Deletes the files named by ``data_id`` of those items that have one; regular files only."""
    paths = [item.get('data_id') for item in items if isinstance(item, Mapping)]
    for path in paths:
        try:
            if isinstance(path, str) and stat.S_ISREG(os.lstat(path).st_mode):
                os.remove(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning('the used data file %s stays: %s', path, error)


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
