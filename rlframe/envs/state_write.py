"""Writes objects as a numbered graph of plain values.

A value is written as it is, as a list that begins with a tag, or as the number of a node, ``[3]``; each object that can
change is one node, so shared references stay shared.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import json
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, TypeAlias

import numpy as np

from rlframe.envs.state_objects import (
    CONFIGURED,
    FUNCTIONS,
    Classes,
    is_constant,
    is_data,
    is_env,
    is_leaf,
    is_plain,
    is_shown,
    is_space,
    type_name,
    variables_of,
)
from rlframe.utils import strict_json
from rlframe.utils.lazy import attributes_of

Node: TypeAlias = dict[str, Any]

CONTAINERS: dict[str, type] = {kind.__name__: kind for kind in (list, dict, set, deque, OrderedDict)}
BITS = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}
"""Sources of random numbers, by their names."""


class RefusedError(Exception):
    """The state of an env cannot be saved.

    Args:
        path: Path of the object.
        kind: Its type.
        why: The reason.
    """

    def __init__(self, path: str, kind: type, why: str = 'cannot be saved') -> None:
        super().__init__(f'{path} ({type_name(kind)}) {why}')
        self.path, self.kind, self.why = path, kind, why


class Originals:
    """What an env had when it was created and still has: found in another env, created in the same way, by its path."""

    def __init__(self) -> None:
        self.places: dict[int, str] = {}
        """Ids of envs, spaces and constants to their paths."""
        self.objects: dict[str, Any] = {}
        """Paths to these objects."""
        self.digests: dict[int, str] = {}
        """Ids of functions and of data of modules to hashes of what they refer to or hold."""

    def add(self, value: Any, path: str) -> None:
        """Notes an object at its first path."""
        if id(value) not in self.places:
            self.places[id(value)], self.objects[path] = path, value


class Writer:
    """Writes objects as a list of nodes, each object once, with references by number.

    Args:
        classes: The classes that a state may name; by default none.
        originals: What the env had when it was created.
        is_survey: Whether to note what the env has been created with, and to refuse nothing.
    """

    def __init__(
        self, classes: Classes | None = None, originals: Originals | None = None, is_survey: bool = False
    ) -> None:
        self._classes, self._originals, self._is_survey = (
            classes or Classes(),
            originals or Originals(),
            is_survey,
        )
        self._objects: list[Any] = []
        self._paths: list[str] = []
        self._numbers: dict[int, int] = {}
        self._memory: list[np.ndarray[Any, Any]] = []
        self._size = 0
        self._own: dict[str, Any] = {}
        self._layers: list[Any] = []
        self._draws = False
        self._dicts: dict[int, int] = {}  # ids of the dicts that hold attributes, to their owners
        self._shared = self._classes.shared_objects()

    def write(self, roots: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the graph of everything that these named objects reference, directly or indirectly.

        Raises:
            RefusedError: If an object in it is not supported.
        """
        self._layers = [value for value in roots.values() if is_env(value)]
        self._draws = any(getattr(layer, 'render_mode', None) is not None for layer in self._layers[-1:])
        encoded = {name: self.value(value, name) for name, value in roots.items()}
        nodes: list[Any] = []
        while len(nodes) < len(self._objects):
            number = len(nodes)
            nodes.append(self._node(number))
        for held in self._dicts.keys() & self._numbers.keys():
            number = self._numbers[held]
            raise RefusedError(
                self._paths[number], dict, 'is the dict in which an object keeps its attributes'
            )
        text = json.dumps({'roots': encoded, 'nodes': nodes}, separators=(',', ':'), allow_nan=False)
        memory = np.concatenate(self._memory) if self._memory else np.zeros(0, np.uint8)
        return {'version': 2, 'graph': strict_json.JsonText(text), 'own': self._own, 'memory': memory}

    def value(self, value: Any, path: str) -> Any:
        """Encodes a value at the place that refers to it: as it is, as a list with a tag, or as ``[number]``."""
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if (encode := ENCODE.get(kind)) is not None:
            return encode(value)
        if kind is tuple:
            return ['tuple', *self._values(value, path)]
        if isinstance(value, np.generic | np.dtype) and (written := _written(value)) is not None:
            return written
        if kind is frozenset:
            return self._frozen(value, path)
        if isinstance(value, enum.Enum) and self._classes.has(kind) and value._name_ in kind.__members__:
            return ['member', type_name(kind), value._name_]
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
            self._paths.append(path)
        return [number]

    def _values(self, values: Iterable[Any], path: str) -> list[Any]:
        return [self.value(value, f'{path}[{index}]') for index, value in enumerate(values)]

    def _key(self, value: Any, path: str) -> Any:
        """Encodes a key of a dict or an element of a set: a value whose hash does not depend on its address."""
        if not is_leaf(value):
            raise RefusedError(
                path, type(value), 'is a key or an element of a set, and is neither a number nor text'
            )
        return self.value(value, path)

    def _frozen(self, value: Any, path: str) -> Any:
        items = list(value)
        if any(isinstance(item, str | bytes) for item in items):
            items.sort(key=repr)  # a set of text has another order in each process
        elif list(frozenset(items)) != items:
            raise RefusedError(path, frozenset, 'has an order that cannot be saved')
        return ['frozenset', *(self._key(item, path) for item in items)]

    def _survey(self, value: Any, path: str) -> None:
        """Notes an object that has just been created with its env, and continues with all that it refers to."""
        is_fixed = is_constant(value, self._layers)
        if is_fixed or (id(value) in self._shared and is_data(value)):
            self._originals.digests[id(value)] = digest_of(value)
        if is_fixed or id(value) in self._originals.digests or is_env(value) or is_space(value):
            self._originals.add(value, path)
        if is_fixed:
            return
        self._classes.remember(type(value))
        held = (
            value.values() if isinstance(value, Mapping) else value if isinstance(value, list | deque) else ()
        )
        parts = [(f'{path}[{index}]', own) for index, own in enumerate(held)]
        parts += [(f'{path}.{name}', own) for name, own in (attributes_of(value) or {}).items()]
        for place, own in parts:
            with contextlib.suppress(RefusedError):
                self.value(own, place)

    def _node(self, number: int) -> Node:
        value, path = self._objects[number], self._paths[number]
        if self._is_survey:
            self._survey(value, path)
            return {}
        kind = type(value)
        place = self._originals.places.get(id(value))
        if not (is_env(value) or is_space(value)) and (found := self._found(value, path, place)):
            return found
        if (write := WRITE.get(kind)) is not None:
            return write(self, value, path)
        if is_env(value) and hasattr(kind, 'get_state') and hasattr(kind, 'set_state') and place is not None:
            self._own[str(number)] = value.get_state()
            if 'env' in (attributes_of(value) or {}):
                self.value(value.env, f'{path}.env')  # a wrapper need not know the state of its env
            return {'kind': 'own', 'at': place, 'type': type_name(kind)}
        if is_constant(value, self._layers):
            raise RefusedError(path, kind, "was set after the env's constructor")
        if not (is_plain(kind) and (place is not None or (self._classes.has(kind) and not is_env(value)))):
            raise RefusedError(path, kind)
        return self._instance(number, value, path, place)

    def _found(self, value: Any, path: str, place: str | None) -> Node | None:
        """Returns the node of what another env has at the same place, too; None if this is no such thing."""
        kind, is_shared = type(value), id(value) in self._shared and not is_constant(value)
        known = self._originals.digests.get(id(value), '')
        if place is not None and known == digest_of(value):
            return {'kind': 'constant', 'at': place, 'type': type_name(named_type(value)), 'digest': known}
        if is_shared:
            raise RefusedError(path, kind, 'belongs to a module or class, and so to all envs')
        if place is not None:
            raise RefusedError(path, kind, 'refers to data that has changed')
        return None

    def _instance(self, number: int, value: Any, path: str, place: str | None) -> Node:
        attributes = attributes_of(value) or {}
        self._dicts[id(attributes)] = number
        written: dict[str, Any] = {}
        node: Node = {'kind': 'object', 'class': type_name(type(value)), 'attributes': written}
        if place is not None:
            node['at'] = place
        for name, own in attributes.items():
            if type(name) is not str:
                raise RefusedError(path, type(value), f'has an attribute named {name!r}')
            if is_env(value) and name in CONFIGURED:
                continue
            if is_env(value) and is_shown(own, self._draws):
                written[name] = ['shown']
            else:
                written[name] = self.value(own, f'{path}.{name}')
        return node

    def list(self, value: Any, path: str) -> Node:
        """Writes a list or a deque."""
        node = {'kind': type(value).__name__, 'items': self._values(value, path)}
        return {**node, 'maxlen': value.maxlen} if isinstance(value, deque) else node

    def dict(self, value: Any, path: str) -> Node:
        """Writes a dict in its order."""
        items = [[self._key(name, path), self.value(own, f'{path}[{name!r}]')] for name, own in value.items()]
        return {'kind': type(value).__name__, 'items': items}

    def set(self, value: Any, path: str) -> Node:
        """Writes a set, whose order from now on is that of a restored one."""
        items = [self._key(item, path) for item in value]
        refill(value, list(value))
        return {'kind': 'set', 'items': items}

    def array(self, value: Any, path: str) -> Node:
        """Writes an array with its memory order, or a view by its offset in the array that owns the memory."""
        if value.dtype.hasobject or value.dtype.metadata is not None:
            raise RefusedError(path, np.ndarray, f'has elements of type {value.dtype}')
        node = {
            'kind': 'array',
            'dtype': np.lib.format.dtype_to_descr(value.dtype),
            'shape': value.shape,
            'writeable': value.flags.writeable,
        }
        owner = value
        while type(owner) is np.ndarray and owner.base is not None:
            owner = owner.base
        if type(owner) is np.ndarray and owner is not value and owner.flags.owndata and _order(owner):
            offset = value.__array_interface__['data'][0] - owner.__array_interface__['data'][0]
            node |= {'kind': 'view', 'offset': offset, 'strides': value.strides}
            return {**node, 'of': self.value(owner, f'{path}.base')}
        is_own = value.flags.owndata or (type(owner) is bytes and not value.flags.writeable)
        if not is_own or not (order := _order(value)):
            raise RefusedError(path, np.ndarray, 'shares memory or has a memory order that cannot be saved')
        if value.dtype.kind in 'SU':  # as text, in which secrets are found
            return {**node, 'order': order, 'texts': [_text(item) for item in value.ravel('K').tolist()]}
        content = value.ravel('K').view(np.uint8) if value.nbytes else np.zeros(0, np.uint8)
        self._memory.append(content.copy())
        self._size += len(content)
        return {**node, 'order': order, 'start': self._size - len(content)}

    def bits(self, value: Any, path: str) -> Node:
        """Writes a source of random numbers, with the seed sequence that others are spawned from."""
        node = {'kind': 'bits', 'name': type(value).__name__, 'state': _plain_words(value.state)}
        seeds = value.seed_seq
        if type(seeds) is np.random.SeedSequence:
            entropy = seeds.entropy
            if entropy is not None and not isinstance(entropy, int):
                entropy = [int(word) for word in entropy]
            key = [int(word) for word in seeds.spawn_key]
            node['seeds'] = [entropy, key, seeds.pool_size, seeds.n_children_spawned]
        return node

    def generator(self, value: Any, path: str) -> Node:
        """Writes a generator by its source."""
        return {'kind': 'generator', 'bits': self.value(value.bit_generator, f'{path}.bit_generator')}

    def random_state(self, value: Any, path: str) -> Node:
        """Writes a numpy ``RandomState``."""
        bits, state = value._bit_generator, value.get_state(legacy=False)
        if type(bits) is not np.random.MT19937:
            raise RefusedError(path, type(value), f'draws from {type(bits).__name__}')
        gauss = [state['has_gauss'], state['gauss']]
        return {'kind': 'random_state', 'bits': self.value(bits, f'{path}.bits'), 'gauss': gauss}

    def random(self, value: Any, path: str) -> Node:
        """Writes a ``Random``."""
        version, words, gauss = value.getstate()
        return {'kind': 'random', 'state': [version, list(words), gauss]}


