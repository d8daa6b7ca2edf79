"""Saves and restores the state of an env in this process, exactly or not at all.

The objects that an env and its wrappers reference, directly or indirectly, are written as a numbered graph, so shared
references stay shared: numbers, text, containers, arrays, random generators, spaces, and objects of the env's own code.
A value is written as it is, as a list that begins with a tag, or as the number of a node, ``[3]``; each object that can
change is one node. An env or wrapper with ``get_state()`` and ``set_state(state)`` is asked for its state instead. What
cannot change, such as a class or a function without variables of its own, is found again at its place in an env that was
created in the same way. Anything else is refused with its place and type, and nothing is saved.

A state may come from a file of somebody else: it imports no module, calls nothing that it names, and creates objects of the
env's own code only.
"""

from __future__ import annotations

import contextlib
import enum
import json
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rlframe.envs.state_objects import (
    CONFIGURED,
    Classes,
    MismatchError,
    Originals,
    RefusedError,
    fingerprint,
    is_env,
    is_env_class,
    is_leaf,
    is_plain,
    is_space,
    layers_of,
    members_of,
    order_of,
    refill,
    shared_by_all,
    type_name,
)
from rlframe.errors import CheckpointStateError
from rlframe.run.checkpoint_tree import BAD_TREE
from rlframe.utils import strict_json
from rlframe.utils.lazy import attributes_of
from rlframe.utils.serialize import checked_bits

if TYPE_CHECKING:
    import gymnasium

