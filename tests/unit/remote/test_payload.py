"""A payload is the content of a safetensors file, and anything else is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load

from rlframe.data.timestep import Batch
from rlframe.errors import MessageError, PayloadError
from rlframe.remote.payload import FORMAT, pack, unpack

PAYLOAD = {
    'rows': Batch(obs=np.arange(6, dtype=np.float32).reshape(3, 2), done=np.array([True, False, True])),
    'n': [1, torch.arange(3)],
}


def content(payload: Any) -> bytes:
    return b''.join(bytes(chunk) for chunk in pack(payload))


def read(data: bytes) -> Any:
    return unpack(np.frombuffer(bytearray(data), np.uint8))


def test_payload_is_what_safetensors_reads() -> None:
    data = content(PAYLOAD)
    arrays = load(data)
    assert sorted(array.tolist() for array in arrays.values() if array.dtype == np.int64) == [[0, 1, 2]]
    assert len(arrays) == 3


def test_arrays_are_not_copied_when_packed() -> None:
    array = np.arange(1000)
    chunks = pack({'a': array})
    assert any(np.shares_memory(array, np.frombuffer(chunk, np.uint8)) for chunk in chunks[2:])


@pytest.mark.parametrize(
    ('payload', 'place'),
    [
        ({'a': {'b': object()}}, 'payload.a.b'),
        ({'a': np.array([object()])}, 'payload.a'),
        (Batch(a=np.zeros(1), b=np.array(['x'], dtype=object)), 'payload.b'),
        ({'a': torch.zeros(2, 2).to_sparse()}, 'payload.a'),
        ({'a': {1.5: 2}}, 'payload.a'),
        ({'a': {'__batch__': {}}}, 'payload.a'),
    ],
)
def test_value_that_cannot_be_sent_is_named(payload: Any, place: str) -> None:
    with pytest.raises(PayloadError) as caught:
        pack(payload)
    assert caught.value.where == place and 'checkpoint' not in str(caught.value)


def test_payload_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(PayloadError, match='nested too deeply'):
        pack(loop)


def bytes_of(header: Any, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, 'little') + text + data


def header(tree: str = '{"__array__":"a"}', **facts: Any) -> dict[str, Any]:
    array = {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8], **facts}
    return {'__metadata__': {'format': FORMAT, 'tree': tree}, 'a': array}


BAD = {
    'negative size': header(shape=[-2]),
    'more than there is': header(shape=[4], data_offsets=[0, 16]),
    'another size': header(shape=[3]),
    'gap': header(data_offsets=[4, 12]),
    'bools': header(shape=[True, 2]),
    'bools that are neither 0 nor 1': header(dtype='BOOL', shape=[8]),
    'type that runs code': header(dtype='object'),
    'no offsets': {**header(), 'a': {'dtype': 'F32', 'shape': [2]}},
    'many axes': header(shape=[1] * 64 + [2]),
    'no metadata': {'a': header()['a']},
    'another format': {**header(), '__metadata__': {'format': 'x', 'tree': '{}'}},
    'no tree': {**header(), '__metadata__': {'format': FORMAT}},
    'unknown array': header('{"__array__":"b"}'),
    'array twice': header('[{"__array__":"a"},{"__array__":"a"}]'),
    'type with objects': header('{"__array__":"a","dtype":"O"}'),
    'two types': header('{"__tensor__":"a","dtype":"load"}'),
    'key twice': header('{"x":1,"x":2}'),
    'very nested': header('[' * 10**5 + ']' * 10**5),
    'batch of unequal columns': header('{"__batch__":{"x":[1],"y":[1,2]}}'),
    'batch that is a list': header('{"__batch__":[]}'),
    'not JSON': b'{',
    'key of the header twice': b'{"a":1,"a":2}',
}


@pytest.mark.parametrize('name', BAD)
def test_payload_that_rlframe_did_not_write_is_refused(name: str) -> None:
    with pytest.raises(MessageError):
        read(bytes_of(BAD[name], b'\7' * 8))


def test_arrays_at_odd_places_are_aligned() -> None:
    text = json.dumps(header()).encode()
    got = read(bytes_of(text + b' ' * (-len(text) % 8 + 3), b'\0' * 8))
    assert got.flags.aligned and got.tolist() == [0.0, 0.0]


CONTENT = content(PAYLOAD)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    cut=st.none() | st.integers(0, len(CONTENT)),
    changes=st.dictionaries(st.integers(0, len(CONTENT) - 1), st.integers(0, 255), max_size=8),
)
def test_damaged_payload_is_read_or_refused(cut: int | None, changes: dict[int, int]) -> None:
    data = bytearray(CONTENT[:cut])
    for place, value in changes.items():
        if place < len(data):
            data[place] = value
    with suppress(MessageError):
        read(bytes(data))
