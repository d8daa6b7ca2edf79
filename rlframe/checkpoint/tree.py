"""Encodes trees of values as JSON and arrays: values are restored equal, and decoding runs no code.

Arrays of a type that safetensors supports are kept as they are, others (bfloat16, complex, text) as their bytes, with
the type named in the JSON, and structured ones field by field. numpy scalars are restored as Python's, and shared
objects as separate copies.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rlframe.checkpoint.rows import Rows
from rlframe.errors import CheckpointError
from rlframe.safety.limits import LimitExceededError, check_limit, limit
from rlframe.safety.secrets import Secrets, Unknown
from rlframe.safety.strict_json import FLOAT, JSONRefusedError, JsonText, check_nesting, checked_leaf
from rlframe.utils.lazy import LazyModule
from rlframe.utils.struct_array import struct_dtype

torch = LazyModule('torch')

Array: TypeAlias = npt.NDArray[Any]

ARRAY, TENSOR, ROWS = '__array__', '__tensor__', '__rows__'
PAIRS, TUPLE, FIELDS = '__pairs__', '__tuple__', '__fields__'
SECRET, TEXTS = '__secret__', '__texts__'
MARKS = frozenset((ARRAY, TENSOR, ROWS, PAIRS, TUPLE, FLOAT, FIELDS, SECRET, TEXTS))
"""Keys of the dicts that encode values without a JSON type. User dicts with one of these keys are written as pairs."""
NATIVE = frozenset(
    'bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64'.split()  # noqa: SIM905  a line of names reads better than a list of strings
)
"""Types of arrays that every reader of safetensors supports."""
BAD_TREE = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RuntimeError)
"""Exceptions that decoding raises if the JSON was not written by ``Encoder``."""
REMEDY = 'Tensors, arrays of numbers or text, numbers, strings, bools, None, and dicts, lists and tuples of these can be.'


class BrokenPartError(ValueError):
    """A part of a tree that ``Encoder`` did not write.

    Args:
        key: Its dotted name.
        why: What is wrong with it.
    """

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f'{key}: {why}')
        self.key, self.why = key, why


class Encoder:
    """Encodes a tree of values as JSON, with its arrays kept separately.

    Args:
        key: Name of the tree, and prefix of the names of its arrays.
        secrets: Values that are replaced by their names.
    """

    def __init__(self, key: str = '', secrets: Secrets | None = None) -> None:
        self._key, self._secrets = key, secrets or Secrets()
        self._depth, self._deepest = 0, limit('NESTING')
        self.arrays: dict[str, Array] = {}
        """The arrays by name; those that were C-ordered already belong to the caller and are not copies."""
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
        if isinstance(value, JsonText):
            has_secrets = self._secrets and self._secrets.scrub(value) != value
            return self._encode(json.loads(value), key) if has_secrets else str(value)
        if value is None or isinstance(value, bool | int | float | str | np.generic):
            return self._plain(value, key)
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
        hidden = [self._secrets.split(name) for name in names] if self._secrets else [None] * len(names)
        if all(isinstance(name, str) for name in names) and MARKS.isdisjoint(names) and not any(hidden):
            return dict(items)
        pairs = zip(hidden, items, strict=True)
        return {PAIRS: [[{SECRET: parts} if parts else name, item] for parts, (name, item) in pairs]}

    def _plain(self, value: Any, key: str) -> Any:
        plain = _plain(value, key)
        parts = self._secrets.split(plain) if self._secrets else None
        return plain if parts is None else {SECRET: parts}

    def _texts(self, value: Array, key: str) -> Any:
        """Encodes a string array with secrets as a list; None for any other array."""
        if value.dtype.kind not in 'US' or not self._secrets:
            return None
        is_bytes = value.dtype.kind == 'S'
        texts = [item.decode('latin-1') if is_bytes else str(item) for item in value.ravel().tolist()]
        if not any(self._secrets.split(text) for text in texts):
            return None
        return {
            TEXTS: [self._plain(t, key) for t in texts],
            'dtype': value.dtype.str,
            'shape': list(value.shape),
        }

    def _array(self, value: Array, key: str) -> Any:
        kind = value.dtype.kind
        if value.dtype.isalignedstruct and type(value) is np.ndarray:
            names = value.dtype.names or ()
            fields = {name: self._array(value[name], _join(key, name)) for name in names}
            return {FIELDS: fields, 'axes': value.ndim}
        if kind not in 'biufcSUMm' or isinstance(value, np.ma.MaskedArray):
            raise _refused(value, key, f'{type(value).__name__} of type {value.dtype}')
        if (texts := self._texts(value, key)) is not None:
            return texts
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
        name = self._secrets.scrub(key).encode('ascii', 'backslashreplace').decode('ascii') or 'array'
        while name in self.arrays or name == '__metadata__':
            name += "'"
        self.arrays[name] = array
        return name


def describe(error: BaseException) -> str:
    """Returns the message of one of ``BAD_TREE``, with its type."""
    text = str(error)[:300]
    is_ours = isinstance(error, LimitExceededError | JSONRefusedError | BrokenPartError)
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


def decode(
    tree: Any, arrays: Mapping[str, Array], rows: Sequence[Any] = (), secrets: Secrets | None = None
) -> Any:
    """Decodes what ``Encoder.tree`` encoded.

    Args:
        tree: The encoded tree, as it comes from ``strict_json``.
        arrays: The arrays by name; they become part of the tree without a copy. Each is used once only, so that no
            more memory is taken than they have.
        rows: The values of numbered rows, in order.
        secrets: Values of the secrets; by default ``'***'``.

    Raises:
        Exception: One of ``BAD_TREE`` if it is invalid.
    """
    return _Decoder(arrays, rows, secrets or Unknown()).tree(tree)


class _Decoder:
    def __init__(self, arrays: Mapping[str, Array], rows: Sequence[Any], secrets: Secrets) -> None:
        self._arrays, self._rows, self._secrets, self._depth = dict(arrays), rows, secrets, 0
        self._deepest = limit('NESTING')
        self._readers: dict[str, Callable[[dict[str, Any]], Any]] = {
            ARRAY: lambda tree: _array_of(self._arrays.pop(tree[ARRAY]), tree.get('dtype')),
            TENSOR: lambda tree: _tensor_of(self._arrays.pop(tree[TENSOR]), tree.get('dtype')),
            ROWS: lambda tree: self._rows[tree[ROWS]],
            PAIRS: lambda tree: {self.tree(name): self._named(name, item) for name, item in tree[PAIRS]},
            TUPLE: lambda tree: tuple(self._named(i, item) for i, item in enumerate(tree[TUPLE])),
            FLOAT: lambda tree: float(tree[FLOAT]),
            SECRET: lambda tree: self._secrets.join(tree[SECRET]),
            TEXTS: self._texts,
            FIELDS: lambda tree: _struct_of(
                {name: self.tree(item) for name, item in tree[FIELDS].items()}, tree['axes']
            ),
        }

    def tree(self, tree: Any) -> Any:
        if not isinstance(tree, list | dict):
            return checked_leaf(tree)
        self._depth += 1
        if self._depth > self._deepest:
            check_nesting(self._depth)
        if isinstance(tree, list):
            found: Any = [self._named(i, item) for i, item in enumerate(tree)]
        else:
            found = self._dict(tree)
        self._depth -= 1
        return found

    def _named(self, name: Any, tree: Any) -> Any:
        try:
            return self.tree(tree)
        except BrokenPartError as error:
            raise BrokenPartError(_join(str(name), error.key), error.why) from error.__cause__
        except (JSONRefusedError, CheckpointError):
            raise
        except BAD_TREE as error:
            raise BrokenPartError(str(name), describe(error)) from error

    def _dict(self, tree: dict[str, Any]) -> Any:
        mark = next((mark for mark in MARKS if mark in tree), None)
        if mark is None:
            return {name: self._named(name, item) for name, item in tree.items()}
        return self._readers[mark](tree)

    def _texts(self, tree: dict[str, Any]) -> Array:
        texts: list[Any] = [self.tree(item) for item in tree[TEXTS]]
        dtype = np.dtype(tree['dtype'])
        if dtype.kind not in 'US':
            raise ValueError(f'an array of type {dtype} is not a string array')
        items = [text.encode('latin-1') for text in texts] if dtype.kind == 'S' else texts
        letter = 4 if dtype.kind == 'U' else 1
        width = max([dtype.itemsize // letter, *map(len, texts)])
        check_limit('STATE_BYTES', width * letter * len(texts), 'bytes of an array of text')
        return np.array(items, f'{dtype.kind}{width}').reshape(tree['shape'])


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
