"""A buffer whose sampled part grows or shrinks with training."""

from __future__ import annotations

import importlib
import numbers
from collections.abc import Callable, Mapping
from typing import Any

from rlframe.errors import ConfigError
from rlframe.registry import BUFFER_REGISTRY
from rlframe.utils.field import Field
from rlframe.utils.schema import COUNT, part_of
from rlframe.worker.replay_buffer.buffer import NaiveReplayBuffer
from rlframe.worker.replay_buffer.stores.ring import Storage, StorageRange

KEY = 'set_buffer_size'


def _check_function(value: Any) -> str:
    is_name = isinstance(value, str) and value.count(':') == 1
    return '' if callable(value) or is_name else "a function of the env step, or 'module:function'"


@BUFFER_REGISTRY.register('elastic')
class ElasticReplayBuffer(NaiveReplayBuffer):
    """Samples the newest k items uniformly, where k is a function of the env steps so far.

    Items that are not among the newest k are kept, so k can grow again.
    """

    config = dict(
        set_buffer_size=Field(
            None,
            type=object,
            unit='items',
            doc=(
                "Function of the env step that says how many of the newest items are sampled, or 'module:function'; None:"
                ' all'
            ),
            check=_check_function,
            reaches='code',
        ),
    )

    def _build(self, cfg: Any) -> None:
        super()._build(cfg)
        self._size_at = _function(cfg[KEY])
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
        """Recomputes the number of items that are sampled.

        Args:
            info: Env steps so far; ``push`` receives them too. Reports of a learner are ignored.
        """
        if isinstance(info, Mapping):
            super().update(info)
        else:
            self._resize(int(info))

    def _sampled_items(self) -> Storage | None:
        storage = super()._sampled_items()
        return None if storage is None else StorageRange(storage, slice(-self.count(), None))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), 'newest': self._newest}

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        self._newest = int(part_of(state, 'newest', COUNT))


def _function(value: Any) -> Callable[[int], Any] | None:
    """Returns the function that a config means.

    Raises:
        ConfigError: If a name is unknown.
    """
    function: Callable[[int], Any] | None = value
    if not isinstance(value, str):
        return function
    module, _, name = value.partition(':')
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f'there is no function {value!r}: {error}', where=f'policy.other.replay_buffer.{KEY}'
        ) from error
    return function
