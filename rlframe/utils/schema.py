"""Schemas of states, so that an error names the missing or invalid part.

A schema is a ``Kind``, or a dict of schemas; ``'name?'`` is a key that may be missing, and unknown keys are ignored.
Each class that restores a state has its own schema and checks it first; ``part`` builds the dotted name of the part
and turns any other error that a bad state causes into the same kind of error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rlframe.errors import CheckpointStateError, RLFrameError
from rlframe.utils.lazy import torch
from rlframe.utils.serialize import checked_bits

BROKEN = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    AssertionError,
    MemoryError,
)
"""Exceptions that code raises when it restores a malformed state."""
Schema: TypeAlias = 'Kind | Mapping[str, Schema]'


class Kind(NamedTuple):
    """The expected type and content of a part of a state."""

    name: str
    """In words, as ``expected`` of the error."""
    fits: Callable[[Any], bool]
    below: Schema | None = None
    """Schema of each item, of a list or a dict."""


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_column(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_column, value.values()))
    return isinstance(value, np.ndarray | torch.Tensor) and value.ndim > 0


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_int(value)


INT = Kind('an int', _is_int)
COUNT = Kind('an int >= 0', lambda value: _is_int(value) and value >= 0)
NUMBER = Kind('a number', _is_number)
FINITE = Kind('a finite number', lambda value: _is_number(value) and math.isfinite(value))
FLAG = Kind('a bool', lambda value: isinstance(value, bool))
TEXT = Kind('a text', lambda value: isinstance(value, str))
DICT = Kind('a dict', lambda value: isinstance(value, Mapping))
LIST = Kind('a list', lambda value: isinstance(value, list | tuple))
TENSOR = Kind('a tensor', lambda value: isinstance(value, torch.Tensor))
COLUMN = Kind('an array, a tensor, or a dict of them', _is_column)


def array(kinds: str = '', shape: tuple[int | None, ...] | None = None) -> Kind:
    """Returns the schema of an array.

    Args:
        kinds: Letters of numpy's ``dtype.kind``; empty: any.
        shape: Its shape, with ``None`` for any size; ``None`` for any shape (``...`` is not supported).
    """

    def fits(value: Any) -> bool:
        if not isinstance(value, np.ndarray) or (kinds and value.dtype.kind not in kinds):
            return False
        return shape is None or (
            value.ndim == len(shape)
            and all(n is None or n == m for n, m in zip(shape, value.shape, strict=True))
        )

    words = {'f': 'floats', 'iu': 'ints', 'b': 'bools'}.get(kinds, 'numbers')
    size = ''
    if shape is not None:
        size = f' of shape {tuple("any" if n is None else n for n in shape)}'
    return Kind(f'an array of {words}{size}', fits)


def saved_arrays(owner: Any, names: Iterable[str]) -> dict[str, Any]:
    """Returns copies of the arrays that an object has under these names, with an underscore in front."""
    return {name: getattr(owner, f'_{name}').copy() for name in names}


def load_arrays(owner: Any, names: Iterable[str], state: Mapping[str, Any]) -> None:
    """Writes the result of ``saved_arrays`` into the arrays of an object, whose shapes must be the same."""
    own: dict[str, Any] = {name: getattr(owner, f'_{name}') for name in names}
    kinds = {'i': 'iu', 'u': 'iu'}
    check_state(
        state,
        {name: array(kinds.get(each.dtype.kind, each.dtype.kind), each.shape) for name, each in own.items()},
    )
    for name, each in own.items():
        each[:] = state[name]


def rows(count: int) -> Kind:
    """Returns the schema of an array of any kind with this many rows."""
    return Kind(
        f'an array of {count} rows', lambda v: isinstance(v, np.ndarray) and v.ndim > 0 and len(v) == count
    )


def tensor_like(other: Any) -> Kind:
    """Returns the schema of a tensor of the same shape."""
    shape = tuple(other.shape)
    return Kind(
        f'a tensor of shape {shape}', lambda v: isinstance(v, torch.Tensor) and tuple(v.shape) == shape
    )


def maybe(kind: Kind) -> Kind:
    """Returns the schema that also accepts ``None``."""
    return Kind(f'{kind.name} or None', lambda value: value is None or kind.fits(value), kind.below)


def list_of(schema: Schema, count: int | None = None) -> Kind:
    """Returns the schema of a list of parts, with a fixed length if one is given."""
    words = 'a list' if count is None else f'a list of {count}'
    return Kind(words, lambda v: LIST.fits(v) and (count is None or len(v) == count), schema)


def dict_of(schema: Schema) -> Kind:
    """Returns the schema of a dict of parts with string keys."""
    return Kind(
        'a dict', lambda v: isinstance(v, Mapping) and all(isinstance(name, str) for name in v), schema
    )


def _is_generator(value: Any) -> bool:
    if not isinstance(value, Mapping) or not isinstance(value.get('bit_generator'), str):
        return False
    kind: Any = getattr(np.random, value['bit_generator'], None)
    if not isinstance(kind, type) or not issubclass(kind, np.random.BitGenerator):
        return False
    try:
        kind(0).state = checked_bits(value)
    except BROKEN:
        return False
    return True


GENERATOR = Kind("the state of one of numpy's random generators", _is_generator)
NETWORK = dict_of(TENSOR)


def check_state(state: Any, schema: Schema, key: str = '') -> None:
    """Checks that a state fits its schema.

    Args:
        state: The state, or a part of it.
        schema: Its schema.
        key: Dotted name of the part.

    Raises:
        CheckpointStateError: With the part's name, the actual and the expected value.
    """
    if not isinstance(schema, Kind):
        _check_parts(state, schema, key)
        return
    if not _fits(schema, state):
        raise CheckpointStateError(
            'this part of the state has the wrong type or shape',
            where=key,
            got=_ShortForm(state),
            expected=schema.name,
        )
    if schema.below is not None and state is not None:
        for name, below in state.items() if isinstance(state, Mapping) else enumerate(state):
            check_state(below, schema.below, _join(key, name))


def _fits(kind: Kind, state: Any) -> bool:
    try:
        return kind.fits(state)
    except BROKEN:
        return False


def part_of(state: Any, name: str, schema: Schema) -> Any:
    """Returns a part of a state after checking its schema; raises like ``check_state``."""
    check_state(state, {name: schema})
    return state[name]


def _check_parts(state: Any, schema: Mapping[str, Schema], key: str) -> None:
    check_state(state, DICT, key)
    for name, below in schema.items():
        plain = name.removesuffix('?')
        if plain in state:
            check_state(state[plain], below, _join(key, plain))
        elif plain == name:
            expected = below.name if isinstance(below, Kind) else 'a dict'
            where = _join(key, plain)
            raise CheckpointStateError(f'this part of the state is missing; expected {expected}', where=where)


@contextmanager
def part(name: str) -> Iterator[None]:
    """Prefixes errors with the name of a part, and turns other errors that a bad state causes into such errors.

    Raises:
        CheckpointStateError: If the block raised one, or any of ``BROKEN`` that is not an error of rlframe.
    """
    try:
        yield
    except CheckpointStateError as error:
        error.where = _join(name, error.where)
        raise
    except RLFrameError:
        raise
    except BROKEN as error:
        message = f'this part of the state cannot be restored: {type(error).__name__}: {str(error)[:300]}'
        raise CheckpointStateError(message, where=name) from error


@contextmanager
def loading(path: Path | str) -> Iterator[None]:
    """Prefixes the names of parts with the path of a checkpoint."""
    try:
        yield
    except CheckpointStateError as error:
        error.where = f'{path}: {error.where}'
        raise


class _ShortForm:
    """Describes a value in an error: shortened, and arrays by their shapes."""

    def __init__(self, value: Any) -> None:
        shape = getattr(value, 'shape', None)
        is_long = isinstance(value, Mapping | list | tuple)
        self._text = repr(value)[:80] if shape is None and not is_long else f'a {type(value).__name__}'
        if shape is not None:
            self._text += f' of {value.dtype} and shape {tuple(shape)}'
        elif is_long:
            self._text += f' of {len(value)}'

    def __repr__(self) -> str:
        return self._text


def _join(key: str, name: Any) -> str:
    return '.'.join(part for part in (key, str(name)) if part)


def _is_section(value: Any) -> bool:
    return value is None or isinstance(value, Mapping | list)


FACTS: Schema = {
    'policy?': TEXT,
    'env?': TEXT,
    'spaces?': dict_of(DICT),
    'progress?': dict_of(NUMBER),
    'seconds?': dict_of(FINITE),
    'machine?': dict_of(TEXT),
    'score?': maybe(NUMBER),
    'exact?': FLAG,
    'config?': {'main_config': DICT, 'create_config': dict_of(Kind('a dict, a list or None', _is_section))},
    'logs?': dict_of(COUNT),
    'serial?': COUNT,
    'replay_buffer?': TEXT,
    'rlframe?': TEXT,
}
"""Schema of a checkpoint's manifest, without its files."""
