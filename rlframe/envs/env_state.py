"""Takes down and puts back the state of an env in this process, as plain data.

An env that has ``get_state()`` and ``set_state(state)`` is asked. Of any other, each wrapper's and the env's own attributes
are taken, provided that all of them are plain data: numbers, strings, arrays, generators and containers of these. Where one
is not (a simulator's handle, say), the state cannot be had and ``capture`` returns ``None``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import gymnasium

_FIXED = (
    'env',
    'spec',
    '_cached_spec',
    'metadata',
    'render_mode',
    'screen',
    'clock',
    'isopen',
    'window',
    'surf',
    'viewer',
)
_FIXED_OF_VECTOR = ('env_fns', 'envs', 'autoreset_mode')
"""Of a vector env: what it is made of; its envs are asked one by one."""
_FIXED_TYPES = ('Space', 'EnvSpec')


def capture(env: gymnasium.Env[Any, Any]) -> dict[str, Any] | None:
    """Returns the state of an env and its wrappers, or ``None`` where it cannot be had."""
    layers: list[Any] = []
    for layer in _layers(env):
        if hasattr(type(layer), 'get_state'):
            layers.append(layer.get_state())
            continue
        state: dict[str, Any] = {}
        for name, value in vars(layer).items():
            if name in _FIXED or _is_fixed(value):
                continue
            if name in _FIXED_OF_VECTOR and hasattr(layer, 'single_action_space'):
                continue
            try:
                state[name] = _encode(value)
            except TypeError:
                return None
        layers.append(state)
    return {'layers': layers, 'action_space': _encode(getattr(env.action_space, '_np_random', None))}


def restore(env: gymnasium.Env[Any, Any], state: dict[str, Any]) -> None:
    """Puts an env of the same kind back into the state that ``capture`` returned."""
    for layer, values in zip(_layers(env), state['layers'], strict=True):
        if hasattr(type(layer), 'set_state'):
            layer.set_state(values)
        else:
            vars(layer).update({name: _decode(value) for name, value in values.items()})
    env.action_space._np_random = _decode(state['action_space'])


def capture_info(info: Mapping[str, Any]) -> Any:
    """Returns what an env told beside a step as plain data, or ``None`` where it is none."""
    try:
        return _encode(dict(info))
    except TypeError:
        return None


def restore_info(state: Any) -> dict[str, Any]:
    """Returns the info that ``capture_info`` made plain data of."""
    info: dict[str, Any] = _decode(state)
    return info


def _layers(env: gymnasium.Env[Any, Any]) -> list[Any]:
    layers: list[Any] = [env]
    while 'env' in vars(layers[-1]):
        layers.append(layers[-1].env)
    return layers


def _is_fixed(value: Any) -> bool:
    return any(base.__name__ in _FIXED_TYPES for base in type(value).__mro__)


def _encode(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.ndarray) and value.dtype.kind in 'biuf':
        return value.copy()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        content = {'dtype': value.dtype.str, 'shape': list(value.shape), 'bytes': list(value.tobytes())}
        return {'__kind__': 'array', 'value': content}
    if isinstance(value, np.generic):
        return {'__kind__': 'scalar', 'value': np.asarray(value)}
    if isinstance(value, np.random.Generator):
        return {'__kind__': 'generator', 'value': value.bit_generator.state}
    if isinstance(value, deque):
        return {'__kind__': 'deque', 'value': [_encode(v) for v in value], 'maxlen': value.maxlen}
    if isinstance(value, tuple | list):
        return {'__kind__': type(value).__name__, 'value': [_encode(v) for v in value]}
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {'__kind__': 'dict', 'value': {name: _encode(v) for name, v in value.items()}}
    if isinstance(value, dict):
        return {'__kind__': 'pairs', 'value': [[_encode(name), _encode(v)] for name, v in value.items()]}
    raise TypeError(f'{type(value).__name__} is no plain data')


def _decode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if not isinstance(value, dict):
        return value
    kind, content = value['__kind__'], value['value']
    if kind == 'scalar':
        return content[()]
    if kind == 'generator':
        bit_generator = getattr(np.random, content['bit_generator'])()
        bit_generator.state = content
        return np.random.Generator(bit_generator)
    if kind == 'dict':
        return {name: _decode(v) for name, v in content.items()}
    if kind == 'pairs':
        return {_decode(name): _decode(v) for name, v in content}
    if kind == 'array':
        flat = np.frombuffer(bytes(content['bytes']), content['dtype'])
        return flat.reshape(content['shape']).copy()
    if kind == 'deque':
        return deque((_decode(v) for v in content), value['maxlen'])
    return (tuple if kind == 'tuple' else list)(_decode(v) for v in content)
