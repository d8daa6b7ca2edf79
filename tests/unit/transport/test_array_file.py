"""A payload is one safetensors file, and a file that is anything else is refused."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from rlframe.data.timestep import Batch
from rlframe.errors import MessageError, PayloadError
from rlframe.parallel.transport.flask_fs_folder import FORMAT, pack, read_file, write_file

MOST = 2**20
PAYLOAD = {
    'rows': Batch(obs=np.arange(6, dtype=np.float32).reshape(3, 2), done=np.array([True, False, True])),
    'n': [1, torch.arange(3)],
}


def test_file_is_private_one_that_safetensors_reads_and_of_the_size_that_was_told(tmp_path: Path) -> None:
    file, packed = tmp_path / 'x.safetensors', pack(PAYLOAD)
    write_file(file, packed)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and file.stat().st_size == packed.nbytes
    assert os.listdir(tmp_path) == ['x.safetensors'], 'no draft is left'
    arrays = load_file(file)
    assert sorted(array.tolist() for array in arrays.values() if array.dtype == np.int64) == [[0, 1, 2]]
    assert len(arrays) == 3


def test_arrays_are_not_copied_when_packed() -> None:
    array = np.arange(1000)
    chunks = pack({'a': array}).chunks
    assert any(np.shares_memory(array, np.frombuffer(chunk, np.uint8)) for chunk in chunks[2:])


@pytest.mark.parametrize(
    ('payload', 'place'),
    [
        ({'a': {'b': object()}}, 'payload.a.b'),
        ({'a': np.array([object()])}, 'payload.a'),
        (Batch(a=np.zeros(1), b=np.array(['x'], dtype=object)), 'payload.__batch__.b'),
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


def file_of(path: Path, header: Any, data: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, 'little') + text + data)
    return path


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
def test_file_that_rlframe_did_not_write_is_refused(name: str, tmp_path: Path) -> None:
    file = file_of(tmp_path / 'x.safetensors', BAD[name], b'\7' * 8)
    with pytest.raises(MessageError):
        read_file(file, MOST)


def test_arrays_at_odd_places_are_aligned(tmp_path: Path) -> None:
    text = json.dumps(header()).encode()
    file = file_of(tmp_path / 'x.safetensors', text + b' ' * (-len(text) % 8 + 3), b'\0' * 8)
    assert read_file(file, MOST).flags.aligned and read_file(file, MOST).tolist() == [0.0, 0.0]


def test_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with open(tmp_path / 'x.safetensors', 'wb') as file:
        file.truncate(2**40)
    with pytest.raises(MessageError, match='max_payload_bytes'):
        read_file(tmp_path / 'x.safetensors', MOST)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    write_file(tmp_path / 'good.safetensors', pack(PAYLOAD))
    (tmp_path / 'link').symlink_to(tmp_path / 'good.safetensors')
    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'folder').mkdir()
    for name in ('link', 'pipe', 'folder', 'missing'):
        with pytest.raises(MessageError, match='cannot be read'):
            read_file(tmp_path / name, MOST)


CONTENT = b''.join(bytes(chunk) for chunk in pack(PAYLOAD).chunks)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    cut=st.none() | st.integers(0, len(CONTENT)),
    changes=st.dictionaries(st.integers(0, len(CONTENT) - 1), st.integers(0, 255), max_size=8),
)
def test_damaged_file_is_read_or_refused(
    cut: int | None, changes: dict[int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / 'damaged.safetensors'
    data = bytearray(CONTENT[:cut])
    for place, value in changes.items():
        if place < len(data):
            data[place] = value
    file.write_bytes(data)
    with suppress(MessageError):
        read_file(file, MOST)
