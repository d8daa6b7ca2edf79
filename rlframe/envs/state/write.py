"""Writer: walks an env's objects and writes each once, with references by number."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

import numpy as np

from rlframe.envs.state import kinds
from rlframe.envs.state.arrays import Memory, digest
from rlframe.envs.state.attributes import attributes_of
from rlframe.envs.state.classes import Classes, can_be_made, is_set, layout_of, slots_of, type_name
from rlframe.envs.state.content import CONTENT
from rlframe.envs.state.values import BIG, PLAIN, encode_value, is_single
from rlframe.safety.strict_json import JsonText

INF = float('inf')
LARGE = 256
"""Minimum size in bytes at which an unchanged array of a space is written as a hash."""


class RefusedError(Exception):
    """The state of an env cannot be saved.

    Args:
        path: Path of the object.
        kind: Its type.
        why: The reason.
    """

    def __init__(self, path: str, kind: type, why: str) -> None:
        super().__init__(f'{path} ({type_name(kind)}) {why}')
        self.path, self.kind, self.why = path, kind, why


class Born:
    """The objects that an env had when it was created, by their paths.

    An object that still exists when a state is written is found by its path in another env created in the same way.
    """

    def __init__(self) -> None:
        self.places: dict[int, str] = {}
        """Ids of the objects to their paths."""
        self.objects: dict[str, Any] = {}
        """Paths to the objects."""
        self.types: dict[int, type] = {}
        """Ids to the types that the objects had."""
        self.blank: dict[int, set[str]] = {}
        """Ids to the attributes that were empty or only used for display."""
        self.digests: dict[int, str] = {}
        """Ids of arrays of spaces to hashes of their contents."""


class Writer:
    """Writes objects as a list of nodes.

    Args:
        known: The classes that a state may name; ``None``: those of the standard library only.
        born: The objects that the env had when it was created.
        draws: Whether the env renders.
    """

    surveys = False
    """Whether objects are only searched for."""

    def __init__(self, known: Classes | None = None, born: Born | None = None, draws: bool = False) -> None:
        self._classes, self._born, self._draws = known or Classes(()), born or Born(), draws
        self.nodes: list[Any] = []
        self.memory = Memory()
        self.texts: list[Any] = []
        """Elements of arrays of text, in the order in which they lie in memory."""
        self.own: dict[str, Any] = {}
        """Numbers of envs with their own state methods, to the states that they returned."""
        self._objects: list[Any] = []
        self._paths: list[str] = []
        self._numbers: dict[int, int] = {}
        self._named: dict[int, tuple[str, Any]] | None = None
        self._dicts: dict[int, int] = {}  # ids of the dicts that hold attributes, to their owners

    def write(self, roots: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the graph of everything that these named objects reference, directly or indirectly.

        Raises:
            RefusedError: If an object in it is not supported.
        """
        encoded = {name: self.value(value, name) for name, value in roots.items()}
        while len(self.nodes) < len(self._objects):
            number = len(self.nodes)
            self.nodes.append(self._node(number, self._objects[number]))
        for name in self._dicts.keys() & self._numbers.keys():
            if self._numbers[name] != self._dicts[name]:
                number = self._numbers[name]
                raise RefusedError(
                    self._paths[number], dict, 'is the dict in which an object keeps its attributes'
                )
        text = json.dumps({'roots': encoded, 'nodes': self.nodes}, separators=(',', ':'), allow_nan=False)
        return {
            'version': 1,
            'graph': JsonText(text),
            'own': self.own,
            'memory': self.memory.whole(),
            'texts': self.texts,
        }

    def value(self, value: Any, path: str, step: int | str | None = None) -> Any:
        """Encodes a value at the place that refers to it.

        Args:
            value: The value.
            path: Its path, or the object that contains it.
            step: Its index or attribute there.
        """
        kind = type(value)
        if kind in PLAIN or (kind is int and -BIG < value < BIG) or (kind is float and -INF < value < INF):
            return value
        if (
            is_single(kind)
            and not (kind is float and value != value)
            and (encoded := encode_value(value)) is not None
        ):
            return encoded
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
            if step is not None:
                path = f'{path}.{step}' if type(step) is str else f'{path}[{step}]'
            self._paths.append(path)
        return [number]

    def values(self, values: Iterable[Any], path: str) -> list[Any]:
        """Encodes several values."""
        return [
            value if type(value) in PLAIN else self.value(value, path, i) for i, value in enumerate(values)
        ]

    def path(self, number: int) -> str:
        """Returns the path where an object was found first."""
        return self._paths[number]

    def class_name(self, kind: type) -> str | None:
        """Returns the name of a class, or ``None`` if a state may not name it."""
        return self._classes.name_of(kind)

    def refused(self, number: int, why: str) -> RefusedError:
        """Returns the error that names the object that cannot be saved."""
        return RefusedError(self._paths[number], type(self._objects[number]), why)

    def _node(self, number: int, value: Any) -> Any:
        place, kind = self._born.places.get(id(value)), type(value)
        if place is not None and self._born.types[id(value)] is not kind:
            raise self.refused(number, 'had another class when it was created')
        if place is None and (name := self._name_of_global(value)) is not None:
            return {'kind': 'global', 'name': name, 'digest': self.digest_of(value)}
        if kind not in (object, SimpleNamespace) and (write := CONTENT.get(kind)) is not None:
            node = write(self, number, value)
        elif (special := kinds.kind_of(value)) is not None:
            node = special(self, number, value, place)
        else:
            node = self._instance(number, value, place)
        if place is not None and (node['kind'] not in kinds.IMMUTABLE or 'attributes' in node):
            node['at'] = place
        return node

    def _name_of_global(self, value: Any) -> str | None:
        if self._named is None:
            self._named = self._classes.named_objects()
        name, named = self._named.get(id(value), (None, None))
        return name if named is value and type(value) not in (tuple, frozenset) else None

    def digest_of(self, value: Any) -> str:
        """Returns a hash of the content of an object of the env's modules."""
        own = Writer(self._classes)
        own._named = {}
        graph = own.write({} if type(value) is object else {'value': value})
        content = [graph['graph'].encode(), graph['memory'].tobytes(), *(a.tobytes() for a in graph['texts'])]
        return blake2b(b''.join(content), digest_size=16).hexdigest()

    def _instance(self, number: int, value: Any, place: str | None) -> dict[str, Any]:
        kind = type(value)
        layout = layout_of(kind)
        if layout is None:
            raise self.refused(number, 'is compiled code, whose state cannot be read')
        if place is None and kind is not layout and self.class_name(kind) is None:
            why = "was made after the env's constructor, and its class is not part of the env's own package"
            if not can_be_made(kind):
                why = (
                    "was made after the env's constructor, and its class has __del__ or is not a plain class"
                )
            raise self.refused(number, why)
        node: dict[str, Any] = CONTENT[layout](self, number, value)
        if kind is not layout:
            node['class'] = type_name(kind)
        self._attributes(node, number, value)
        path = self._paths[number]
        slots = {
            name: self.value(member.__get__(value), f'{path}.{name.partition(".")[2]}')
            for name, member in slots_of(kind)
            if is_set(member, value)
        }
        if slots:
            node['slots'] = slots
        return node

    def _attributes(self, node: dict[str, Any], number: int, value: Any) -> None:
        attributes = attributes_of(value)
        if attributes is None:
            return
        if attributes is value:
            node['is_own_dict'] = True
            return
        self._dicts[id(attributes)] = number
        path, born = self._paths[number], self._born
        place = born.places.get(id(value))
        blank = born.blank.get(id(value), ())
        is_space = place is not None and kinds.is_space(value)
        written = node['attributes'] = {}
        for name, own in attributes.items():
            if type(name) is not str:
                raise self.refused(number, f'has an attribute named {name!r}')
            if type(own) in PLAIN:
                written[name] = own
            elif name in blank and kinds.is_shown(own, self._draws):
                written[name] = ['left']
            elif is_space and id(own) in born.digests and self._is_unchanged(own, f'{place}.{name}'):
                written[name] = ['same', born.digests[id(own)]]
            else:
                written[name] = self.value(own, path, name)

    def _is_unchanged(self, array: Any, place: str) -> bool:
        """Whether an array of a space is in its original place, and nothing else refers to it so far."""
        born = self._born
        is_there = born.places[id(array)] == place and id(array) not in self._numbers
        return is_there and digest(array) == born.digests[id(array)]


