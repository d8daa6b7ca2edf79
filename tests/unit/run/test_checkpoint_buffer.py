"""A replay buffer that is saved in parts is the one that is saved whole."""

from __future__ import annotations

import shutil
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_helpers import (
    assert_same,
    filled_buffer,
    state,
    transitions,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.data import Batch
from rlframe.run import checkpoint_files as files
from rlframe.run import checkpoint_tree as rows_module
from rlframe.run.checkpoint_tree import parse_segment
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.run.write_checkpoint import publish_checkpoint, save_checkpoint
from rlframe.worker.replay_buffer import IBuffer, NaiveReplayBuffer, create_buffer


def segments(path: Path) -> list[str]:
    found = [parse_segment(file.name) for file in path.iterdir()]
    return [one.name for one in sorted((s for s in found if s is not None), key=lambda s: s.first)]


def save(folder: Path, number: int, buffer: IBuffer, how: str = 'incremental') -> Path:
    options = {'replay_buffer': how, 'keep_last': 2}
    path = folder / f'iteration_{number}'
    return publish_checkpoint(path, state(number), buffer=buffer.checkpoint_state(), options=options)


def loaded_buffer(path: Path, kind: str, size: int) -> IBuffer:
    buffer = create_buffer({'type': kind, 'replay_buffer_size': size})
    buffer.load_state_dict(load_checkpoint(path)[0]['replay_buffer'])
    return buffer


steps = st.lists(
    st.tuples(
        st.sampled_from(['push', 'push', 'push', 'save', 'save', 'clear', 'resume', 'fork']),
        st.integers(0, 9),
    ),
    min_size=2,
    max_size=14,
)


@settings(max_examples=15, deadline=None)
@given(steps=steps, size=st.integers(1, 12), block=st.integers(1, 5), small=st.integers(1, 4))
def test_incremental_checkpoints_hold_what_whole_ones_do(
    steps: list[tuple[str, int]], size: int, block: int, small: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as name:
        patch.setattr(rows_module, 'SEGMENT_BYTES', 13 * block)
        patch.setattr(rows_module, 'MAX_SMALL', small)
        patch.setattr('os.fsync', lambda descriptor: None)
        folder, number, value = Path(name), 0, 0
        buffer = create_buffer({'type': 'naive', 'replay_buffer_size': size})
        for step, count in [*steps, ('save', 0)]:
            if step == 'push':
                buffer.push(transitions(value, count), value)
                value += count + 1
            elif step == 'clear':
                buffer.clear()
            elif step == 'save' or not number:
                number += 1
                path = save(folder, number, buffer)
                whole = save_checkpoint(folder / 'whole', state(), buffer=buffer.state_dict())
                parts, expected = (load_checkpoint(p)[0]['replay_buffer'] for p in (path, whole))
                assert_same(dict(parts['storage']), dict(expected['storage']))
                assert_same(parts, expected)
            else:  # go on from a checkpoint: the newest, or the one before although there is a newer one
                old = max(number - 1, 1) if step == 'fork' else number
                old = old if (folder / f'iteration_{old}').exists() else number
                buffer = loaded_buffer(folder / f'iteration_{old}', 'naive', size)


def test_rows_that_an_earlier_checkpoint_has_are_linked_and_only_new_ones_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = create_buffer({'type': 'naive', 'replay_buffer_size': 100})
    written: list[str] = []
    real = files.write_file
    monkeypatch.setattr(
        'rlframe.run.write_checkpoint.write_file',
        lambda path, *given, **options: (written.append(path.name), real(path, *given, **options))[1],
    )
    for number, (count, expected) in enumerate([(40, ['0-40']), (30, ['40-70']), (0, []), (50, ['70-120'])]):
        buffer.push(transitions(0, count), 0)
        written.clear()
        path = save(tmp_path, number, buffer)
        assert [name for name in written if parse_segment(name)] == [
            f'replay_buffer-{e}.safetensors' for e in expected
        ]
    assert segments(path) == [f'replay_buffer-{e}.safetensors' for e in ('0-40', '40-70', '70-120')]
    assert len(load_checkpoint(path)[0]['replay_buffer']['storage']['columns']['obs']) == 100
    inodes = [(tmp_path / f'iteration_{n}' / 'replay_buffer-0-40.safetensors').stat().st_ino for n in (2, 3)]
    assert inodes[0] == inodes[1]
    resumed = loaded_buffer(path, 'naive', 100)
    resumed.push(transitions(0, 5), 0)
    written.clear()
    save(tmp_path, 8, resumed)
    assert [name for name in written if parse_segment(name)] == ['replay_buffer-120-125.safetensors']
    buffer.push(transitions(0, 40), 0)
    assert segments(save(tmp_path, 9, buffer))[0] == 'replay_buffer-40-70.safetensors'


def test_where_links_are_not_possible_files_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> None:
        raise PermissionError(1, 'Operation not permitted')

    monkeypatch.setattr('os.link', refuse)
    buffer = filled_buffer()
    for number in (1, 2):
        save(tmp_path, number, buffer)
    inodes = {file.stat().st_ino for file in tmp_path.rglob('replay_buffer-*')}
    assert len(inodes) == 2
    assert_same(loaded_buffer(tmp_path / 'iteration_2', 'advanced', 20).state_dict(), buffer.state_dict())


@pytest.mark.parametrize('damage', ['cut', 'manifest', 'swapped'])
def test_a_damaged_earlier_checkpoint_gives_no_rows(damage: str, tmp_path: Path) -> None:
    buffer = filled_buffer()
    path = save(tmp_path, 1, buffer)
    rows = path / segments(path)[0]
    if damage == 'cut':
        rows.write_bytes(rows.read_bytes()[:-1])
    elif damage == 'manifest':
        (path / 'manifest.json').write_text('{}')
    else:  # another run's checkpoint, with the same rows by number
        other = create_buffer({'type': 'advanced', 'replay_buffer_size': 20})
        other.push(transitions(500, 33), 0)
        shutil.rmtree(path)
        save(tmp_path, 1, other)
        assert segments(path)[0] == rows.name
    buffer.push(transitions(90, 2), 0)
    assert_same(loaded_buffer(save(tmp_path, 2, buffer), 'advanced', 20).state_dict(), buffer.state_dict())


def test_many_small_files_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, 'MAX_SMALL', 6)
    monkeypatch.setattr(rows_module, 'SEGMENT_BYTES', 13 * 100)
    buffer = create_buffer({'type': 'naive', 'replay_buffer_size': 1000})
    buffer.push(transitions(0, 100), 0)
    most = 0
    for number in range(12):
        buffer.push(transitions(number, 3), 0)
        path = save(tmp_path, number, buffer)
        most = max(most, len(segments(path)))
        assert segments(path)[0] == 'replay_buffer-0-100.safetensors', 'a large file is kept'
    assert 4 < most <= rows_module.MAX_SMALL + 2
    assert set(buffer._storage._segments) == set(segments(path))  # forgotten are those that are merged
    assert_same(loaded_buffer(path, 'naive', 1000).state_dict(), buffer.state_dict())


class Counting(NaiveReplayBuffer):
    """A buffer of a user, which keeps something of its own."""

    pushes = 0

    def push(self, data: Any, cur_collector_envstep: int) -> int:
        self.pushes += 1
        return super().push(data, cur_collector_envstep)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), 'pushes': self.pushes}

    def load_state_dict(self, _state_dict: Any) -> None:
        super().load_state_dict(_state_dict)
        self.pushes = _state_dict['pushes']


