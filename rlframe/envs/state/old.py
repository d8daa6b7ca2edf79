"""Reads states of envs from before objects were numbered: the attributes of each layer as plain data."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from rlframe.envs.state.attributes import attributes_of
from rlframe.envs.state.kinds import BIT_GENERATORS
from rlframe.utils.bit_state import checked_bits

SHOWN = ('render_mode', 'env', 'spec', '_cached_spec')
"""Attributes that come from the config, not from a state."""


def restore(layers: list[Any], action_space: Any, state: dict[str, Any]) -> None:
    """Restores an env to a state of that format."""
    for layer, values in zip(layers, state['layers'], strict=True):
        if hasattr(type(layer), 'set_state'):
            layer.set_state(values)
        else:
            kept = {name: decode(value) for name, value in values.items() if name not in SHOWN}
            vars(layer).update(kept)
    action_space._np_random = decode(state['action_space'])


def layers_of(env: Any) -> list[Any]:
    """Returns an env's wrappers, the outermost first, and the env."""
    layers: list[Any] = [env]
    while 'env' in (attributes_of(layers[-1]) or {}):
        layers.append(layers[-1].env)
    return layers


def decode(value: Any) -> Any:
    """Decodes a value of such a state."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if not isinstance(value, dict):
        return value
    kind, content = value['__kind__'], value['value']
    if kind == 'scalar':
        return content[()]
    if kind == 'generator':
        bit_generator = BIT_GENERATORS[content['bit_generator']]()
        bit_generator.state = checked_bits(content)
        return np.random.Generator(bit_generator)
    if kind == 'dict':
        return {name: decode(v) for name, v in content.items()}
    if kind == 'pairs':
        return {decode(name): decode(v) for name, v in content}
    if kind == 'array':
        flat = np.frombuffer(bytes(content['bytes']), content['dtype'])
        return flat.reshape(content['shape']).copy()
    if kind == 'deque':
        return deque((decode(v) for v in content), value['maxlen'])
    values = [decode(v) for v in content]
    return tuple(values) if kind == 'tuple' else values