def named_type(value: Any) -> Any:
    """Returns the class that stands for a constant: the type of a value, or the value if it is a class."""
    return value if isinstance(value, type) else type(value)


def digest(data: Any) -> str:
    """Returns a hash of the type, shape and content of an array or of plain data."""
    if isinstance(data, np.ndarray):
        content = f'{data.dtype.str}{data.shape}'.encode() + data.tobytes()
    else:
        content = repr(data).encode('utf-8', 'surrogatepass')
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def digest_of(value: Any, seen: tuple[int, ...] = ()) -> str:
    """Returns a hash of data, or of all data that a function refers to; empty for anything else."""
    if is_data(value):
        return digest(value)
    if not isinstance(value, FUNCTIONS) or id(value) in seen:
        return ''
    return ','.join(digest_of(part, (*seen, id(value))) for part in variables_of(value))


def _written(value: Any) -> list[Any] | None:
    """Returns a scalar or a type of numpy as a list with a tag; None if it cannot be rebuilt from that."""
    if isinstance(value, np.dtype):
        return None if value.hasobject else ['dtype', np.lib.format.dtype_to_descr(value)]
    dtype = value.dtype
    if dtype.kind not in 'biufcSUMm' or np.dtype(dtype.str).type is not type(value):
        return None
    if dtype.kind in 'SU':
        return ['np text', np.lib.format.dtype_to_descr(dtype), _text(value.item())]
    return ['np', np.lib.format.dtype_to_descr(dtype), np.asarray(value).tobytes().hex()]


