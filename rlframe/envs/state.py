"""Saves and restores the state of an env in this process, exactly or not at all.

The objects that an env and its wrappers reference, directly or indirectly, are written as a numbered graph, so shared
references stay shared: numbers, text, containers, arrays, random generators, spaces, and objects of the env's own code.
An env or wrapper with ``get_state()`` and ``set_state(state)`` is asked for its state instead. What cannot change, such as
a class or a function without variables of its own, is found again at its place in an env that was created in the same
way. Anything else is refused with its place and type, and nothing is saved.

A state may come from a file of somebody else: it imports no module, calls nothing that it names, and creates objects of the
env's own code only.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from rlframe.envs.state_objects import (
    CONFIGURED,
    Classes,
    MismatchError,
    is_env,
    is_env_class,
    is_leaf,
    is_plain,
    is_shown,
    is_space,
    type_name,
)
from rlframe.envs.state_write import (
    BITS,
    CONTAINERS,
    Originals,
    RefusedError,
    Writer,
    digest_of,
    named_type,
    refill,
)
from rlframe.errors import CheckpointStateError
from rlframe.run.checkpoint_tree import BAD_TREE
from rlframe.utils import strict_json
from rlframe.utils.lazy import attributes_of
from rlframe.utils.serialize import checked_bits

if TYPE_CHECKING:
    import gymnasium

    from rlframe.envs.state_write import Node

MAX_POOL = 1024
"""Words in the pool of a seed sequence, at most: creating one takes time quadratic in them."""


class Reader:
    """Reads the output of a ``Writer``: creates the objects, then fills them.

    Args:
        graph: The output.
        classes: The classes that it may name; by default none.
        originals: What the env had when it was created.

    Raises:
        MismatchError: If the state needs an object that the env does not have.
        Exception: If it is not a state.
    """

    def __init__(
        self, graph: Mapping[str, Any], classes: Classes | None = None, originals: Originals | None = None
    ) -> None:
        self._classes, self._originals = classes or Classes(), originals or Originals()
        text = graph['graph']
        plain = strict_json.loads(text.encode(), 'STATE') if isinstance(text, str) else text
        self._nodes, self._own = plain['nodes'], graph['own']
        self._memory = np.asarray(graph['memory'], np.uint8)
        self._objects: list[Any] = [None] * len(self._nodes)
        for number in sorted(
            range(len(self._nodes)), key=lambda number: self._nodes[number]['kind'] in LATER
        ):
            self._objects[number] = self._made(self._nodes[number])
        self.roots = {name: self.value(value) for name, value in plain['roots'].items()}
        """The objects that were given to ``Writer.write``, by their names."""

    def fill(self) -> None:
        """Fills the objects; those that the env has keep what they are until all others are complete."""
        changes: list[tuple[Any, dict[str, Any]]] = []
        for node, made in zip(self._nodes, self._objects, strict=True):
            if node['kind'] == 'object':
                changes.append((made, self._attributes(node, made)))
            elif node['kind'] in CONTAINERS:
                self._fill(node, made)
        for made, attributes in changes:
            live = attributes_of(made)
            assert live is not None, 'plain classes have attributes'
            live.clear()
            live.update(attributes)
        for number, node in enumerate(self._nodes):
            if node['kind'] == 'own':
                self._objects[number].set_state(self._own[str(number)])

    def value(self, encoded: Any) -> Any:
        """Decodes what ``Writer.value`` encoded."""
        if type(encoded) is not list:
            return encoded
        tag, *parts = encoded
        if type(tag) is int:
            if tag < 0 or parts:
                raise ValueError('objects are numbered from 0')
            return self._objects[tag]
        if tag in ('tuple', 'frozenset'):
            return (tuple if tag == 'tuple' else frozenset)(map(self.value, parts))
        if tag == 'member':
            return self._member(self._classes.find(parts[0]), parts[1])
        return DECODE[tag](*parts)

    def _member(self, kind: Any, name: str) -> Any:
        if not isinstance(kind, enum.EnumMeta) or name not in kind.__members__:
            raise MismatchError(f'{type_name(kind)} has no member {name}')
        return kind.__members__[name]

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
        named = type_name(named_type(live))
        if not fits or named != node['class' if kind == 'object' else 'type']:
            raise MismatchError(f'{place} is a {named}, and not what it was')
        if kind == 'constant' and digest_of(live) != node['digest']:
            raise MismatchError(f'{place} refers to other data')
        return live

    def _fill(self, node: Node, made: Any) -> None:
        items = node['items']
        if isinstance(made, dict):
            pairs = [(self._key(name), self.value(own)) for name, own in items]
            for name, own in pairs:
                made[name] = own
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
        """Returns the attributes of an object; what the config decides is what it was."""
        live = attributes_of(made) or {}
        filled = {
            str(name): self.value(own) if own != ['shown'] else _if_shown(live.get(name))
            for name, own in node['attributes'].items()
            if not (is_env(made) and name in CONFIGURED)
        }
        if is_env(made):
            filled |= {name: live[name] for name in CONFIGURED if name in live}
        return filled

    def _array(self, node: Node) -> Any:
        dtype, shape = _dtype(node['dtype']), tuple(map(int, node['shape']))
        count = 1
        for size in shape:
            count *= size
        if 'texts' in node:
            if dtype.kind not in 'SU' or len(node['texts']) != count:
                raise ValueError(
                    f'{len(node["texts"])} texts are no array of {count} elements of type {dtype}'
                )
            made: Any = np.empty(shape, dtype, order='F' if node['order'] == 'F' else 'C')
            (made.T if node['order'] == 'F' else made).flat = [_text(dtype, item) for item in node['texts']]
            made.flags.writeable = bool(node['writeable'])
            return made
        content = self._memory[node['start'] : node['start'] + count * dtype.itemsize]
        if min(shape, default=0) < 0 or len(content) != count * dtype.itemsize or node['start'] < 0:
            raise ValueError('an array is larger than the memory of the state')
        made = np.empty(shape, dtype, order='F' if node['order'] == 'F' else 'C')
        if len(content):
            made.ravel('K').view(np.uint8)[:] = content
        made.flags.writeable = bool(node['writeable'])
        return made

    def _view(self, node: Node) -> Any:
        owner = _checked(self.value(node['of']), np.ndarray)
        buffer = owner if owner.flags.c_contiguous else owner.T
        made: Any = np.ndarray(
            node['shape'],
            _dtype(node['dtype']),
            buffer,
            node['offset'],
            [int(step) for step in node['strides']],
        )
        made.flags.writeable = bool(node['writeable'])
        return made

    def _bits(self, node: Node) -> Any:
        seeds: Any = 0
        if 'seeds' in node:
            entropy, key, pool_size, spawned = node['seeds']
            if pool_size > MAX_POOL:
                raise ValueError(f'a seed sequence with a pool of more than {MAX_POOL} words')
            seeds = np.random.SeedSequence(
                entropy, spawn_key=key, pool_size=pool_size, n_children_spawned=spawned
            )
        made: Any = BITS[node['name']](seeds)
        if 'seeds' not in node and node['name'] == 'MT19937':
            made._legacy_seeding(0)  # as that of a RandomState, which has no seed sequence
        made.state = checked_bits(_words(node['state']))
        return made

    def _generator(self, node: Node) -> Any:
        return np.random.Generator(_checked(self.value(node['bits']), np.random.BitGenerator))

    def _random_state(self, node: Node) -> Any:
        made: Any = np.random.RandomState(_checked(self.value(node['bits']), np.random.MT19937))
        has_gauss, gauss = node['gauss']
        made.set_state({**made.get_state(legacy=False), 'has_gauss': has_gauss, 'gauss': gauss})
        return made

    def _random(self, node: Node) -> Any:
        version, words, gauss = node['state']
        made = Random()
        made.setstate((version, tuple(words), gauss))
        return made


def _if_shown(live: Any) -> Any:
    """Returns what shows an env, if it is that; a state has none of its own."""
    return live if is_shown(live, True) else None


def _words(plain: Any) -> Any:
    """Returns the state that ``_plain_words`` wrote."""
    if isinstance(plain, Mapping):
        return {name: _words(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return np.frombuffer(bytes.fromhex(plain[2]), plain[1]).copy()
    return plain


def _checked(value: Any, kind: Any) -> Any:
    """Returns a value after checking its type."""
    if not isinstance(value, kind):
        raise ValueError(f'a {type(value).__name__} is no {kind.__name__}')
    return value


def _dtype(plain: Any) -> np.dtype[Any]:
    """Returns the numpy type that ``dtype_to_descr`` described.

    Raises:
        ValueError: If values of it refer to objects.
    """

    def described(part: Any) -> Any:
        return (
            part
            if isinstance(part, str)
            else [(name, described(kind), *map(tuple, shape)) for name, kind, *shape in part]
        )

    made: np.dtype[Any] = np.lib.format.descr_to_dtype(described(plain))
    if made.hasobject:
        raise ValueError('the bytes of a state are never references to objects')
    return made


def _text(dtype: np.dtype[Any], text: str) -> Any:
    return text.encode('latin-1') if dtype.kind == 'S' else text


def _scalar(plain: Any, content: str) -> Any:
    dtype = _dtype(plain)
    return np.frombuffer(bytes.fromhex(content), dtype)[0] if dtype.itemsize else dtype.type()


DECODE: dict[str, Callable[..., Any]] = {
    'int': lambda text: int(text, 16),
    'float': float,
    'bytes': lambda text: text.encode('latin-1'),
    'range': lambda *parts: range(*(int(part, 16) for part in parts)),
    'np': _scalar,
    'np text': lambda plain, text: _dtype(plain).type(_text(_dtype(plain), text)),
    'dtype': _dtype,
}
"""Decodes single values by their tags."""
MAKE: dict[str, Callable[[Reader, Node], Any]] = {
    'array': Reader._array,
    'view': Reader._view,
    'bits': Reader._bits,
    'generator': Reader._generator,
    'random_state': Reader._random_state,
    'random': Reader._random,
}
"""Creates objects that are complete at once, by their kinds."""
LATER = ('view', 'generator', 'random_state')
"""Kinds of objects that refer to another one, which must be created before."""


SHARED = (np.random.Generator, np.random.RandomState, Random)
"""Types of class attributes that steps change, as they change spaces; all envs of the class share them."""


class Refusal(NamedTuple):
    """The refusal to save the state of an env."""

    reason: str
    """Path in the env, type, and reason."""


class StateKeeper(Protocol):
    """Captures and restores the state of an env, as ``EnvState`` does."""

    def capture(self) -> dict[str, Any] | Refusal:
        """Returns the state as plain data, or the reason why it cannot be saved."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a state that ``capture`` returned."""


