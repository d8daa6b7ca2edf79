"""The one file of ``save_data``: as safe as a checkpoint."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_helpers import assert_same, filled_buffer, payload, zipped

from rlframe.errors import CheckpointCorruptError, CheckpointNotFoundError, UnsafeCheckpointError
from rlframe.worker.replay_buffer import create_buffer

GOLDEN = Path(__file__).parents[2] / 'golden'


def test_a_file_of_an_earlier_version_is_read() -> None:
    buffer = create_buffer({'type': 'advanced', 'replay_buffer_size': 8})
    buffer.load_data(str(GOLDEN / 'format_1' / 'buffer.npz'))
    assert buffer.count() == 8 and buffer.push_count == 12
    sample = buffer.sample(4, 0)
    np.testing.assert_array_equal(sample['obs'][:, 0], sample['action'])
    assert set(sample['action']) <= set(range(4, 12))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A file that ``save_data`` wrote."""
    filled_buffer().save_data(str(tmp_path / 'buffer.npz'))
    return tmp_path / 'buffer.npz'


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_a_pickle_in_each_member_of_a_buffer_file_is_refused_and_not_run(saved: Path, tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return __import__('os').mkdir, (str(tmp_path / 'marker'),)

    members = members_of(saved)
    assert 'tree.npy' in members and len(members) > 4
    objects = npy(np.array([Harmful()], dtype=object))
    for name in members:
        for content in (objects, payload(tmp_path / 'marker'), payload(tmp_path / 'marker', 0)):
            saved.write_bytes(zipped(**{**members, name: content}))
            with pytest.raises(
                UnsafeCheckpointError, match=f'a pickle in {name} that would call posix.mkdir'
            ):
                filled_buffer().load_data(str(saved))
    for content in (payload(tmp_path / 'marker'), objects):
        saved.write_bytes(content)
        with pytest.raises(UnsafeCheckpointError, match=r'buffer\.npz: this file contains a pickle'):
            filled_buffer().load_data(str(saved))
    assert not (tmp_path / 'marker').exists()


def test_a_damaged_buffer_file_is_refused_wherever_it_is_damaged(saved: Path) -> None:
    content = saved.read_bytes()
    expected = filled_buffer().state_dict()
    for place in range(0, len(content), max(len(content) // 200, 1)):
        saved.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        buffer = filled_buffer()
        try:
            buffer.load_data(str(saved))
        except CheckpointCorruptError:
            continue
        assert_same(buffer.state_dict(), expected)  # a byte that means nothing, such as a date
    for share in (0, 0.5, 0.99):
        saved.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(CheckpointCorruptError, match=r'buffer\.npz'):
            filled_buffer().load_data(str(saved))


def test_bombs_are_refused_before_they_unpack(saved: Path) -> None:
    members = members_of(saved)
    with zipfile.ZipFile(saved, 'w', zipfile.ZIP_DEFLATED) as packed:
        packed.writestr('tree.npy', members['tree.npy'])
        packed.writestr('bomb.npy', bytes(50 * 2**20))
    assert saved.stat().st_size < 2**20
    with pytest.raises(CheckpointCorruptError, match='say that they hold 5'):
        filled_buffer().load_data(str(saved))
    head = npy(np.zeros(4)).replace(b"'shape': (4,), }", b"'shape': (4000000000000,), }")
    for lie in (head, npy(np.zeros(4)).replace(b"'shape': (4,), }", b"'shape': (5,), }"), b'\x93NUMPY', b''):
        saved.write_bytes(zipped(**{**members, 'extra.npy': lie}))
        with pytest.raises(CheckpointCorruptError, match='not a replay buffer state'):
            filled_buffer().load_data(str(saved))


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match='nowhere'):
        filled_buffer().load_data(str(tmp_path / 'nowhere'))
    with pytest.raises(CheckpointCorruptError, match='not a regular file'):
        filled_buffer().load_data(str(tmp_path))
