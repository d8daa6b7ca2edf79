"""Trees of values as JSON and arrays: what is encoded comes back equal, and decoding runs no code.

Arrays that safetensors has a type for are kept as they are, others (bfloat16, complex, text) as their bytes, with the type
named in the JSON, and structured ones field by field. numpy's scalars come back as Python's, and what is shared comes back twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rlframe.errors import CheckpointError
from rlframe.utils.checkpoint.rows import Rows
from rlframe.utils.lazy import LazyModule
from rlframe.utils.struct_array import struct_dtype

torch = LazyModule('torch')

Array: TypeAlias = npt.NDArray[Any]

ARRAY, TENSOR, ROWS = '__array__', '__tensor__', '__rows__'
PAIRS, TUPLE, FLOAT, FIELDS = '__pairs__', '__tuple__', '__float__', '__fields__'
MARKS = frozenset((ARRAY, TENSOR, ROWS, PAIRS, TUPLE, FLOAT, FIELDS))
"""Keys of the dicts that stand for what JSON has no word for. A user's dict that has one of them is written as pairs."""
NATIVE = frozenset(
    'bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64'.split()  # noqa: SIM905  a line of names reads better than a list of strings
)
"""Types of arrays that every reader of safetensors knows."""
BAD_TREE = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RuntimeError)
"""What decoding raises where the JSON is not what ``Encoder`` wrote."""
REMEDY = 'Tensors, arrays of numbers or text, numbers, strings, bools, None, and dicts, lists and tuples of these can be.'


class Encoder:
    """Turns a tree of values into JSON, and keeps the arrays in it apart.

    Args:
        key: Name of the tree, with which the names of its arrays begin.
    """

    def __init__(self, key: str = '') -> None:
        self._key = key
        self.arrays: dict[str, Array] = {}
        """The arrays by name; those that were C-ordered already are the caller's own, not copies."""
        self.rows: list[Rows] = []
        """Numbered rows that stood in the tree."""

    def tree(self, value: Any) -> Any:
        """Returns the tree as what ``to_json`` can write.

        Raises:
            CheckpointError: If something in it can be no part of a checkpoint; its place is named.
        """
        try:
            return self._encode(value, self._key)
        except RecursionError:
            raise CheckpointError('the state is nested too deeply to be saved', where=self._key) from None

    def _encode(self, value: Any, key: str) -> Any:
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


def decode(tree: Any, arrays: Mapping[str, Array], rows: Any = None) -> Any:
    """Returns what ``Encoder.tree`` encoded.

    Args:
        tree: The encoded tree, as it comes from ``json.loads``.
        arrays: The arrays by name; they become part of the tree, not copies of them.
        rows: What stands for numbered rows.

    Raises:
        Exception: One of ``BAD_TREE`` if it is something else.
    """
    if isinstance(tree, list):
        return [decode(item, arrays, rows) for item in tree]
    if not isinstance(tree, dict):
        return tree
    mark = next((mark for mark in MARKS if mark in tree), None)
    if mark is None:
        return {name: decode(item, arrays, rows) for name, item in tree.items()}
    content, dtype = tree[mark], tree.get('dtype')
    readers: dict[str, Callable[[], Any]] = {
        ARRAY: lambda: _array_of(arrays[content], dtype),
        TENSOR: lambda: _tensor_of(arrays[content], dtype),
        ROWS: lambda: rows,
        PAIRS: lambda: {name: decode(item, arrays, rows) for name, item in content},
        TUPLE: lambda: tuple(decode(item, arrays, rows) for item in content),
        FLOAT: lambda: float(content),
        FIELDS: lambda: _struct_of({n: decode(item, arrays) for n, item in content.items()}, tree['axes']),
    }
    return readers[mark]()


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
        return torch.empty(array.shape[:-1], dtype=named)  # whose strides may not be those that a view needs
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