class EnvState:
    """Captures and restores the state of an env.

    Create it right after the env: objects that cannot be saved, but do not change either, are found by their path.

    Args:
        env: An env or a vector env, with its wrappers.
    """

    def __init__(self, env: gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
        self._env: Any = env
        self._layers = layers_of(env)
        self._classes = Classes([*self._layers, *_members(self._layers[-1])])
        kinds = dict.fromkeys(kind for layer in self._layers for kind in type(layer).__mro__)
        self._shared = [(kind, name) for kind in kinds for name in _shared_by_all(kind)]
        self._originals = Originals()
        Writer(self._classes, self._originals, is_survey=True).write(self._roots())

    def capture(self) -> dict[str, Any] | Refusal:
        """Returns the state as plain data, or the reason why it cannot be saved."""
        try:
            return Writer(self._classes, self._originals).write(self._roots())
        except RefusedError as error:
            kind = type_name(error.kind).replace(':', '.').removeprefix('builtins.').lstrip('.')
            return Refusal(f'{self._shown(error.path)} ({kind}) {error.why}')
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
                raise MismatchError(f'its spaces are {[*roots]}, and were {[*reader.roots]}')
            for name, value in roots.items():
                if reader.roots[name] is not value:
                    raise MismatchError(f'{name} is of another class than before')
            reader.fill()
        except (*BAD_TREE, MemoryError) as error:
            raise CheckpointStateError(f'this is not the state of an env: {error!r}') from error

    def _roots(self) -> dict[str, Any]:
        """Returns the roots of the state: the env with its layers, and the shared attributes of its classes."""
        roots = {'env' + '.env' * depth: layer for depth, layer in enumerate(self._layers)}
        for kind, name in self._shared:
            roots[f'{kind.__qualname__}.{name}'] = vars(kind)[name]
        for name in ('action_space', 'observation_space'):
            if (space := getattr(self._env, name, None)) is not None:
                roots[name] = space
        return roots

    def _shown(self, path: str) -> str:
        """Returns a path in the user's terms: starting at the class of its layer."""
        depth = 0
        while depth < len(self._layers) - 1 and path.startswith('env' + '.env' * (depth + 1)):
            depth += 1
        prefix = 'env' + '.env' * depth
        return type(self._layers[depth]).__name__ + path[len(prefix) :] if path.startswith(prefix) else path


def capture_info(info: Mapping[str, Any]) -> Any:
    """Returns the info of a step as plain data, or ``None`` if that is impossible."""
    try:
        return Writer().write({'info': dict(info)})
    except RefusedError:
        return None


def restore_info(state: Any) -> dict[str, Any]:
    """Restores an info that ``capture_info`` converted."""
    reader = Reader(state)
    reader.fill()
    info: dict[str, Any] = reader.roots['info']
    return info


def layers_of(env: Any) -> list[Any]:
    """Returns an env's wrappers, the outermost first, and the env."""
    layers: list[Any] = [env]
    while 'env' in (attributes_of(layers[-1]) or {}):
        layers.append(layers[-1].env)
    return layers


def _members(env: Any) -> list[Any]:
    """Returns the envs of a vector env, with their wrappers."""
    envs = (attributes_of(env) or {}).get('envs')
    return [layer for member in envs for layer in layers_of(member)] if isinstance(envs, list | tuple) else []


def _shared_by_all(kind: type) -> list[str]:
    """Returns the names of a class's attributes that are spaces or generators, which all its objects share."""
    return [name for name, value in vars(kind).items() if is_space(value) or isinstance(value, SHARED)]
