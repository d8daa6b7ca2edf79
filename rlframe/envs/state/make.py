"""Creates the objects of a state that are more than empty containers, after their components."""

from __future__ import annotations

import enum
import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.envs.state import kinds
from rlframe.envs.state.arrays import axes_of, fits, flat_bytes, new_array, same_layout
from rlframe.envs.state.classes import MismatchError
from rlframe.envs.state.sets import made_frozenset
from rlframe.envs.state.values import decode_dtype
from rlframe.envs.state.write import Writer

if TYPE_CHECKING:
    from rlframe.envs.state.read import Reader


def _same_array(reader: Reader, node: Mapping[str, Any], live: Any) -> bool:
    if type(live) is not np.ndarray or not live.flags.owndata:
        return False
    make = _new_text if node['kind'] == 'text' else _new_array
    return same_layout(live, make(reader, node))


def _same_objects(reader: Reader, node: Mapping[str, Any], live: Any) -> bool:
    is_array = type(live) is np.ndarray and live.flags.owndata and live.dtype == object
    return bool(is_array) and list(live.shape) == node['shape']


def _same_view(reader: Reader, node: Mapping[str, Any], live: Any) -> bool:
    owner = checked(reader.value(node['of']), np.ndarray)
    if type(live) is not np.ndarray or id(live.base) != id(owner):
        return False
    start = live.__array_interface__['data'][0] - owner.__array_interface__['data'][0]
    place = (start, list(live.shape), list(live.strides), live.dtype, live.flags.writeable)
    saved = (node['offset'], node['shape'], node['strides'], decode_dtype(node['dtype']), node['writeable'])
    return place == saved


def _same_bits(reader: Reader, node: Mapping[str, Any], live: Any) -> bool:
    return type(live) is kinds.BIT_GENERATORS[node['name']]


def _same_generator(reader: Reader, node: Mapping[str, Any], live: Any) -> bool:
    return type(live) is np.random.Generator and live.bit_generator is reader.value(node['bits'])


def _same_random_state(reader: Reader, node: Mapping[str, Any], live: Any) -> bool:
    return type(live) is np.random.RandomState and live._bit_generator is reader.value(node['bits'])


def _same_random(reader: Reader, node: Mapping[str, Any], live: Any) -> bool:
    return type(live) is Random


def _new_array(reader: Reader, node: Mapping[str, Any]) -> Any:
    dtype = decode_dtype(node['dtype'])
    if math.prod(node['shape']) * dtype.itemsize > reader.memory.nbytes:
        raise ValueError('the bytes of an array are missing')
    return new_array(node['shape'], dtype, node['axes'])


def _new_text(reader: Reader, node: Mapping[str, Any]) -> Any:
    dtype, content = decode_dtype(node['dtype']), np.asarray(reader.texts[node['start']])
    if content.dtype != dtype or content.size != math.prod(node['shape']):
        raise ValueError('the texts of an array are missing')
    return new_array(node['shape'], dtype, node['axes'])


def _new_objects(reader: Reader, node: Mapping[str, Any]) -> Any:
    if math.prod(node['shape']) != len(node['items']):
        raise ValueError('the objects of an array are missing')
    return new_array(node['shape'], np.dtype(object), node['axes'])


def _new_view(reader: Reader, node: Mapping[str, Any]) -> Any:
    owner, dtype = checked(reader.value(node['of']), np.ndarray), decode_dtype(node['dtype'])
    owner.flags.writeable = True  # restored when the array is filled
    memory = flat_bytes(owner, axes_of(owner))
    if memory is None or not fits(
        len(memory), node['offset'], node['shape'], node['strides'], dtype.itemsize
    ):
        raise ValueError('a view is larger than its array')
    if not len(memory):
        return np.empty(node['shape'], dtype)
    return np.ndarray(tuple(node['shape']), dtype, memory, node['offset'], tuple(node['strides']))


def _new_bits(reader: Reader, node: Mapping[str, Any]) -> Any:
    return kinds.BIT_GENERATORS[node['name']](0)


def _new_generator(reader: Reader, node: Mapping[str, Any]) -> Any:
    return np.random.Generator(checked(reader.value(node['bits']), np.random.BitGenerator))


def _new_random_state(reader: Reader, node: Mapping[str, Any]) -> Any:
    return np.random.RandomState(checked(reader.value(node['bits']), np.random.MT19937))


