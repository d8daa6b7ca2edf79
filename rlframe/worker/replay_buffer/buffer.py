"""The interface of replay buffers, the plain buffer, which the others extend, and their creation from a config."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, cast

import numpy as np
from easydict import EasyDict

from rlframe.data import Batch, FloatArray, IntArray
from rlframe.data.staging import existing_device
from rlframe.errors import BufferUnderflowError, ConfigError
from rlframe.option_names import named, section_of
from rlframe.registry import BUFFER_REGISTRY
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.run.write_checkpoint import save_checkpoint
from rlframe.utils.field import Configurable, ResolvedConfig
from rlframe.utils.schema import COUNT, DICT, GENERATOR, TEXT, Schema, check_state, loading, part, part_of
from rlframe.worker.replay_buffer.device import DEVICE_KEY
from rlframe.worker.replay_buffer.frames import FrameStorage, stacked_columns
from rlframe.worker.replay_buffer.hindsight import Hindsight
from rlframe.worker.replay_buffer.options import BufferConfig
from rlframe.worker.replay_buffer.ring import (
    ObjectStorage,
    RingStorage,
    Sampler,
    Storage,
    StorageRange,
    UniformSampler,
    is_numeric,
    read_priorities,
    stack_items,
    to_items,
    to_numpy,
)

if TYPE_CHECKING:
    import torch

    from rlframe.worker.replay_buffer.advanced_buffer import PriorityConfig
    from rlframe.worker.replay_buffer.prioritized import PrioritizedSampler

logger = logging.getLogger(__name__)

Rows = Batch | list[Any]
"""Result of sampling: columns, or a list if the buffer holds arbitrary objects."""
LOCKED = ('push', 'update', 'sample', 'batches', 'clear', 'state_dict', 'checkpoint_state', 'load_state_dict')
"""Methods that hold the buffer's lock, in every class that defines them."""
AnyStorage: TypeAlias = RingStorage | ObjectStorage


STATE: dict[str, Schema] = {
    'kind': TEXT,
    'storage': DICT,
    'push_count': COUNT,
    'envstep': COUNT,
    'rng': GENERATOR,
}