class Survey(Writer):
    """Finds the objects that an env has when it is created, without writing or refusing any."""

    surveys = True

    def __init__(self, known: Classes) -> None:
        super().__init__(known)
        self._named = {}

    def born(self, roots: Mapping[str, Any], draws: bool) -> Born:
        """Returns the objects that can be reached from these, by their names."""
        self._draws = draws
        self.write(roots)
        found = Born()
        for value, path in zip(self._objects, self._paths, strict=True):
            found.places[id(value)], found.objects[path] = path, value
            found.types[id(value)] = type(value)
            if kinds.kind_of(value) is not kinds.constant:
                self._classes.remember(type(value))
            attributes = attributes_of(value) or {}
            blank = {
                name
                for name, own in attributes.items()
                if own is None or (type(own) not in PLAIN and kinds.is_shown(own, True))
            }
            if blank:
                found.blank[id(value)] = blank
            if kinds.is_space(value):
                arrays = [
                    own for own in attributes.values() if type(own) is np.ndarray and own.nbytes >= LARGE
                ]
                found.digests.update({id(own): digest(own) for own in arrays})
        return found

    def _node(self, number: int, value: Any) -> Any:
        try:
            return super()._node(number, value)
        except RefusedError:
            return None

    def _instance(self, number: int, value: Any, place: str | None) -> dict[str, Any]:
        self._classes.remember(type(value))
        return super()._instance(number, value, '')
