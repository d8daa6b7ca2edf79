"""The tree of a checkpoint: plain values as JSON, arrays and tensors apart, rows written once, and the differences of two."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rlframe.errors import CheckpointError
from rlframe.utils.field import raw_items
from rlframe.utils.files import LimitExceededError, limit
from rlframe.utils.lazy import LazyModule
from rlframe.utils.serialize import struct_dtype
from rlframe.utils.strict_json import FLOAT, JSONRefusedError, check_nesting, checked_leaf

torch = LazyModule('torch')

SEGMENT_BYTES = 64 * 2**20
"""Maximum size of a file of rows, unless a single row is larger; also the extra memory that saving needs."""
MAX_SMALL = 50
"""Maximum number of files smaller than half of that in an incremental checkpoint; more are merged."""
NAME = re.compile(r'(replay_buffer|replay_frames)-(\d{1,18})-(\d{1,18})\.safetensors')

Array: TypeAlias = npt.NDArray[Any]

ARRAY, TENSOR, ROWS = '__array__', '__tensor__', '__rows__'
PAIRS, TUPLE, FIELDS = '__pairs__', '__tuple__', '__fields__'
MARKS = frozenset((ARRAY, TENSOR, ROWS, PAIRS, TUPLE, FLOAT, FIELDS))
"""Keys of the dicts that encode values without a JSON type. User dicts with one of these keys are written as pairs."""
NATIVE = frozenset(
    'bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64'.split()  # noqa: SIM905  a line of names reads better than a list of strings
)
"""Types of arrays that every reader of safetensors supports."""
BAD_TREE = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RuntimeError)
"""Exceptions that decoding raises if the JSON was not written by ``Encoder``."""
REMEDY = 'Tensors, arrays of numbers or text, numbers, strings, bools, None, and dicts, lists and tuples of these can be.'


class Rows(NamedTuple):
    """Columns of rows with permanent numbers and contents, which a checkpoint saves in blocks."""

    first: int
    """Number of the oldest row."""
    stop: int
    """Number after the newest row."""
    nbytes: int
    """Size of a row in bytes, over all columns."""
    read: Callable[[int, int], Mapping[str, Any]]
    """Returns the columns of the rows between two numbers; views or copies."""
    segments: dict[str, str]
    """Names and SHA-256 of the files that already hold some of these rows; saving adds those that it writes."""
    name: str = 'replay_buffer'
    """Prefix of their files: 'replay_buffer' or 'replay_frames'."""


class SavedRows(dict[str, Any]):
    """Columns that were read from a checkpoint.

    Args:
        columns: The columns.
        segments: Names and SHA-256 of the files they were read from.
    """

    def __init__(self, columns: Mapping[str, Any], segments: Mapping[str, str]) -> None:
        super().__init__(columns)
        self.segments = dict(segments)


class Segment(NamedTuple):
    """A file of rows."""

    name: str
    first: int
    stop: int
    rows: str
    """Name of the rows."""


def segment(first: int, stop: int, rows: str = 'replay_buffer') -> Segment:
    """Returns the segment of the rows between two numbers."""
    return Segment(f'{rows}-{first}-{stop}.safetensors', first, stop, rows)


def parse_segment(name: str) -> Segment | None:
    """Parses the file name of a segment; returns ``None`` if it is not one."""
    match = NAME.fullmatch(name)
    return Segment(name, int(match[2]), int(match[3]), match[1]) if match else None


def plan_segments(rows: Rows, saved: Mapping[str, int]) -> tuple[list[Segment], list[Segment]]:
    """Decides which files of an earlier checkpoint are reused and which rows are written.

    Args:
        rows: The rows to save.
        saved: Sizes in bytes of the files that hold some of these rows, by name.

    Returns:
        The files to reuse and those to write; together they cover all rows, in order and without a gap.
    """
    kept: list[Segment] = []
    known = [one for one in map(parse_segment, saved) if one is not None and one.rows == rows.name]
    for one in sorted(known, key=lambda s: s.first):
        if one.stop > rows.stop or one.stop <= max(rows.first, one.first):
            continue
        if one.first == kept[-1].stop if kept else one.first <= rows.first:
            kept.append(one)
    small = [i for i, one in enumerate(kept) if saved[one.name] < SEGMENT_BYTES // 2]
    if len(small) >= MAX_SMALL:
        kept = kept[: small[0]]
    start = kept[-1].stop if kept else rows.first
    step = max(SEGMENT_BYTES // max(rows.nbytes, 1), 1)
    new = [segment(first, min(first + step, rows.stop), rows.name) for first in range(start, rows.stop, step)]
    return kept, new if kept or new else [segment(start, start, rows.name)]


def join_segments(
    first: int, stop: int, parts: Sequence[Segment], read: Callable[[str], dict[str, Any]], limit: int
) -> dict[str, Any]:
    """Joins the arrays of segments and cuts off the rows before the first.

    Args:
        first: Number of the first row wanted.
        stop: Number after the last row.
        parts: The segments, in order.
        read: Returns the arrays of a file by name.
        limit: Size of all files in bytes: nothing larger is allocated.

    Raises:
        ValueError: If they do not fit together or do not match the numbers.
    """
    _check_cover(first, stop, parts)
    joined: dict[str, Any] = {}
    for (_, start, end, _), arrays in _read_parts(parts, read):
        skip = max(first - start, 0)
        if not joined and start + skip == first and end == stop:
            return {name: array[skip:] for name, array in arrays.items()}
        if not joined:
            rows = stop - first
            if rows * sum(a.itemsize * math.prod(a.shape[1:]) for a in arrays.values()) > limit:
                raise ValueError(f'{rows} rows do not fit into {limit} bytes')
            joined = {n: np.empty((rows, *array.shape[1:]), array.dtype) for n, array in arrays.items()}
        if joined.keys() != arrays.keys():
            raise ValueError(f'the columns {sorted(joined)} and {sorted(arrays)} differ')
        for name, array in arrays.items():
            target = joined[name]
            if (array.dtype, array.shape[1:]) != (target.dtype, target.shape[1:]):
                raise ValueError(f'the column {name} changes from {target.dtype} to {array.dtype}')
            target[start + skip - first : end - first] = array[skip:]
    return joined


def _check_cover(first: int, stop: int, parts: Sequence[Segment]) -> None:
    starts, stops = [part.first for part in parts], [part.stop for part in parts]
    if not parts or starts[0] > first or starts[1:] != stops[:-1] or stops[-1] != stop or not first <= stop:
        raise ValueError(f'the files do not hold the rows {first} to {stop}')


def _read_parts(
    parts: Sequence[Segment], read: Callable[[str], dict[str, Any]]
) -> Iterator[tuple[Segment, dict[str, Any]]]:
    for part in parts:
        arrays = read(part.name)
        for name, array in arrays.items():
            if not array.ndim or len(array) != part.stop - part.first:
                raise ValueError(f'{part.name} does not hold {part.stop - part.first} rows of {name}')
        yield part, arrays


class Encoder:
    """Encodes a tree of values as JSON, with its arrays kept separately.

    Args:
        key: Name of the tree, and prefix of the names of its arrays.
    """

    def __init__(self, key: str = '') -> None:
        self._key = key
        self._depth = 0
        self._deepest = limit('NESTING')
        self.arrays: dict[str, Array] = {}
        """The arrays by name; arrays that were C-ordered belong to the caller and are not copies."""
        self.rows: list[Rows] = []
        """The numbered rows of the tree."""

    def tree(self, value: Any) -> Any:
        """Encodes the tree as a value that ``to_json`` can write.

        Raises:
            CheckpointError: If a value in it cannot be saved in a checkpoint; its place is named.
        """
        return self._encode(value, self._key)

    def _encode(self, value: Any, key: str) -> Any:
        if self._depth >= self._deepest:
            raise CheckpointError('the state is nested too deeply to be saved', where=f'{key[:100]}...')
        self._depth += 1
        found = self._encoded(value, key)
        self._depth -= 1
        return found

    def _encoded(self, value: Any, key: str) -> Any:
        if value is None or isinstance(value, bool | int | float | str | np.generic):
            return _plain(value, key)
        if isinstance(value, Mapping):
            return self._mapping(value, key)
        if isinstance(value, list):
            return [self._encode(item, _join(key, i)) for i, item in enumerate(value)]
        if isinstance(value, Rows):
            self.rows.append(value)
            return {ROWS: len(self.rows) - 1}
        if isinstance(value, tuple):
            return {TUPLE: [self._encode(item, _join(key, i)) for i, item in enumerate(value)]}
        if isinstance(value, np.ndarray):
            return self._array(value, key)
        if isinstance(value, torch.Tensor):
            return self._tensor(value, key)
        raise _refused(value, key)

    def _mapping(self, value: Mapping[Any, Any], key: str) -> Any:
        names = [name.item() if isinstance(name, np.generic) else name for name in value]
        for name in names:
            if not isinstance(name, str | int):
                raise CheckpointError(
                    f'the name {name!r} cannot be part of a checkpoint; strings and ints can', where=key
                )
        items = [
            (name, self._encode(item, _join(key, name)))
            for name, item in zip(names, value.values(), strict=True)
        ]
        if all(isinstance(name, str) for name in names) and MARKS.isdisjoint(names):
            return dict(items)
        return {PAIRS: [list(item) for item in items]}

    def _array(self, value: Array, key: str) -> Any:
        kind = value.dtype.kind
        if value.dtype.isalignedstruct and type(value) is np.ndarray:
            names = value.dtype.names or ()
            fields = {name: self._array(value[name], _join(key, name)) for name in names}
            return {FIELDS: fields, 'axes': value.ndim}
        if kind not in 'biufcSUMm' or isinstance(value, np.ma.MaskedArray):
            raise _refused(value, key, f'{type(value).__name__} of type {value.dtype}')
        array = np.asarray(value, order='C').view(np.ndarray)
        if array.dtype.name in NATIVE and array.dtype.isnative:
            return {ARRAY: self._keep(array, key)}
        return {ARRAY: self._keep(array[..., None].view(np.uint8), key), 'dtype': array.dtype.str}

    def _tensor(self, value: Any, key: str) -> Any:
        if value.layout != torch.strided or value.is_quantized or value.device.type == 'meta':
            raise _refused(value, key, 'sparse, quantized or meta tensor')
        tensor = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        name = str(tensor.dtype).removeprefix('torch.')
        if name in NATIVE:
            return {TENSOR: self._keep(tensor.numpy(), key)}
        return {TENSOR: self._keep(tensor.unsqueeze(-1).view(torch.uint8).numpy(), key), 'dtype': name}

    def _keep(self, array: Array, key: str) -> str:
        name = key.encode('ascii', 'backslashreplace').decode('ascii') or 'array'
        while name in self.arrays or name == '__metadata__':
            name += "'"
        self.arrays[name] = array
        return name


def describe(error: BaseException) -> str:
    """Returns the message of one of ``BAD_TREE``, with its type."""
    text = str(error)[:300]
    is_ours = isinstance(error, LimitExceededError | JSONRefusedError)
    return text if is_ours else f'{type(error).__name__}: {text}'


def to_json(tree: Any, indent: int | None = None) -> bytes:
    """Returns an encoded tree as JSON of ASCII characters, on one line unless it is to be indented.

    Raises:
        CheckpointError: If it is nested too deeply, or an int has thousands of digits.
    """
    try:
        separators = (',', ':') if indent is None else None
        return json.dumps(tree, allow_nan=False, separators=separators, indent=indent).encode('ascii')
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f'the state cannot be written as JSON: {error}') from error


def decode(tree: Any, arrays: Mapping[str, Array], rows: Sequence[Any] = ()) -> Any:
    """Decodes a result of ``Encoder.tree``.

    Args:
        tree: The encoded tree, as it comes from ``strict_json``.
        arrays: The arrays by name; they become part of the tree without a copy. Each is used once only, so that no
            more memory is taken than they have.
        rows: The values of numbered rows, in order.

    Raises:
        Exception: One of ``BAD_TREE`` if it is invalid.
    """
    return _Decoder(arrays, rows).tree(tree)


class _Decoder:
    def __init__(self, arrays: Mapping[str, Array], rows: Sequence[Any]) -> None:
        self._arrays = dict(arrays)
        self._rows = rows
        self._depth = 0
        self._readers: dict[str, Callable[[dict[str, Any]], Any]] = {
            ARRAY: lambda tree: _array_of(self._arrays.pop(tree[ARRAY]), tree.get('dtype')),
            TENSOR: lambda tree: _tensor_of(self._arrays.pop(tree[TENSOR]), tree.get('dtype')),
            ROWS: lambda tree: self._rows[tree[ROWS]],
            PAIRS: lambda tree: {self.tree(name): self.tree(item) for name, item in tree[PAIRS]},
            TUPLE: lambda tree: tuple(self.tree(item) for item in tree[TUPLE]),
            FLOAT: lambda tree: float(tree[FLOAT]),
            FIELDS: lambda tree: _struct_of(
                {name: self.tree(item) for name, item in tree[FIELDS].items()}, tree['axes']
            ),
        }

    def tree(self, tree: Any) -> Any:
        if not isinstance(tree, list | dict):
            return checked_leaf(tree)
        self._depth += 1
        check_nesting(self._depth)
        found = [self.tree(item) for item in tree] if isinstance(tree, list) else self._dict(tree)
        self._depth -= 1
        return found

    def _dict(self, tree: dict[str, Any]) -> Any:
        mark = next((mark for mark in MARKS if mark in tree), None)
        if mark is None:
            return {name: self.tree(item) for name, item in tree.items()}
        return self._readers[mark](tree)


def _array_of(array: Array, dtype: str | None) -> Array:
    if dtype is None:
        return array
    named = np.dtype(dtype)
    if named.kind not in 'biufcSUMm':
        raise ValueError(f'arrays of type {dtype} are not read')
    flat: Array = array.reshape(-1).view(named)
    return flat.reshape(array.shape[:-1])


def _struct_of(fields: Mapping[str, Array], axes: int) -> Array:
    dtype = struct_dtype({name: (array.dtype, array.shape[axes:]) for name, array in fields.items()})
    shapes = {array.shape[:axes] for array in fields.values()}
    if len(shapes) != 1:
        raise ValueError(f'the fields {list(fields)} differ in length')
    struct = np.zeros(shapes.pop(), dtype)
    for name, array in fields.items():
        struct[name] = array
    return struct


def _tensor_of(array: Array, dtype: str | None) -> Any:
    tensor = torch.from_numpy(array)
    if dtype is None:
        return tensor
    named = getattr(torch, dtype)
    if not isinstance(named, torch.dtype):
        raise ValueError(f'there is no torch.{dtype}')
    if not array.size:
        return torch.empty(array.shape[:-1], dtype=named)  # its strides may not allow a view
    return tensor.view(named).squeeze(-1)


def _plain(value: Any, key: str) -> Any:
    if isinstance(value, np.generic):
        plain = value.item()
        if plain is not None and type(plain) not in (bool, int, float, str):
            raise _refused(value, key)
        value = plain
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {FLOAT: repr(float(value))}
    for kind in (bool, int, str):
        if isinstance(value, kind):
            return kind(value) if kind is not str else str.__str__(value)
    return None


def _join(key: str, name: Any) -> str:
    return f'{key}.{name}' if key else str(name)


def _refused(value: Any, key: str, kind: str = '') -> CheckpointError:
    kind = kind or type(value).__name__
    return CheckpointError(f'this {kind} cannot be part of a checkpoint', where=key, remedy=REMEDY)


def compare_states(saved: Mapping[str, Any], here: Mapping[str, Any], prefix: str = '') -> list[str]:
    """Compares the layers of two networks.

    Args:
        saved: The network's ``state_dict`` in the checkpoint.
        here: That of the network that loads it.
        prefix: Prefix of the names, such as ``model.``.

    Returns:
        A line for each layer that is missing on one side or has another shape, with both shapes.
    """
    lines = []
    for name in {**here, **saved}:
        there, own = _shape(saved, name), _shape(here, name)
        if there != own:
            lines.append(f'{prefix}{name}: {there} in the checkpoint, {own} here')
    return lines


def compare_configs(saved: Mapping[str, Any], here: Mapping[str, Any], prefix: str = '') -> list[str]:
    """Compares two configs.

    Args:
        saved: Config of the checkpoint, a section of it.
        here: The same section of the config of this run.
        prefix: Dotted key of the section and a dot.

    Returns:
        A line for each key whose value differs, with both values.
    """
    lines = []
    there, own = dict(raw_items(saved)), dict(raw_items(here))
    for name in {**own, **there}:
        old = there.get(name)
        new = own.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += compare_configs(old, new, f'{prefix}{name}.')
        elif _as_lists(old) != _as_lists(new):
            lines.append(f'{prefix}{name}: {old!r} in the checkpoint, {new!r} here')
    return lines


def _shape(state: Mapping[str, Any], name: str) -> Any:
    if name not in state:
        return 'missing'
    shape = getattr(state[name], 'shape', None)
    return tuple(shape) if shape is not None else f'a {type(state[name]).__name__}'


def _as_lists(value: Any) -> Any:
    """Returns a tuple as the list that JSON turns it into."""
    return [_as_lists(item) for item in value] if isinstance(value, list | tuple) else value