class IBuffer(Configurable, ABC):
    """Stores collected data and samples from it.

    A list always means many items, so an episode that is itself a list must be wrapped in a list.

    **Threads.** A buffer has one lock. The methods listed in ``LOCKED`` hold it while they run, also if a subclass
    overrides them, so several threads can push, sample, update and save at the same time. Each call sees a push
    completely or not at all.

    **Too little data.** ``sample``, for custom training loops, then logs a warning and returns ``None``.
    ``batches``, which the pipeline calls, raises ``BufferUnderflowError`` instead.

    Args:
        cfg: Options; missing ones take their defaults.
        tb_logger: Has no effect, as its pipeline logs ``metrics()``; part of DI-engine's signature, like ``exp_name``.
        exp_name: Has no effect.
        instance_name: Name of this buffer; it appears in messages.
        seed: Seed of its random generator.
    """

    _cfg: ResolvedConfig

    _lock: threading.RLock

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        buffer = super().__new__(cls)
        buffer._lock = threading.RLock()
        return buffer

    def __init__(
        self,
        cfg: Mapping[str, Any] | None = None,
        tb_logger: Any = None,
        exp_name: str = 'default_experiment',
        instance_name: str = 'buffer',
        *,
        seed: int | np.random.SeedSequence | None = 0,
        **options: Any,
    ) -> None:
        fields = self.config_fields()
        self._cfg = self.resolve_config(section_of(options, fields, cfg) if options else cfg)
        self._instance_name = instance_name
        self._rng = np.random.default_rng(seed)
        self._build(self._cfg)

    def _build(self, cfg: Any) -> None:
        """Creates the parts of a subclass; called at the end of the constructor."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in LOCKED:
            method = vars(cls).get(name)
            if inspect.isfunction(method):
                setattr(cls, name, _locked(method))

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes without the lock, as every copy gets its own."""
        return {name: value for name, value in vars(self).items() if name != '_lock'}

    def locked(self) -> AbstractContextManager[Any]:
        """Returns the lock, for several calls that belong together: ``with buffer.locked(): ...``."""
        return self._lock

    @abstractmethod
    def push(self, data: Any, cur_collector_envstep: int) -> int:
        """Adds items; the oldest make room.

        Args:
            data: A ``Batch``, a mapping (one item) or a list of items.
            cur_collector_envstep: Env steps so far.

        Returns:
            How many items were accepted.
        """

    @abstractmethod
    def update(self, info: Mapping[str, Any]) -> None:
        """Receives the learner's results about sampled items, such as their priorities."""

    @abstractmethod
    def sample(self, batch_size: int, cur_learner_iter: int) -> Rows | None:
        """Returns ``batch_size`` random items, as fresh copies, or ``None`` if there are not enough of them.

        Args:
            batch_size: Number of items, >= 0.
            cur_learner_iter: Train iterations so far; staleness is counted from it.
        """

    def batches(self, count: int, size: int, cur_learner_iter: int) -> Iterator[Rows]:
        """Yields ``count`` batches of ``size`` items, each sampled when it is asked for.

        There are fewer if items that are used up or too old leave too few of them.

        Raises:
            BufferUnderflowError: If there are not enough items for the first batch.
        """
        for number in range(count):
            rows = self.sample(size, cur_learner_iter) if number else self._required(size, cur_learner_iter)
            if rows is None:
                return
            yield rows

    def _required(self, size: int, *arguments: Any) -> Rows:
        """Samples like ``sample``, but raises if there is too little data."""
        rows = self.sample(size, *arguments)
        if rows is None:
            raise self._underflow(size, self.count())
        return rows

    def _underflow(self, need: int, have: int) -> BufferUnderflowError:
        """Returns the error about too few items."""
        return BufferUnderflowError(
            f'{self._instance_name} has {have} items to sample from, need {max(need, 1)}',
            where='sample',
            remedy='Set policy.random_collect_size to at least that many, or take a smaller batch.',
        )

    @abstractmethod
    def clear(self) -> None:
        """Forgets all items."""

    @abstractmethod
    def count(self) -> int:
        """Returns the number of items that can be sampled."""

    def metrics(self) -> dict[str, float]:
        """Returns the metrics of the buffer, by their tags; they are logged at each evaluation."""
        return {'buffer/count': self.count()}

    def save_data(self, file_name: str) -> None:
        """Saves the full state as a checkpoint, a folder, which replaces an earlier one of that name in one step.

        Raises:
            CheckpointError: If it cannot be saved; an earlier checkpoint of that name is kept.
        """
        with self._lock:
            save_checkpoint(file_name, {}, buffer=self.checkpoint_state())

    def load_data(self, file_name: str) -> None:
        """Restores a checkpoint of ``save_data``, or the replay buffer in the checkpoint of a run.

        Raises:
            CheckpointError: If it is missing or damaged, has no replay buffer, or is that of another one.
        """
        state, _ = load_checkpoint(file_name)
        with loading(file_name), part('replay_buffer'):
            self.load_state_dict(part_of(state, 'replay_buffer', DICT))

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns an independent copy of everything that the next samples depend on."""

    def checkpoint_state(self) -> dict[str, Any]:
        """Returns the ``state_dict`` for a checkpoint that is written before the buffer is used again.

        If other threads use the buffer, hold ``locked()`` until the checkpoint is written.
        """
        return self.state_dict()

    @abstractmethod
    def load_state_dict(self, _state_dict: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``; ``{'data': rows}`` pushes rows, a demonstration set for example."""


