"""What every replay buffer can do, and how a config becomes one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, cast

from rlframe.data import Batch
from rlframe.errors import BufferUnderflowError
from rlframe.registry import BUFFER_REGISTRY
from rlframe.utils.field import Configurable

Rows = Batch | list[Any]
"""What a buffer hands out: columns, or a list where it holds arbitrary objects."""


class ThroughputLimitError(BufferUnderflowError):
    """Sampling would outrun pushing by more than ``thruput_controller.push_sample_rate_limit.min`` allows."""


class IBuffer(Configurable, ABC):
    """Keeps what collectors made and hands out random parts of it. Not thread-safe.

    A list always means many items, so an episode that is itself a list must be wrapped in a list.
    """

    @abstractmethod
    def push(self, data: Any, cur_collector_envstep: int) -> int:
        """Adds items; the oldest make room.

        Args:
            data: A ``Batch``, a mapping (one item) or a list of items.
            cur_collector_envstep: Env steps made so far; the x axis of what is logged.

        Returns:
            How many items were accepted.
        """

    @abstractmethod
    def update(self, info: Mapping[str, Any]) -> None:
        """Takes back what the learner found out about sampled items, such as their priorities."""

    @abstractmethod
    def sample(self, batch_size: int, cur_learner_iter: int) -> Rows:
        """Returns ``batch_size`` random items, as fresh copies.

        Args:
            batch_size: Number of items, >= 0.
            cur_learner_iter: Updates made so far; staleness is counted from it.

        Raises:
            BufferUnderflowError: If there are not enough items.
        """

    def batches(self, count: int, size: int, cur_learner_iter: int) -> Iterator[Rows]:
        """Returns ``count`` batches of ``size`` items, each one ``sample`` made when it is asked for."""
        return (self.sample(size, cur_learner_iter) for _ in range(count))

    @abstractmethod
    def clear(self) -> None:
        """Forgets all items."""

    @abstractmethod
    def count(self) -> int:
        """Returns how many items can be sampled."""

    @abstractmethod
    def save_data(self, file_name: str) -> None:
        """Writes the full state to a file, in one step: a file of that name is whole or the one before."""

    @abstractmethod
    def load_data(self, file_name: str) -> None:
        """Restores what ``save_data`` wrote; nothing in the file is executed."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns an independent copy of everything that the next samples depend on."""

    def checkpoint_state(self) -> dict[str, Any]:
        """Returns what ``state_dict`` does, for a checkpoint that is written before the buffer is used again."""
        return self.state_dict()

    @abstractmethod
    def load_state_dict(self, _state_dict: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``; ``{'data': rows}`` pushes rows, a demonstration set for example."""


def get_buffer_cls(cfg: Mapping[str, Any]) -> type[IBuffer]:
    """Returns the class named by ``cfg.type`` (by default ``'advanced'``).

    Raises:
        RegistryError: If no buffer has that name; the closest one is named.
    """
    return BUFFER_REGISTRY.get_cls(_with_type(cfg))


def create_buffer(cfg: Mapping[str, Any], *args: Any, **kwargs: Any) -> IBuffer:
    """Builds the buffer named by ``cfg.type``; further arguments go to its constructor."""
    return cast(IBuffer, BUFFER_REGISTRY.build(_with_type(cfg), cfg, *args, **kwargs))


def _with_type(cfg: Mapping[str, Any]) -> Mapping[str, Any]:
    return cfg if 'type' in cfg else {'type': 'advanced', 'import_names': cfg.get('import_names')}
