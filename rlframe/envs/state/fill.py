"""Fills the objects of a state, new ones and those of a live env."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.envs.state import kinds
from rlframe.envs.state.arrays import flat_bytes
from rlframe.envs.state.make import NEW, checked
from rlframe.envs.state.sets import refill
from rlframe.utils.bit_state import checked_bits

if TYPE_CHECKING:
    from rlframe.envs.state.read import Reader


def _fill_list(reader: Reader, node: Mapping[str, Any], value: Any) -> None:
    list.__setitem__(value, slice(None), reader.values(node['items']))


def _fill_deque(reader: Reader, node: Mapping[str, Any], value: Any) -> None:
    items = reader.values(node['items'])
    if value.maxlen != node['maxlen']:
        deque.__init__(value, items, node['maxlen'])
        return
    deque.clear(value)
    deque.extend(value, items)


def _fill_bytes(reader: Reader, node: Mapping[str, Any], value: Any) -> None:
    bytearray.__setitem__(value, slice(None), node['value'].encode('latin-1'))


def _fill_array(reader: Reader, node: Mapping[str, Any], value: Any) -> None:
    value.flags.writeable = True
    memory = flat_bytes(value, node['axes'])
    content = reader.memory[node['start'] : node['start'] + value.nbytes]
    if memory is None or len(content) != value.nbytes:
        raise ValueError('the bytes of an array are missing')
    memory[:] = content
    value.flags.writeable = bool(node['writeable'])


def _fill_text(reader: Reader, node: Mapping[str, Any], value: Any) -> None:
    content = np.asarray(reader.texts[node['start']])
    if content.dtype != value.dtype:
        raise ValueError('the texts of an array are of another type')
    value.flags.writeable = True
    ordered = value.transpose(node['axes'])
    ordered[...] = content.reshape(ordered.shape)
    value.flags.writeable = bool(node['writeable'])


def _fill_objects(reader: Reader, node: Mapping[str, Any], value: Any) -> None:
    value.flags.writeable = True
    filled = np.empty(len(node['items']), object)
    for index, own in enumerate(reader.values(node['items'])):
        filled[index] = own
    value[...] = filled.reshape(value.shape)
    value.flags.writeable = bool(node['writeable'])


def _fill_view(reader: Reader, node: Mapping[str, Any], value: Any) -> None:
    if not node['writeable']:
        value.flags.writeable = False


def _fill_bits(reader: Reader, node: Mapping[str, Any], value: Any) -> None:
    seeds = reader.value(node['seeds'])
    if seeds is not None and value.seed_seq is not seeds:
        value.__setstate__((value.state, checked(seeds, np.random.SeedSequence)))
    value.state = checked_bits(_state_of(node['state']))


def _fill_random_state(reader: Reader, node: Mapping[str, Any], value: Any) -> None:
    has_gauss, gauss = node['gauss']
    state = value._bit_generator.state
    value.set_state({**state, 'has_gauss': int(has_gauss), 'gauss': float(gauss)})


def _fill_random(reader: Reader, node: Mapping[str, Any], value: Any) -> None:
    version, words, gauss = node['state']
    random.Random.setstate(value, (version, tuple(words), gauss))


def _fill_cells(reader: Reader, node: Mapping[str, Any], value: Any) -> None:
    for cell, own in zip(value.__closure__ or (), node['cells'], strict=True):
        if own != kinds.EMPTY:
            cell.cell_contents = reader.value(own)


def _fill_mapping(reader: Reader, node: Mapping[str, Any], value: Any) -> None:
    kind: Any = NEW[node['kind']]
    kind.clear(value)
    for name, own in node['items']:
        kind.__setitem__(value, reader.value(name), reader.value(own))
    if kind is defaultdict:
        value.default_factory = reader.value(node['factory'])


def _fill_set(reader: Reader, node: Mapping[str, Any], value: Any) -> None:
    refill(value, reader.values(node['items']))


def _state_of(plain: Any) -> Any:
    if isinstance(plain, Mapping):
        return {name: _state_of(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return np.frombuffer(bytes.fromhex(plain[2]), np.dtype(plain[1])).copy()
    return plain


FILL: dict[str, Callable[[Any, Any, Any], None]] = {
    'list': _fill_list,
    'deque': _fill_deque,
    'bytearray': _fill_bytes,
    'array': _fill_array,
    'text': _fill_text,
    'objects': _fill_objects,
    'view': _fill_view,
    'bits': _fill_bits,
    'random': _fill_random,
    'function': _fill_cells,
}
"""Maps kinds to the functions that fill an object."""
FILL_LATER: dict[str, Callable[[Any, Any, Any], None]] = {
    **dict.fromkeys(('dict', 'OrderedDict', 'defaultdict'), _fill_mapping),
    'set': _fill_set,
    'random_state': _fill_random_state,
}
"""Maps kinds to the functions that fill an object after all others have their content."""