def _locked(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that holds the buffer's lock while it runs."""

    @functools.wraps(method)
    def call(self: IBuffer, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(self, *args, **kwargs)

    return call


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
    supports_hindsight: ClassVar[bool] = True
    """Whether its samples are single steps, which may get other goals."""
    can_be_sharded: ClassVar[bool] = False
    """Whether a method ``drawn`` returns the items that a prioritized sampler has drawn for several of these buffers."""

    def _build(self, cfg: EasyDict) -> None:
        self._capacity: int = cfg.replay_buffer_size
        self._deepcopy: bool = cfg.deepcopy
        self._device = self._find_device()
        self._storage: AnyStorage | None = None
        self._push_count = 0
        self._envstep = 0
        self._has_warned = False
        self._priorities: PrioritizedSampler | None = None  # of a subclass that draws by priority
        self.hindsight = Hindsight(cfg.hindsight, self._rng) if cfg.hindsight.strategy else None
        """What gives samples other goals; None: nothing does."""
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
        errors = super().check_config(cfg)
        if cls.supports_device or cfg.device == 'cpu':
            return errors
        message = f'{cls.__name__} keeps its columns in main memory'
        remedy = "The replay buffers 'naive', 'advanced' and 'elastic' can keep transitions on a GPU."
        errors.append(ConfigError(message, where='device', got=cfg.device, expected="'cpu'", remedy=remedy))
        return errors

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
        return self._add(self._to_block(self._whole(data)), cur_collector_envstep)

    def _whole(self, data: Any) -> Any:
        """Returns pushed data or, with hindsight, the steps of the episodes that they end."""
        if self.hindsight is None or not len(data):
            return data
        return self.hindsight.take(data, self._capacity)

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
            logger.warning('returning None from %s', error)
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
        if self.hindsight is not None:
            self.hindsight.episodes.clear()
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
        """Returns the state of the buffer, with the given state of its storage."""
        state = {
            'kind': self._storage.saved_as if self._storage is not None else '',
            'storage': storage,
            'push_count': self._push_count,
            'envstep': self._envstep,
            'rng': copy.deepcopy(self._rng.bit_generator.state),
        }
        if self._priorities is not None:
            state['sampler'] = self._priorities.state_dict(self._present())
        if self.hindsight is not None:
            state['running'] = self.hindsight.episodes.state_dict()
        return state

    def _present(self) -> IntArray:
        """Returns the slots of all items, oldest first."""
        return self._storage.window() if self._storage is not None else np.empty(0, np.int64)

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
        if self._priorities is not None:
            with part('sampler'):
                self._priorities.load_state_dict(part_of(state, 'sampler', DICT), self._present())
        if self.hindsight is not None:
            self.hindsight.episodes.load_state_dict(part_of(state, 'running', DICT))

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
        wanted = RingStorage if isinstance(block, Batch) else ObjectStorage
        if len(block) and self._storage is not None and not isinstance(self._storage, wanted):
            got = 'Batch' if isinstance(block, Batch) else f'{type(block[0]).__name__} items'
            raise TypeError(
                f'{self._instance_name} holds {self._storage.kind}, as its first push decided; got {got},'
                f' which would be {wanted.kind}'
            )
        return block

    def _add(self, block: Rows, envstep: int, priority: FloatArray | None = None) -> int:
        """Stores a block, whose priorities are given [n] or the largest one reported so far, and returns n.

        The first block decides the kind of the storage.
        """
        if self._priorities is not None and priority is not None:
            self._priorities.check(priority)
        self._envstep = envstep
        count = len(block)
        if not count:
            return 0
        if self._storage is None:
            self._storage = self._storage_for(block)
        self._storage.push(block)  # type: ignore[arg-type]  # _to_block made sure that the kinds agree
        self._push_count += count
        if self._priorities is not None:
            kept = min(count, self._capacity)
            self._priorities.add(
                self._storage.stop - kept, kept, None if priority is None else priority[-kept:]
            )
        return count

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

    def _gather(self, slot: IntArray, chance: FloatArray | None = None) -> Rows:
        """Returns copies of the items at these slots; with hindsight, ``chance`` decides on goals, by default drawn here."""
        if self._storage is None:
            return []
        if self.hindsight is not None and isinstance(self._storage, RingStorage):
            drawn = self.hindsight.chances(len(slot)) if chance is None else chance
            return self.hindsight.sample(slot, self._storage, drawn)
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


def get_buffer_cls(cfg: Mapping[str, Any] | str) -> type[IBuffer]:
    """Returns the class named by ``cfg``, or by ``cfg.type`` (by default ``'advanced'``).

    Raises:
        RegistryError: If no buffer has that name; the closest one is named.
    """
    return BUFFER_REGISTRY.get_cls(cfg if isinstance(cfg, str) else {'type': 'advanced', **cfg})


def create_buffer(cfg: Mapping[str, Any] | str, *args: Any, **kwargs: Any) -> IBuffer:
    """Builds the buffer named by ``cfg.type``, or by ``cfg``; further arguments go to its constructor.

    With a name, options are arguments, too: ``create_buffer('naive', replay_buffer_size=20_000)``.
    """
    section, arguments = named(BUFFER_REGISTRY, cfg, kwargs)
    return BUFFER_REGISTRY.build({'type': 'advanced', **section}, section, *args, **arguments)
