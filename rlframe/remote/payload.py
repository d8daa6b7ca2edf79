"""Payloads: trees of arrays as bytes, in the format of a safetensors file, in which nothing is trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.timestep import Batch
from rlframe.errors import CheckpointError, MessageError, PayloadError
from rlframe.run.checkpoint_tree import BAD_TREE, Array, Encoder, decode, describe, to_json
from rlframe.utils import strict_json

FORMAT = 'rlframe payload 1'
BATCH = '__batch__'
"""Key of the dict that encodes a ``Batch``."""
DTYPES = {
    'BOOL': 'bool', 'I8': 'int8', 'I16': 'int16', 'I32': 'int32', 'I64': 'int64', 'U8': 'uint8', 'U16': 'uint16',
    'U32': 'uint32', 'U64': 'uint64', 'F16': 'float16', 'F32': 'float32', 'F64': 'float64',
}  # fmt: skip
"""Names of types in safetensors files, and numpy's."""
NAMES = {name: code for code, name in DTYPES.items()}
MOST_AXES = 32


class _Encoder(Encoder):
    """Encodes batches, too."""

    def _encoded(self, value: Any, key: str) -> Any:
        if isinstance(value, Batch):
            return {BATCH: super()._encoded(dict(value.items()), key)}
        if isinstance(value, Mapping) and BATCH in value:
            raise PayloadError(f'the name {BATCH!r} is reserved', where=key)
        return super()._encoded(value, key)


def pack(payload: Any) -> list[Any]:
    """Returns the bytes of a payload in pieces, which are views of its arrays.

    Raises:
        PayloadError: If a value in it cannot be sent; its place is named.
    """
    encoder = _Encoder('payload')
    try:
        tree = to_json(encoder.tree(payload))
    except CheckpointError as error:
        message = error.message.replace('be part of a checkpoint', 'be sent').replace('be saved', 'be sent')
        raise PayloadError(message, where=error.where, remedy=error.remedy) from error
    arrays = sorted(encoder.arrays.items(), key=lambda item: -item[1].itemsize)  # so that each is aligned
    header: dict[str, Any] = {'__metadata__': {'format': FORMAT, 'tree': tree.decode('ascii')}}
    stop = 0
    for name, array in arrays:
        start = stop
        stop = stop + array.nbytes
        dtype = NAMES[array.dtype.name]
        shape = list(array.shape)
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [start, stop]}
    text = to_json(header)
    text += b' ' * (-len(text) % 8)
    chunks: list[Any] = [len(text).to_bytes(8, 'little'), text]
    chunks += [array.reshape(-1).view(np.uint8).data for _, array in arrays if array.nbytes]
    return chunks


def unpack(data: Array, where: str = 'payload') -> Any:
    """Returns the payload in some content, uint8 [bytes]; its arrays are views of that content.

    Raises:
        MessageError: If it is not what ``pack`` returned.
    """
    try:
        return _unpacked(data)
    except CheckpointError as error:
        raise MessageError(f'the payload cannot be read: {error.message}', where=where) from error
    except BAD_TREE as error:
        message = f'the payload is not what rlframe wrote: {describe(error)}'
        raise MessageError(message, where=where) from error


def _unpacked(data: Array) -> Any:
    length = int.from_bytes(data[:8].tobytes(), 'little')
    if not 0 < length <= len(data) - 8:
        raise ValueError(f'a header of {length} bytes in {len(data)} bytes')
    header = strict_json.loads(data[8 : 8 + length].tobytes(), 'POLICY')
    facts = header.pop('__metadata__')
    if facts['format'] != FORMAT:
        raise ValueError(f'the format {facts["format"]!r}, expected {FORMAT!r}')
    arrays = _arrays(header, data[8 + length :])
    tree = strict_json.loads(facts['tree'].encode('ascii'), 'POLICY')
    return _with_batches(decode(tree, arrays))


def _arrays(header: Mapping[str, Any], data: Array) -> dict[str, Array]:
    """Returns the arrays of a payload, as views of its bytes."""
    found = {}
    at = 0
    for name, facts in sorted(header.items(), key=lambda item: item[1]['data_offsets']):
        dtype = np.dtype(DTYPES[facts['dtype']])
        shape = facts['shape']
        start, stop = facts['data_offsets']
        numbers = [*shape, start, stop]
        if not all(type(number) is int and number >= 0 for number in numbers) or len(shape) > MOST_AXES:
            raise ValueError(f'{name}: bad shape or offsets')
        if start != at or stop > len(data) or stop - start != math.prod(shape) * dtype.itemsize:
            raise ValueError(f'{name}: {stop - start} bytes from {start} for {facts["dtype"]} {shape}')
        flat = data[start:stop]
        if dtype == np.bool_ and flat.size and flat.max() > 1:
            raise ValueError(f'{name}: a bool that is neither 0 nor 1')
        found[name] = np.require(flat.view(dtype).reshape(shape), requirements='A')
        at = stop
    if at != len(data):
        raise ValueError(f'{len(data) - at} bytes after the last array')
    return found


def _with_batches(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {BATCH}:
            return Batch({str(name): _with_batches(column) for name, column in value[BATCH].items()})
        return {name: _with_batches(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_with_batches(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value
