"""Writes the content of containers, arrays and generators as plain values; one function per kind of object."""

from __future__ import annotations

import random
import struct
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.envs.state import kinds
from rlframe.envs.state.arrays import axes_of, flat_bytes, new_array, owner_of, same_layout
from rlframe.envs.state.classes import layout_of
from rlframe.envs.state.sets import has_own_hash, order_of, refill
from rlframe.envs.state.values import PLAIN, encode_dtype

if TYPE_CHECKING:
    from rlframe.envs.state.write import Writer

    Node = dict[str, Any]


def write_items(writer: Writer, number: int, value: Any) -> Node:
    """Writes a list or tuple."""
    kind: Any = layout_of(type(value))
    return {'kind': kind.__name__, 'items': writer.values(ITERATE[kind](value), writer.path(number))}


def write_deque(writer: Writer, number: int, value: Any) -> Node:
    """Writes a deque with its maximum length."""
    return {**write_items(writer, number, value), 'maxlen': value.maxlen}


def write_mapping(writer: Writer, number: int, value: Any) -> Node:
    """Writes a dict of any kind in its order."""
    path, pairs = writer.path(number), []
    kind: Any = layout_of(type(value))
    for index, (name, own) in enumerate((OrderedDict if kind is OrderedDict else dict).items(value)):
        key = name if type(name) is str else writer.value(name, f'{path}.keys', index)
        if type(own) not in PLAIN:
            step = repr(name) if type(name) in (str, int) else f'item {index}'
            own = writer.value(own, f'{path}[{step}]')
        pairs.append([key, own])
    node = {'kind': kind.__name__, 'items': pairs}
    if kind is defaultdict:
        node['factory'] = writer.value(value.default_factory, f'{path}.default_factory')
    return node


def write_set(writer: Writer, number: int, value: Any) -> Node:
    """Writes a set in its order, and inserts its elements into it again, as reading it will do."""
    if writer.surveys:
        return write_items(writer, number, value)
    items = list(set.__iter__(value))
    if len(items) > 1 and not all(map(has_own_hash, items)):
        raise writer.refused(number, 'has elements whose order depends on their memory addresses')
    try:
        is_sound = len(set(items)) == len(items)
    except Exception as error:
        raise writer.refused(number, f'has an element whose hash raises {error!r}') from error
    if not is_sound:
        raise writer.refused(number, 'has elements whose hash has changed')
    refill(value, items)
    return {'kind': 'set', 'items': writer.values(items, writer.path(number))}


def write_frozenset(writer: Writer, number: int, value: Any) -> Node:
    """Writes a frozen set in its order."""
    if writer.surveys:
        return write_items(writer, number, value)
    if not all(map(kinds.is_leaf, frozenset.__iter__(value))):
        raise writer.refused(number, 'has elements other than numbers, text and tuples of these')
    if (found := order_of(value)) is None:
        raise writer.refused(number, 'has an order of elements that a new frozenset would not have')
    items, is_merged = found
    return {'kind': 'frozenset', 'items': writer.values(items, writer.path(number)), 'merged': is_merged}


def write_single(writer: Writer, number: int, value: Any) -> Node:
    """Writes a NaN, which equals only itself as an object, or the value of a number or string subclass."""
    kind: Any = layout_of(type(value))
    if kind is float:
        return {'kind': 'value', 'value': ['float', struct.pack('<d', value).hex()]}
    return {'kind': 'value', 'value': writer.value(PLAIN_OF[kind](value), writer.path(number))}


def write_object(writer: Writer, number: int, value: Any) -> Node:
    """Writes an object that has only attributes."""
    return {'kind': 'object' if layout_of(type(value)) is object else 'SimpleNamespace'}


def write_bytearray(writer: Writer, number: int, value: Any) -> Node:
    """Writes a bytearray."""
    return {'kind': 'bytearray', 'value': bytes(value).decode('latin-1')}


def write_array(writer: Writer, number: int, array: Any) -> Node:
    """Writes an array: its memory, or its place in the memory of another array."""
    owner = owner_of(array)
    if type(owner) is bytes:
        owner = array = array.copy()
        array.flags.writeable = False
    if type(owner) is not np.ndarray:
        raise writer.refused(number, f'has its memory in a {type(owner).__name__}')
    if array.dtype.hasobject:
        return _write_objects(writer, number, array, owner)
    descr = encode_dtype(array.dtype)
    if descr is None:
        raise writer.refused(number, f'has elements of the type {array.dtype}')
    node = {'dtype': descr, 'shape': list(array.shape), 'writeable': array.flags.writeable}
    if owner is not array:
        start = array.__array_interface__['data'][0] - owner.__array_interface__['data'][0]
        of = writer.value(owner, f'{writer.path(number)}.base')
        return {'kind': 'view', **node, 'of': of, 'offset': start, 'strides': list(array.strides)}
    axes = axes_of(array)
    content = flat_bytes(array, axes)
    if content is None or not same_layout(new_array(array.shape, array.dtype, axes), array):
        raise writer.refused(number, 'has an unusual memory layout')
    if array.dtype.kind in 'SU' and not writer.surveys:  # apart from the bytes, as there may be secrets in it
        writer.texts.append(array.transpose(axes).reshape(-1).copy())
        return {'kind': 'text', **node, 'axes': axes, 'start': len(writer.texts) - 1}
    start = 0 if writer.surveys else writer.memory.add(content)
    return {'kind': 'array', **node, 'axes': axes, 'start': start}


