"""Arguments given once for all actors, or as a list with one for each."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from rlframe.errors import ConfigError


def per_actor(value: Any, count: int, name: str) -> list[Any]:
    """Returns a value for each actor: copies of a single value, or those of a list.

    Raises:
        ConfigError: If a list has another length; with both lengths.
    """
    if not isinstance(value, list | tuple):
        return [copy.copy(value) if isinstance(value, dict) else value for _ in range(count)]
    if len(value) != count:
        raise ConfigError(
            f'{name} has {len(value)} entries for {count} collectors',
            where=name,
            remedy='Pass one for all collectors, or a list with one for each.',
        )
    return list(value)


def filled(storing: Sequence[Any], device: Any) -> list[Any]:
    """Returns the device of each actor's batches: ``device``, or its entry for the actor, where none is given.

    Args:
        storing: The ``storing_device`` of each actor, or None.
        device: One for all, or a list with one for each.
    """
    return [
        own if own is not None else other
        for own, other in zip(storing, per_actor(device, len(storing), 'device'), strict=True)
    ]


def check_one_device(storing: Sequence[Any]) -> None:
    """Checks that all batches are on a single device.

    Raises:
        ConfigError: If not.
    """
    if len({str(device) for device in storing}) > 1:
        raise ConfigError(
            'all collectors store their batches on one device',
            where='storing_device',
            got=list(storing),
            expected='one device',
            remedy='Pass it as storing_device; without one, it is that of the policies (device).',
        )