@pytest.mark.parametrize('how', ['every', 'incremental'])
def test_a_buffer_with_a_state_of_its_own_is_saved_with_it(how: str, tmp_path: Path) -> None:
    buffer, other = Counting({'replay_buffer_size': 9}), Counting({'replay_buffer_size': 9})
    for number in range(3):
        buffer.push(transitions(number, 5), 0)
        path = save(tmp_path, number, buffer, how)
    other.load_state_dict(load_checkpoint(path)[0]['replay_buffer'])
    assert other.pushes == 3
    assert_same(other.state_dict(), buffer.state_dict())


def test_episodes_and_an_unused_buffer_are_saved_whole(tmp_path: Path) -> None:
    unused, episodes = (create_buffer({'type': 'episode', 'replay_buffer_size': 3}) for _ in range(2))
    episodes.push([Batch(obs=np.ones(n), done=np.arange(n) == n - 1) for n in range(1, 5)], 0)
    for number, buffer in enumerate((unused, episodes)):
        path = save(tmp_path, number, buffer)
        other = create_buffer({'type': 'episode', 'replay_buffer_size': 3})
        other.load_state_dict(load_checkpoint(path)[0]['replay_buffer'])
        assert other.count() == buffer.count() and segments(path) == []
    assert other.episode_len == [2, 3, 4]


def test_saving_a_large_buffer_needs_little_memory_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, 'SEGMENT_BYTES', 2**20)
    monkeypatch.setattr('os.fsync', lambda descriptor: None)
    buffer = create_buffer({'type': 'naive', 'replay_buffer_size': 40})
    for number in range(6):
        buffer.push(Batch(obs=np.full((10, 2**19), number, np.uint8)), 0)
    publish_checkpoint(tmp_path / 'iteration_0', {}, buffer={'a': 1})
    tracemalloc.start()
    try:
        for how in ('every', 'incremental'):
            save(tmp_path, 1, buffer, how)
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20, 'of 20 MiB: some files of 1 MiB, not a copy'
    finally:
        tracemalloc.stop()
