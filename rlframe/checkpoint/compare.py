"""Describes the differences between a checkpoint and the object that loads it, line by line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.utils.resolved_config import raw_items


def compare_states(saved: Mapping[str, Any], here: Mapping[str, Any], prefix: str = '') -> list[str]:
    """Compares the layers of two networks.

    Args:
        saved: The network's ``state_dict`` in the checkpoint.
        here: That of the network that loads it.
        prefix: Prefix of the names, such as ``model.``.

    Returns:
        A line for each layer that is missing on one side or has another shape, with both shapes.
    """
    lines = []
    for name in {**here, **saved}:
        there, own = _shape(saved, name), _shape(here, name)
        if there != own:
            lines.append(f'{prefix}{name}: {there} in the checkpoint, {own} here')
    return lines


def compare_configs(saved: Mapping[str, Any], here: Mapping[str, Any], prefix: str = '') -> list[str]:
    """Compares two configs.

    Args:
        saved: Config of the checkpoint, a section of it.
        here: The same section of the config of this run.
        prefix: Dotted key of the section and a dot.

    Returns:
        A line for each key whose value differs, with both values.
    """
    lines = []
    there, own = dict(raw_items(saved)), dict(raw_items(here))
    for name in {**own, **there}:
        old, new = there.get(name), own.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += compare_configs(old, new, f'{prefix}{name}.')
        elif _plain(old) != _plain(new):
            lines.append(f'{prefix}{name}: {old!r} in the checkpoint, {new!r} here')
    return lines


def _shape(state: Mapping[str, Any], name: str) -> Any:
    if name not in state:
        return 'missing'
    shape = getattr(state[name], 'shape', None)
    return tuple(shape) if shape is not None else f'a {type(state[name]).__name__}'


def _plain(value: Any) -> Any:
    """Returns a tuple as the list that JSON turns it into."""
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
