"""Reader: creates the objects of a state, or finds them in a live env, and fills them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.envs.state import kinds
from rlframe.envs.state.arrays import digest
from rlframe.envs.state.attributes import attributes_of
from rlframe.envs.state.classes import Classes, MismatchError, is_set, layout_of, slots_of, type_name
from rlframe.envs.state.fill import FILL, FILL_LATER
from rlframe.envs.state.make import MAKE, MISSING, NEW, SAME
from rlframe.envs.state.values import decode_value
from rlframe.envs.state.write import Born
from rlframe.safety import strict_json
from rlframe.safety.limits import check_limit

HAVE_ATTRIBUTES = NEW.keys() | {'tuple', 'frozenset', 'value'}
"""Kinds of nodes whose objects have attributes that are part of the state."""
HUMAN = 'human'
"""The render mode that opens a window."""


class Reader:
    """Reads the output of a ``Writer``.

    Args:
        graph: The output.
        known: The classes that it may name; ``None``: those of the standard library only.
        born: The objects that the env had when it was created.

    Raises:
        MismatchError: If the state needs an object that the env does not have.
        Exception: If it is not a state.
    """

    def __init__(
        self, graph: Mapping[str, Any], known: Classes | None = None, born: Born | None = None
    ) -> None:
        self.classes, self._born = known or Classes(()), born or Born()
        text = graph['graph']
        told = strict_json.loads(text.encode(), 'STATE') if isinstance(text, str) else text
        self._nodes, self._own = told['nodes'], graph['own']
        self.memory = np.asarray(graph['memory'], np.uint8)
        self.texts = graph.get('texts', [])
        self._objects = [MISSING] * len(self._nodes)
        self._weights = [1] * len(self._nodes)
        for number in range(len(self._nodes)):
            self._make(number)
        self.roots = {name: self.value(value) for name, value in told['roots'].items()}
        """The objects that were given to ``Writer.write``, by their names."""

    def fill(self) -> None:
        """Fills the objects, starting with those that others are found through."""
        later = []
        for number, node in enumerate(self._nodes):
            if node['kind'] == 'own':
                self._objects[number].set_state(self._own[str(number)])
        for number, node in enumerate(self._nodes):
            value = self._objects[number]
            self._fill_attributes(node, value)
            if (fill := FILL.get(node['kind'])) is not None:
                fill(self, node, value)
            elif node['kind'] in FILL_LATER:
                later.append(number)
        for number in later:
            FILL_LATER[self._nodes[number]['kind']](self, self._nodes[number], self._objects[number])

    def value(self, encoded: Any) -> Any:
        if type(encoded) is not list:
            return encoded
        if type(encoded[0]) is not int:
            return decode_value(encoded)
        if encoded[0] < 0:
            raise ValueError('objects are numbered from 0')
        return self._objects[encoded[0]]

    def values(self, encoded: Any) -> list[Any]:
        return [self.value(value) for value in encoded]

    def _make(self, number: int) -> None:
        """Creates an object after its components."""
        stack, begun = [number], set()
        while stack:
            top = stack[-1]
            node = self._nodes[top]
            if self._objects[top] is MISSING:
                needed = _needed(node)
                missing = [part for part in needed if self._objects[part] is MISSING]
                if missing and top in begun:
                    raise ValueError('an object is a part of itself')
                if missing:
                    begun.add(top)
                    stack += missing
                    continue
                self._weights[top] += sum(self._weights[part] for part in needed)
                check_limit('STATE_VALUES', self._weights[top], 'values of a tuple, counted as often as used')
                self._objects[top] = self._made(node)
            stack.pop()

    def _made(self, node: Mapping[str, Any]) -> Any:
        kind = node['kind']
        live = self._live(node) if 'at' in node else MISSING
        if live is not MISSING:
            return live
        if kind in NEW:
            base = NEW[kind]
            made = self.class_of(node, base)
            return base.__new__(made, *([None] if base is defaultdict else []))
        if kind not in MAKE:
            raise MismatchError(f'{node.get("at", kind)} is needed')
        return MAKE[kind](self, node)

    def class_of(self, node: Mapping[str, Any], base: type) -> Any:
        if 'class' not in node:
            return base
        found = self.classes.find(node['class'])
        if layout_of(found) is not base:
            raise MismatchError(f'{node["class"]} has another memory layout than {base.__name__}')
        return found

    def _live(self, node: Mapping[str, Any]) -> Any:
        """Returns the object that the env had at the same path when created, unless another one matches too."""
        place, kind = node['at'], node['kind']
        live = self._born.objects.get(place, MISSING)
        if live is MISSING:
            if kind in kinds.ONLY_LIVE:
                raise MismatchError(f'{place} is missing')
            return MISSING
        if kind in kinds.ONLY_LIVE:
            named = live if isinstance(live, type) else type(live)
            name = f'{live.__module__}:{live.__qualname__}' if kind == 'function' and 'name' in node else None
            is_asked = kind != 'own' or kinds.kind_of(live) is kinds.own_state
            if type_name(named) != node['type'] or name != node.get('name') or not is_asked:
                raise MismatchError(f'{place} is a {type_name(named)}, and not {node["type"]} as it was')
            return live
        if kind in SAME:
            return live if SAME[kind](self, node, live) else MISSING
        if kind not in NEW or kinds.kind_of(live) is not None or layout_of(type(live)) is not NEW[kind]:
            return MISSING
        return live if type_name(type(live)) == node.get('class', type_name(NEW[kind])) else MISSING

    def _fill_attributes(self, node: Mapping[str, Any], value: Any) -> None:
        if node['kind'] not in HAVE_ATTRIBUTES:
            if not node.keys().isdisjoint(('attributes', 'slots', 'is_own_dict')):
                raise ValueError(f'a {node["kind"]} has no attributes of its own')
            return
        if 'is_own_dict' in node:
            object.__setattr__(value, '__dict__', value)
        if 'attributes' in node:
            live = attributes_of(value)
            if live is None:
                raise MismatchError(f'a {type(value).__name__} has no attributes')
            place = node.get('at')
            filled = {
                str(name): self._attribute(own, live.get(name), f'{place}.{name}')
                for name, own in node['attributes'].items()
            }
            if kinds.is_env(value):
                _keep_shown(filled, live)
            live.clear()
            live.update(filled)
        slots = dict(slots_of(type(value))) if 'slots' in node or 'class' in node else {}
        for name, member in slots.items():
            if name in node.get('slots', ()):
                member.__set__(value, self.value(node['slots'][name]))
            elif is_set(member, value):
                member.__delete__(value)

    def _attribute(self, encoded: Any, live: Any, place: str) -> Any:
        if type(encoded) is not list or encoded[0] not in ('left', 'same'):
            return self.value(encoded)
        if encoded[0] == 'left':
            return live if kinds.is_shown(live, True) else None
        array = self._born.objects.get(place)
        if type(array) is not np.ndarray or digest(array) != encoded[1]:
            raise MismatchError(f'{place} has changed')
        return array


def _parts(node: Mapping[str, Any]) -> list[Any]:
    """Returns the references of a node that must be created before it."""
    kind = node['kind']
    if kind in ('tuple', 'frozenset', 'slice'):
        return list(node['items'])
    names = {'view': 'of', 'bound': 'of', 'generator': 'bits', 'random_state': 'bits', 'value': 'value'}
    return [node[names[kind]]] if kind in names else []


def _needed(node: Mapping[str, Any]) -> list[int]:
    """Returns the numbers of the objects that must be created before that of a node."""
    numbers = [value[0] for value in _parts(node) if type(value) is list and type(value[0]) is int]
    if any(number < 0 for number in numbers):
        raise ValueError('objects are numbered from 0')
    return numbers


def _keep_shown(filled: dict[str, Any], live: Mapping[str, Any]) -> None:
    """Keeps the env's own attributes that come from the config: its rendering and its description."""
    filled |= {name: value for name, value in live.items() if kinds.is_shown(value, False)}
    if 'render_mode' in live:
        filled['render_mode'] = live['render_mode']
    elif filled.get('render_mode') == HUMAN:
        raise MismatchError('a state cannot open a window')
