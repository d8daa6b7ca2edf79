"""Whatever happens to a file of a checkpoint is noticed, named, and runs nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from checkpoint_helpers import MEMBERS, newest_good, state
from error_texts import raises

from rlframe.errors import (
    CheckpointCorruptError,
    CheckpointNotFoundError,
)
from rlframe.run.checkpoint_tree import compare_configs, compare_states
from rlframe.run.manifest import read_manifest
from rlframe.run.read_checkpoint import find_checkpoint, load_checkpoint, verify_checkpoint
from rlframe.run.write_checkpoint import save_checkpoint


def test_the_checkpoint_under_test_has_these_members(saved: Path) -> None:
    assert sorted(path.name for path in (saved / 'iteration_2').iterdir()) == sorted(MEMBERS)
    assert {*read_manifest(saved / 'iteration_2')['files'], 'manifest.json'} == set(MEMBERS)
    assert newest_good(saved) == (saved / 'iteration_2', [])


def flip(at: float, mask: int) -> Callable[[bytes], bytes]:
    def spoil(content: bytes) -> bytes:
        place = min(int(len(content) * at), len(content) - 1)
        return content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :]

    return spoil


def cut(share: float) -> Callable[[bytes], bytes]:
    return lambda content: content[: int(len(content) * share)]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    **{f'{mask:#x} at {at:.0%}': flip(at, mask) for at, mask in ((0, 1), (0.8, 0xFF))},
    **{f'cut at {share:.0%}': cut(share) for share in (0, 0.99)},
    'longer': lambda content: content + b'\n',
    'text': lambda content: b'some text that is no checkpoint\n',
}  # fmt: skip


@pytest.mark.parametrize('damage', DAMAGE)
@pytest.mark.parametrize('name', MEMBERS)
def test_a_damaged_member_is_named_and_the_checkpoint_before_takes_over(
    name: str, damage: str, saved: Path
) -> None:
    member = saved / 'iteration_2' / name
    content = member.read_bytes()
    member.write_bytes(DAMAGE[damage](content))
    assert member.read_bytes() != content
    for read in (load_checkpoint, verify_checkpoint):
        with pytest.raises(CheckpointCorruptError) as caught:
            read(saved / 'iteration_2')
        assert caught.value.where == str(member)
    path, damaged = newest_good(saved)
    assert path == saved / 'iteration_1' and [p for p, _ in damaged] == [saved / 'iteration_2']
    assert str(member) in str(damaged[0][1])
    assert load_checkpoint(path)[0]['progress'] == {'train_iter': 1}


def test_every_byte_of_the_manifest_is_guarded(saved: Path) -> None:
    member = saved / 'iteration_2' / 'manifest.json'
    content = member.read_bytes()
    for place in range(0, len(content), 3):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        member.write_bytes(changed)
        with pytest.raises(CheckpointCorruptError) as caught:
            read_manifest(saved / 'iteration_2')
        assert caught.value.where == str(member)


@pytest.mark.parametrize('name', MEMBERS)
def test_a_missing_member_a_link_a_folder_and_a_pipe_in_its_place_are_refused(name: str, saved: Path) -> None:
    member = saved / 'iteration_2' / name
    member.rename(saved / 'away')
    makers = (
        lambda: None,
        lambda: member.symlink_to(saved / 'away'),
        lambda: member.mkdir(),
        lambda: os.mkfifo(member),
    )
    for make in makers:
        make()
        with pytest.raises(CheckpointCorruptError) as caught:
            verify_checkpoint(saved / 'iteration_2') if name != 'manifest.json' else read_manifest(
                saved / 'iteration_2'
            )
        assert caught.value.where == str(member)
        assert newest_good(saved)[0] == saved / 'iteration_1'
        if member.is_dir():
            member.rmdir()
        else:
            member.unlink(missing_ok=True)


@pytest.mark.parametrize('name', MEMBERS[3:])
def test_who_needs_no_replay_buffer_is_not_hindered_by_it(name: str, saved: Path) -> None:
    (saved / 'iteration_2' / name).unlink()
    loaded, manifest = load_checkpoint(saved / 'iteration_2', buffer=False)
    assert 'replay_buffer' not in loaded and manifest['replay_buffer'] == 'saved'
    assert torch.equal(loaded['policy']['model']['layer.weight'], state(2)['policy']['model']['layer.weight'])


def test_the_newest_of_no_checkpoints_and_of_damaged_ones_only(saved: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        (saved / f'iteration_{number}' / 'state.json').write_text('{}')
    with raises(CheckpointCorruptError):
        newest_good(saved)
    with raises(CheckpointNotFoundError):
        newest_good(tmp_path / 'nowhere')


@pytest.mark.parametrize('uri', ['s3://bucket/a', 'file:///tmp/a', 'S3:/a'])
def test_uris_are_refused_when_saving_too(uri: str) -> None:
    for function in (find_checkpoint, load_checkpoint, newest_good, lambda path: save_checkpoint(path, {})):
        with raises(CheckpointNotFoundError):
            function(uri)


def test_55_layers_and_keys_that_differ_are_listed_with_both_values() -> None:
    saved = {'0.weight': torch.ones(128, 4), '0.bias': torch.ones(128), 'old': torch.ones(()), 'odd': 5}
    here = {
        '0.weight': torch.ones(64, 4),
        '0.bias': torch.ones(128),
        'new': torch.ones(2),
        'odd': torch.ones(1),
    }
    assert compare_states(saved, here, 'model.') == [
        'model.0.weight: (128, 4) in the checkpoint, (64, 4) here',
        'model.new: missing in the checkpoint, (2,) here',
        'model.odd: a int in the checkpoint, (1,) here',
        'model.old: () in the checkpoint, missing here',
    ]
    assert compare_states(here, here) == []
    old = {'lr': 1, 'model': {'sizes': [64, 64], 'act': 'relu'}, 'gone': True}
    new = {'lr': 1, 'model': {'sizes': (64, 128), 'act': 'relu'}}
    assert compare_configs(old, new, 'policy.') == [
        'policy.model.sizes: [64, 64] in the checkpoint, (64, 128) here',
        'policy.gone: True in the checkpoint, None here',
    ]
    assert compare_configs({'sizes': [1]}, {'sizes': (1,)}) == []
