"""The interface of replay buffers, and their creation from a config."""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np

from rlframe.data import Batch
from rlframe.errors import BufferUnderflowError
from rlframe.registry import BUFFER_REGISTRY
from rlframe.run.metrics import ScalarWriter
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.run.write_checkpoint import save_checkpoint
from rlframe.utils.field import Configurable, ResolvedConfig
from rlframe.utils.schema import DICT, loading, part, part_of
from rlframe.utils.synonyms import named, section_of

logger = logging.getLogger(__name__)

Rows = Batch | list[Any]
"""Result of sampling: columns, or a list if the buffer holds arbitrary objects."""
LOCKED = (
    'push',
    'update',
    'sample',
    'batches',
    'clear',
    'state_dict',
    'checkpoint_state',
    'load_state_dict',
)
"""Methods that hold the buffer's lock, in every class that defines them."""


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
        tb_logger: Gets statistics by ``add_scalar(tag, value, step)``; nothing is written if it is not given.
        exp_name: Name of the experiment.
        instance_name: Name of this buffer; it appears in messages.
        seed: Seed of its random generator.
    """

    _cfg: ResolvedConfig

    _lock: threading.RLock
    _raises = False  # whether a sample that lacks data is an error, as in ``batches``

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        buffer = super().__new__(cls)
        buffer._lock = threading.RLock()
        return buffer

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
        fields = self.config_fields()
        self._cfg = self.resolve_config(section_of(options, fields, cfg) if options else cfg)
        self._tb_logger, self._exp_name, self._instance_name = tb_logger, exp_name, instance_name
        self._rng = np.random.default_rng(seed)

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
            cur_collector_envstep: Env steps so far; the x axis of what is logged.

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
        """Returns ``count`` batches of ``size`` items, each sampled when it is asked for.

        Raises:
            BufferUnderflowError: If there are not enough items.
        """
        return (self._required(size, cur_learner_iter) for _ in range(count))

    def _required(self, *arguments: Any) -> Rows:
        """Samples like ``sample``, but raises if there is too little data."""
        with self._lock:
            self._raises = True
            try:
                rows = self.sample(*arguments)
            finally:
                self._raises = False
        if rows is None:
            raise BufferUnderflowError(f'{type(self).__name__} has too few items', where='sample')
        return rows

    def _underflow(self, need: int, have: int) -> BufferUnderflowError:
        """Returns the error about too few items."""
        return BufferUnderflowError(
            f'{self._instance_name} has {have} items to sample from, need {max(need, 1)}',
            where='sample',
            remedy='Set policy.random_collect_size to at least that many, or take a smaller batch.',
        )

    def _lacking(self, error: BufferUnderflowError) -> None:
        """Handles a lack of data: warns and returns ``None`` for ``sample``, raises for ``batches``.

        Raises:
            BufferUnderflowError: The one given.
        """
        if self._raises:
            raise error
        logger.warning('returning None from %s', error)

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


def get_buffer_cls(cfg: Mapping[str, Any]) -> type[IBuffer]:
    """Returns the class named by ``cfg.type`` (by default ``'advanced'``).

    Raises:
        RegistryError: If no buffer has that name; the closest one is named.
    """
    return BUFFER_REGISTRY.get_cls(_with_type(cfg))


def create_buffer(cfg: Mapping[str, Any] | str, *args: Any, **kwargs: Any) -> IBuffer:
    """Builds the buffer named by ``cfg.type``, or by ``cfg``; further arguments go to its constructor.

    With a name, options are arguments, too: ``create_buffer('naive', replay_buffer_size=20_000)``.
    """
    section, arguments = named(BUFFER_REGISTRY, cfg, kwargs)
    return BUFFER_REGISTRY.build(_with_type(section), section, *args, **arguments)


def _with_type(cfg: Mapping[str, Any]) -> Mapping[str, Any]:
    return cfg if 'type' in cfg else {'type': 'advanced', 'import_names': cfg.get('import_names')}