def _new_seeds(reader: Reader, node: Mapping[str, Any]) -> Any:
    if node['pool_size'] > MAX_POOL:
        raise ValueError(f'a seed sequence with a pool of more than {MAX_POOL} words')
    return np.random.SeedSequence(
        node['entropy'],
        spawn_key=node['spawn_key'],
        pool_size=node['pool_size'],
        n_children_spawned=node['spawned'],
    )


def _new_tuple(reader: Reader, node: Mapping[str, Any]) -> Any:
    return tuple.__new__(reader.class_of(node, tuple), reader.values(node['items']))


def _new_frozenset(reader: Reader, node: Mapping[str, Any]) -> Any:
    return made_frozenset(
        reader.class_of(node, frozenset), reader.values(node['items']), bool(node['merged'])
    )


def _new_value(reader: Reader, node: Mapping[str, Any]) -> Any:
    value = reader.value(node['value'])
    if 'class' not in node:
        return value
    base = type(value)
    if base not in (int, float, complex, str, bytes):
        raise ValueError(f'{base.__name__} is not a single value')
    return base.__new__(reader.class_of(node, base), value)


def _new_slice(reader: Reader, node: Mapping[str, Any]) -> Any:
    return slice(*reader.values(node['items']))


def _new_member(reader: Reader, node: Mapping[str, Any]) -> Any:
    kind: Any = reader.classes.find(node['class'])
    if not isinstance(kind, enum.EnumMeta):
        raise MismatchError(f'{node["class"]} is not an enumeration')
    if node['kind'] == 'flag':
        return kind(int(node['value']))
    if node['name'] not in kind._member_map_:
        raise MismatchError(f'{node["class"]} has no member {node["name"]}')
    return kind._member_map_[node['name']]


def _new_bound(reader: Reader, node: Mapping[str, Any]) -> Any:
    owner, name = reader.value(node['of']), node['name']
    if type(owner) not in kinds.BOUND or name.startswith('_') or not hasattr(type(owner), name):
        raise ValueError(f'{type(owner).__name__} has no method {name}')
    return getattr(owner, name)


def _global(reader: Reader, node: Mapping[str, Any]) -> Any:
    found = reader.classes.named_object(node['name'])
    if Writer(reader.classes).digest_of(found) != node['digest']:
        raise MismatchError(f'{node["name"]} has changed')
    return found


def _global_random(reader: Reader, node: Mapping[str, Any]) -> Any:
    return {'numpy': kinds.NUMPY_GLOBAL, 'python': kinds.PYTHON_GLOBAL}[node['name']]


def checked(value: Any, kind: Any) -> Any:
    """Returns a value after checking its type."""
    if not isinstance(value, kind):
        raise ValueError(f'a {type(value).__name__} is no {kind.__name__}')
    return value


MAX_POOL = 1024
"""Maximum number of words in the pool of a seed sequence: creating one takes time quadratic in it."""
MISSING: Any = object()
"""Marks a missing object."""
NEW: dict[str, type] = {
    kind.__name__: kind
    for kind in (object, list, dict, set, deque, OrderedDict, defaultdict, bytearray, SimpleNamespace)
}
"""Kinds of nodes that are created empty and filled afterwards."""
SAME: dict[str, Callable[..., bool]] = {
    'array': _same_array,
    'text': _same_array,
    'objects': _same_objects,
    'view': _same_view,
    'bits': _same_bits,
    'generator': _same_generator,
    'random_state': _same_random_state,
    'random': _same_random,
    'tuple': lambda *_: False,
    'frozenset': lambda *_: False,
    'value': lambda *_: False,
}
"""Maps kinds to checks whether the live object at the same path is usable."""
MAKE: dict[str, Callable[[Any, Any], Any]] = {
    'array': _new_array,
    'text': _new_text,
    'objects': _new_objects,
    'view': _new_view,
    'bits': _new_bits,
    'generator': _new_generator,
    'random_state': _new_random_state,
    'random': lambda *_: Random(0),
    'seeds': _new_seeds,
    'tuple': _new_tuple,
    'frozenset': _new_frozenset,
    'value': _new_value,
    'slice': _new_slice,
    'enum': _new_member,
    'flag': _new_member,
    'bound': _new_bound,
    'global': _global,
    'global_random': _global_random,
}
"""Maps kinds to the functions that create an object."""