def _text(value: str | bytes) -> str:
    return value.decode('latin-1') if isinstance(value, bytes) else value


def _order(array: np.ndarray[Any, Any]) -> str:
    """Returns the memory order of an array without gaps, ``'C'`` or ``'F'``, or an empty text for any other."""
    return 'C' if array.flags.c_contiguous else 'F' if array.flags.f_contiguous else ''


def refill(target: set[Any], items: list[Any]) -> None:
    """Clears and refills a set, so that its order and the results of ``pop`` depend only on the elements."""
    target.clear()
    target.add(0)
    target.pop()  # the position where the next pop starts is kept, even if a set is emptied
    target.clear()
    target.update(items)


def _plain_words(state: Any) -> Any:
    """Returns the state of a bit generator without arrays."""
    if isinstance(state, Mapping):
        return {name: _plain_words(value) for name, value in state.items()}
    return ['words', state.dtype.str, state.tobytes().hex()] if isinstance(state, np.ndarray) else state


ENCODE: dict[type, Callable[[Any], Any]] = {
    int: lambda v: v if -(2**63) < v < 2**63 else ['int', hex(v)],
    float: lambda v: v if -np.inf < v < np.inf else ['float', repr(v)],
    bytes: lambda v: ['bytes', _text(v)],
    range: lambda v: ['range', hex(v.start), hex(v.stop), hex(v.step)],
}
"""Encodes single values."""
WRITE: dict[type, Callable[[Writer, Any, str], Node]] = {
    list: Writer.list,
    deque: Writer.list,
    **dict.fromkeys((dict, OrderedDict), Writer.dict),
    set: Writer.set,
    np.ndarray: Writer.array,
    np.random.Generator: Writer.generator,
    np.random.RandomState: Writer.random_state,
    Random: Writer.random,
    **dict.fromkeys(BITS.values(), Writer.bits),
}
"""Writes objects with more than attributes, by their types."""