def _write_objects(writer: Writer, number: int, array: Any, owner: Any) -> Node:
    if owner is not array or array.dtype != object:
        raise writer.refused(number, 'is a view of objects')
    axes = axes_of(array)
    items = writer.values(array.ravel(), writer.path(number))
    writeable = array.flags.writeable
    return {
        'kind': 'objects',
        'shape': list(array.shape),
        'axes': axes,
        'items': items,
        'writeable': writeable,
    }


def write_bit_generator(writer: Writer, number: int, value: Any) -> Node:
    """Writes a source of random numbers, with the seed sequence that others are spawned from."""
    seeds = getattr(value, 'seed_seq', None)
    seeds = seeds if type(seeds) is np.random.SeedSequence else None
    node = {'kind': 'bits', 'name': type(value).__name__, 'state': _plain_state(value.state)}
    return {**node, 'seeds': writer.value(seeds, f'{writer.path(number)}.seed_seq')}


def _plain_state(state: Any) -> Any:
    """Returns the state of a bit generator without arrays."""
    if isinstance(state, Mapping):
        return {name: _plain_state(value) for name, value in state.items()}
    return ['words', state.dtype.str, state.tobytes().hex()] if isinstance(state, np.ndarray) else state


def write_seed_sequence(writer: Writer, number: int, value: Any) -> Node:
    """Writes a seed sequence, and the number of sequences spawned from it."""
    entropy, key = value.entropy, [int(word) for word in value.spawn_key]
    entropy = [int(word) for word in entropy] if isinstance(entropy, np.ndarray | tuple | range) else entropy
    made = np.random.SeedSequence(entropy, spawn_key=key, pool_size=value.pool_size)
    if not np.array_equal(made.pool, value.pool):
        raise writer.refused(number, 'has entropy that cannot be saved')
    sizes = {'pool_size': value.pool_size, 'spawned': value.n_children_spawned}
    return {'kind': 'seeds', 'entropy': entropy, 'spawn_key': key, **sizes}


def write_generator(writer: Writer, number: int, value: Any) -> Node:
    """Writes a generator by its bit generator."""
    bits = writer.value(value.bit_generator, f'{writer.path(number)}.bit_generator')
    return {'kind': 'generator', 'bits': bits}


def write_random_state(writer: Writer, number: int, value: Any) -> Node:
    """Writes a numpy ``RandomState``."""
    if value is kinds.NUMPY_GLOBAL:
        return {'kind': 'global_random', 'name': 'numpy'}
    bits, state = value._bit_generator, value.get_state(legacy=False)
    if type(bits) is not np.random.MT19937:
        raise writer.refused(number, f'draws from {type(bits).__name__}')
    gauss = [state['has_gauss'], state['gauss']]
    return {'kind': 'random_state', 'bits': writer.value(bits, f'{writer.path(number)}.bits'), 'gauss': gauss}


def write_python_random(writer: Writer, number: int, value: Any) -> Node:
    """Writes a ``random.Random``."""
    if value is kinds.PYTHON_GLOBAL:
        return {'kind': 'global_random', 'name': 'python'}
    version, words, gauss = value.getstate()
    if set(vars(value)) - {'gauss_next'}:
        raise writer.refused(number, 'has attributes of its own')
    return {'kind': 'random', 'state': [version, list(words), gauss]}


def write_slice(writer: Writer, number: int, value: Any) -> Node:
    """Writes a slice."""
    parts = (value.start, value.stop, value.step)
    return {'kind': 'slice', 'items': writer.values(parts, writer.path(number))}


PLAIN_OF: dict[Any, Callable[[Any], Any]] = {
    int: int.__int__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    complex: complex.__complex__,
}
"""Maps types to functions that return the plain base value of an instance of a subclass."""
ITERATE: dict[Any, Callable[[Any], Iterable[Any]]] = {
    kind: kind.__iter__ for kind in (list, tuple, deque, set, frozenset)
}
"""Maps types to functions that yield their elements, whatever a subclass overrides."""
CONTENT: dict[Any, Callable[[Writer, int, Any], Node]] = {
    **dict.fromkeys((list, tuple), write_items),
    **dict.fromkeys((dict, OrderedDict, defaultdict), write_mapping),
    **dict.fromkeys((int, float, complex, str, bytes), write_single),
    **dict.fromkeys((object, SimpleNamespace), write_object),
    deque: write_deque,
    set: write_set,
    frozenset: write_frozenset,
    bytearray: write_bytearray,
    slice: write_slice,
    np.ndarray: write_array,
    np.random.Generator: write_generator,
    np.random.SeedSequence: write_seed_sequence,
    np.random.RandomState: write_random_state,
    random.Random: write_python_random,
    **dict.fromkeys(kinds.BIT_GENERATORS.values(), write_bit_generator),
}
"""Maps types to the functions that write their content."""