Node: TypeAlias = dict[str, Any]
CONTAINERS: dict[str, type] = {kind.__name__: kind for kind in (list, dict, set, deque, OrderedDict)}
BITS = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}
"""Sources of random numbers, by their names."""
ELEMENTS = 'biufcSUMm'
"""Kinds of numpy's types whose values are plain bytes."""
ENCODE: dict[type, Callable[[Any], Any]] = {
    float: lambda v: v if -np.inf < v < np.inf else ['float', repr(v)],
    bytes: lambda v: ['bytes', v.decode('latin-1')],
    range: lambda v: ['range', v.start, v.stop, v.step],
}
"""Encodes single values."""
LATER = ('generator', 'random_state')
"""Kinds of objects that refer to another one, which must be created before."""


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
        self._classes, self._originals = classes or Classes(), originals or Originals()
        self._is_survey = is_survey
        self._objects: list[Any] = []
        self._paths: list[str] = []
        self._numbers: dict[int, int] = {}
        self._arrays: dict[str, np.ndarray[Any, Any]] = {}
        self._owners: dict[int, Any] = {}  # ids of what owns memory to the array that was written with it
        self._own: dict[str, Any] = {}
        self._attributes: set[int] = set()  # ids of the dicts in which objects keep them
        self._shared = self._classes.shared_objects()

    def write(self, roots: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the graph of everything that these named objects reference, directly or indirectly.

        Raises:
            RefusedError: If an object in it is not supported.
        """
        encoded = {name: self.value(value, name) for name, value in roots.items()}
        nodes: list[Any] = []
        while len(nodes) < len(self._objects):
            number = len(nodes)
            nodes.append(self._survey(number) if self._is_survey else self._node(number))
        for held in self._attributes & self._numbers.keys():
            raise RefusedError(self._paths[self._numbers[held]], dict, 'holds the attributes of an object')
        try:
            text = json.dumps({'roots': encoded, 'nodes': nodes}, separators=(',', ':'), allow_nan=False)
        except ValueError as error:  # a number of a million digits
            raise RefusedError('env', dict, f'cannot be written: {error}') from error
        return {'graph': text, 'own': self._own, 'arrays': self._arrays}

    def value(self, value: Any, path: str) -> Any:
        """Encodes a value at the place that refers to it: as it is, as a list with a tag, or as ``[number]``."""
        kind = type(value)
        if value is None or kind in (bool, str, int):
            return value
        if (encode := ENCODE.get(kind)) is not None:
            return encode(value)
        if kind is tuple:
            return ['tuple', *self._values(value, path)]
        if isinstance(value, np.dtype) and value.kind in ELEMENTS:
            return ['dtype', value.str]
        if isinstance(value, np.generic) and _is_element(value):
            return ['np', value.dtype.str, value.tobytes().hex()]
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
            why = 'is a key or an element of a set, and is neither a number nor text'
            raise RefusedError(path, type(value), why)
        return self.value(value, path)

    def _frozen(self, value: Any, path: str) -> Any:
        items = list(value)
        if any(isinstance(item, str | bytes) for item in items):
            items.sort(key=repr)  # a set of text has another order in each process
        elif list(frozenset(items)) != items:
            raise RefusedError(path, frozenset, 'has an order that cannot be saved')
        return ['frozenset', *(self._key(item, path) for item in items)]

    def _survey(self, number: int) -> Node:
        """Notes an object that has just been created with its env, and continues with all that it refers to."""
        value, path = self._objects[number], self._paths[number]
        originals = self._originals
        is_shared = id(value) in self._shared
        # a constant
        found = originals.print_of(value) if is_shared else fingerprint(value, originals.layers)
        if found is not None:
            self._originals.add(value, path)
            self._originals.prints[id(value)] = found
            return {}
        if is_env(value) or is_space(value):
            self._originals.add(value, path)
        self._classes.remember(type(value))
        # what it refers to
        parts: dict[Any, Any] = {}
        if isinstance(value, Mapping | list | deque):
            held = value.values() if isinstance(value, Mapping) else value
            parts = {f'[{index}]': own for index, own in enumerate(held)}
        parts |= {f'.{name}': own for name, own in (attributes_of(value) or {}).items()}
        for place, own in parts.items():
            with contextlib.suppress(RefusedError):
                self.value(own, f'{path}{place}')
        return {}

    def _node(self, number: int) -> Node:
        value, path = self._objects[number], self._paths[number]
        kind = type(value)
        place = self._originals.places.get(id(value))
        # constants, and data of modules
        if (known := self._originals.prints.get(id(value))) is not None:
            if self._originals.print_of(value) != known:
                raise RefusedError(path, kind, 'refers to data that has changed')
            return {'kind': 'constant', 'at': place, 'print': known}
        if id(value) in self._shared and place is None:
            raise RefusedError(path, kind, 'belongs to a module or class, and so to all envs')
        # values with a form of their own
        if (write := WRITE.get(kind)) is not None:
            return write(self, value, path)
        if is_env(value) and hasattr(kind, 'get_state') and hasattr(kind, 'set_state') and place is not None:
            self._own[str(number)] = value.get_state()
            for inner in layers_of(value)[1:2]:
                self.value(inner, f'{path}.env')  # a wrapper need not know the state of its env
            return {'kind': 'own', 'at': place, 'class': type_name(kind)}
        # objects, by their attributes
        if fingerprint(value, self._originals.layers) is not None:
            raise RefusedError(path, kind, "was set after the env's constructor")
        if not (is_plain(kind) and (place is not None or (self._classes.has(kind) and not is_env(value)))):
            raise RefusedError(path, kind)
        self._attributes.add(id(attributes_of(value)))
        attributes = {
            name: self.value(own, f'{path}.{name}')
            for name, own in (attributes_of(value) or {}).items()
            if not (is_env(value) and name in CONFIGURED)
        }
        node: Node = {'kind': 'object', 'class': type_name(kind), 'attributes': attributes}
        return node if place is None else {**node, 'at': place}

    def list(self, value: Any, path: str) -> Node:
        """Writes a list or a deque."""
        node = {'kind': type(value).__name__, 'items': self._values(value, path)}
        return {**node, 'maxlen': value.maxlen} if isinstance(value, deque) else node

    def dict(self, value: Any, path: str) -> Node:
        """Writes a dict in its order."""
        items = [[self._key(name, path), self.value(own, f'{path}[{name!r}]')] for name, own in value.items()]
        return {'kind': type(value).__name__, 'items': items}

    def set(self, value: Any, path: str) -> Node:
        """Writes a set, and gives it the order that it will have after it is restored."""
        items = [self._key(item, path) for item in value]
        refill(value, list(value))
        return {'kind': 'set', 'items': items}

    def array(self, value: Any, path: str) -> Node:
        """Writes an array with its memory order; a view becomes an array, if no other array has the same memory."""
        if value.dtype.kind not in ELEMENTS:
            raise RefusedError(path, np.ndarray, f'has elements of type {value.dtype}')
        owner = value
        while type(owner) is np.ndarray and owner.base is not None:
            owner = owner.base
        is_own = isinstance(owner, bytes) or (type(owner) is np.ndarray and owner.flags.owndata)
        is_alone = self._owners.setdefault(id(owner), value) is value
        if not is_own or not is_alone or not (order := order_of(value)):
            raise RefusedError(path, np.ndarray, 'shares memory or has a memory order that cannot be saved')
        name = str(len(self._arrays))
        self._arrays[name] = value.copy()
        return {'kind': 'array', 'order': order, 'name': name, 'writeable': value.flags.writeable}

    def bits(self, value: Any, path: str) -> Node:
        """Writes a source of random numbers, with the seed sequence that others are spawned from."""
        node = {'kind': 'bits', 'name': type(value).__name__, 'state': self.value(value.state, path)}
        seeds = value.seed_seq
        if type(seeds) is np.random.SeedSequence:
            if seeds.pool_size != np.random.SeedSequence(0).pool_size:
                raise RefusedError(path, type(value), 'has a seed sequence of an unusual size')
            entropy = seeds.entropy
            if entropy is not None and not isinstance(entropy, int):
                entropy = [int(word) for word in entropy]
            node['seeds'] = [entropy, [int(word) for word in seeds.spawn_key], seeds.n_children_spawned]
        return node

    def generator(self, value: Any, path: str) -> Node:
        """Writes a generator by its source."""
        return {'kind': 'generator', 'bits': self.value(value.bit_generator, f'{path}.bit_generator')}

    def random_state(self, value: Any, path: str) -> Node:
        """Writes a numpy ``RandomState``."""
        bits = value._bit_generator
        state = value.get_state(legacy=False)
        if type(bits) is not np.random.MT19937:
            raise RefusedError(path, type(value), f'draws from {type(bits).__name__}')
        gauss = [state['has_gauss'], state['gauss']]
        return {'kind': 'random_state', 'bits': self.value(bits, f'{path}.bits'), 'gauss': gauss}

    def random(self, value: Any, path: str) -> Node:
        """Writes a ``Random``."""
        version, words, gauss = value.getstate()
        return {'kind': 'random', 'state': [version, list(words), gauss]}


def _is_element(value: np.generic) -> bool:
    """Whether a scalar can be rebuilt from its bytes."""
    dtype = value.dtype
    return dtype.kind in ELEMENTS and dtype.itemsize > 0 and np.dtype(dtype.str).type is type(value)


WRITE: dict[type, Callable[[Writer, Any, str], Node]] = {
    **dict.fromkeys((list, deque), Writer.list),
    **dict.fromkeys((dict, OrderedDict), Writer.dict),
    set: Writer.set,
    np.ndarray: Writer.array,
    np.random.Generator: Writer.generator,
    np.random.RandomState: Writer.random_state,
    Random: Writer.random,
    **dict.fromkeys(BITS.values(), Writer.bits),
}
"""Writes objects with more than attributes, by their types."""


class Reader:
    """Reads the output of a ``Writer``: creates the objects, then fills them.

    Raises:
        MismatchError: If the state needs an object that the env does not have.
        Exception: If it is not a state.
    """

    def __init__(
        self, graph: Mapping[str, Any], classes: Classes | None = None, originals: Originals | None = None
    ) -> None:
        self._classes, self._originals = classes or Classes(), originals or Originals()
        plain = strict_json.loads(graph['graph'].encode(), 'STATE')
        self._nodes, self._own = plain['nodes'], graph['own']
        self._arrays = graph['arrays']
        self._objects: list[Any] = [None] * len(self._nodes)
        for is_later in (False, True):
            for number, node in enumerate(self._nodes):
                if (node['kind'] in LATER) == is_later:
                    self._objects[number] = self._made(node)
        self.roots = {name: self.value(value) for name, value in plain['roots'].items()}
        """The objects that were given to ``Writer.write``, by their names."""

    def fill(self) -> None:
        """Fills the objects; the env's own objects change last, once all others are complete."""
        changes: list[tuple[Any, dict[str, Any]]] = []
        for node, made in zip(self._nodes, self._objects, strict=True):
            if node['kind'] == 'object':
                changes.append((made, self._attributes(node, made)))
            elif node['kind'] in CONTAINERS:
                self._fill(node, made)
        for node, made in zip(self._nodes, self._objects, strict=True):
            if node['kind'] == 'bits':
                made.state = checked_bits(self.value(node['state']))
        for made, attributes in changes:
            live = attributes_of(made)
            assert live is not None, 'plain classes have attributes'
            live.clear()
            live.update(attributes)
        for number, node in enumerate(self._nodes):
            if node['kind'] == 'own':
                self._objects[number].set_state(self._own[str(number)])

    def value(self, encoded: Any) -> Any:
        """Decodes a result of ``Writer.value``."""
        if type(encoded) is not list:
            return encoded
        tag, *parts = encoded
        if type(tag) is int:
            if tag < 0 or parts:
                raise ValueError('objects are numbered from 0')
            return self._objects[tag]
        if tag in ('tuple', 'frozenset'):
            values = map(self.value, parts)
            return tuple(values) if tag == 'tuple' else frozenset(values)
        if tag == 'member':
            kind: Any = self._classes.find(parts[0])
            if not isinstance(kind, enum.EnumMeta) or parts[1] not in kind.__members__:
                raise MismatchError(f'{parts[0]} has no member {parts[1]}')
            return kind.__members__[parts[1]]
        return DECODE[tag](*parts)

    def _made(self, node: Node) -> Any:
        """Returns the object of the env at the same place, or a new one without its content."""
        kind = node['kind']
        if 'at' in node:
            return self._live(node)
        if kind == 'object':
            made = self._classes.find(node['class'])
            if not is_plain(made) or is_env_class(made):
                raise MismatchError(f'the class {node["class"]} does not exist or may not be part of a state')
            return object.__new__(made)
        if kind == 'deque':
            return deque(maxlen=node['maxlen'])
        return CONTAINERS[kind]() if kind in CONTAINERS else MAKE[kind](self, node)

    def _live(self, node: Node) -> Any:
        place, kind = node['at'], node['kind']
        live = self._originals.objects.get(place)
        if live is None:
            raise MismatchError(f'{place} is missing')
        is_filled = is_env(live) or is_space(live)
        is_asked = hasattr(type(live), 'get_state') and hasattr(type(live), 'set_state')
        fits = {'object': is_filled, 'own': is_filled and is_asked, 'constant': not is_filled}[kind]
        if not fits or (kind != 'constant' and type_name(type(live)) != node['class']):
            raise MismatchError(f'{place} is a {type_name(type(live))}, and not what it was')
        if kind == 'constant' and self._originals.print_of(live) != node['print']:
            raise MismatchError(f'{place} refers to other data')
        return live

    def _fill(self, node: Node, made: Any) -> None:
        items = node['items']
        if isinstance(made, dict):
            made.update([(self._key(name), self.value(own)) for name, own in items])
        elif isinstance(made, set):
            refill(made, [self._key(item) for item in items])
        else:
            made.extend(map(self.value, items))

    def _key(self, encoded: Any) -> Any:
        key = self.value(encoded)
        if not is_leaf(key):
            raise ValueError(f'a {type(key).__name__} is no key')
        return key

    def _attributes(self, node: Node, made: Any) -> dict[str, Any]:
        """Returns the attributes of an object; attributes that the config decides keep their values."""
        filled = {name: self.value(own) for name, own in node['attributes'].items()}
        if is_env(made):
            live = attributes_of(made) or {}
            filled = {name: own for name, own in filled.items() if name not in CONFIGURED}
            filled |= {name: live[name] for name in CONFIGURED if name in live}
        return filled

    def _array(self, node: Node) -> Any:
        saved = self._arrays[node['name']]
        _dtype(saved.dtype.str)
        made: Any = np.array(saved, order='F' if node['order'] == 'F' else 'C')
        made.flags.writeable = bool(node['writeable'])
        return made

    def _bits(self, node: Node) -> Any:
        seeds: Any = 0
        if 'seeds' in node:
            entropy, key, spawned = node['seeds']
            seeds = np.random.SeedSequence(entropy, spawn_key=key, n_children_spawned=spawned)
        made: Any = BITS[node['name']](seeds)
        if 'seeds' not in node and node['name'] == 'MT19937':
            made._legacy_seeding(0)  # as that of a RandomState, which has no seed sequence
        return made

    def _random_state(self, node: Node) -> Any:
        made: Any = np.random.RandomState(self.value(node['bits']))
        has_gauss, gauss = node['gauss']
        made.set_state({**made.get_state(legacy=False), 'has_gauss': has_gauss, 'gauss': gauss})
        return made

    def _random(self, node: Node) -> Any:
        version, words, gauss = node['state']
        made = Random()
        made.setstate((version, tuple(words), gauss))
        return made


def _dtype(name: Any) -> np.dtype[Any]:
    """Returns a type of numpy by its name.

    Raises:
        ValueError: If its values are not plain bytes, such as references to objects.
    """
    made: np.dtype[Any] = np.dtype(str(name))
    if made.kind not in ELEMENTS:
        raise ValueError('the elements of arrays are never references to objects')
    return made


DECODE: dict[str, Callable[..., Any]] = {
    'float': float,
    'bytes': lambda text: text.encode('latin-1'),
    'range': range,
    'np': lambda dtype, content: np.frombuffer(bytes.fromhex(content), _dtype(dtype))[0],
    'dtype': _dtype,
}
"""Decodes single values by their tags."""
MAKE: dict[str, Callable[[Reader, Node], Any]] = {
    'array': Reader._array,
    'bits': Reader._bits,
    'generator': lambda reader, node: np.random.Generator(reader.value(node['bits'])),
    'random_state': Reader._random_state,
    'random': Reader._random,
}
"""Creates objects that are complete at once, by their kinds."""


class Refusal(NamedTuple):
    """The refusal to save the state of an env."""

    reason: str
    """Path in the env, type, and reason."""


class EnvState:
    """Captures and restores the state of an env or a vector env, with its wrappers.

    Create it right after the env: objects that cannot be saved, but do not change either, are found by their path.
    """

    def __init__(self, env: gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
        self._env: Any = env
        self._layers = layers_of(env)
        self._classes = Classes([*self._layers, *members_of(self._layers[-1])])
        kinds = dict.fromkeys(kind for layer in self._layers for kind in type(layer).__mro__)
        self._shared = [(kind, name) for kind in kinds for name in shared_by_all(kind)]
        self._originals = Originals(self._layers)
        Writer(self._classes, self._originals, is_survey=True).write(self._roots())

    def capture(self) -> dict[str, Any] | Refusal:
        """Returns the state as plain data, or the reason why it cannot be saved."""
        try:
            return Writer(self._classes, self._originals).write(self._roots())
        except RefusedError as error:
            return Refusal(str(error))
        except RecursionError:
            return Refusal(f'{type(self._layers[-1]).__name__} has tuples that are nested too deeply')

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a state that ``capture`` returned for an env that was created in the same way.

        Raises:
            MismatchError: If the state does not fit the env, which is then unchanged.
            CheckpointStateError: If it is not a state.
        """
        try:
            reader = Reader(state, self._classes, self._originals)
            roots = self._roots()
            if reader.roots.keys() != roots.keys():
                raise MismatchError(f'it has {[*roots]}, and had {[*reader.roots]}')
            for name, value in roots.items():
                if reader.roots[name] is not value:
                    raise MismatchError(f'{name} is of another class than before')
            reader.fill()
        except (*BAD_TREE, MemoryError) as error:
            raise CheckpointStateError(f'this is not the state of an env: {error!r}') from error

    def _roots(self) -> dict[str, Any]:
        """Returns the roots of the state: the env with its layers, and the shared attributes of its classes."""
        roots: dict[str, Any] = {}
        for layer in self._layers:
            name = type(layer).__name__
            while name in roots:
                name += "'"
            roots[name] = layer
        for kind, name in self._shared:
            roots[f'{kind.__qualname__}.{name}'] = vars(kind)[name]
        for name in ('action_space', 'observation_space'):
            if (space := getattr(self._env, name, None)) is not None:
                roots[name] = space
        return roots
