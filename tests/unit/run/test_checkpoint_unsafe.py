"""Whatever happens to a file of a checkpoint is noticed and named, and nothing in one runs: pickles and signed nonsense are refused."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_helpers import MEMBERS, edit_manifest, facts_of, forge, newest_good, payload, state, zipped
from error_texts import raises

from rlframe.errors import (
    CheckpointCorruptError,
    CheckpointNotFoundError,
    UnsafeCheckpointError,
)
from rlframe.run.checkpoint_tree import compare_configs, compare_states
from rlframe.run.manifest import read_manifest, write_text
from rlframe.run.read_checkpoint import find_checkpoint, load_checkpoint, verify_checkpoint
from rlframe.run.write_checkpoint import save_checkpoint


def torch_file(legacy: bool) -> bytes:
    file = io.BytesIO()
    torch.save({'weight': torch.ones(3)}, file, _use_new_zipfile_serialization=not legacy)
    return file.getvalue()


def payloads(marker: Path) -> list[bytes]:
    """Pickles that make a folder when they are loaded, and files of torch."""
    bare = [payload(marker, protocol) for protocol in (2, 5)]
    return [*bare, zipped(**{'archive/data.pkl': bare[1]}), torch_file(False), torch_file(True)]


@pytest.mark.parametrize('signed', [True, False])
@pytest.mark.parametrize('name', MEMBERS)
def test_a_pickle_in_a_member_is_refused_and_not_run(
    name: str, signed: bool, saved: Path, tmp_path: Path
) -> None:
    for content in payloads(tmp_path / 'marker'):
        if signed and name != 'manifest.json':
            forge(saved / 'iteration_2', name, content)
            assert verify_checkpoint(saved / 'iteration_2')  # the hashes do agree
        else:
            (saved / 'iteration_2' / name).write_bytes(content)
        with raises(UnsafeCheckpointError) as caught:
            load_checkpoint(saved / 'iteration_2')
        assert caught.value.where == str(saved / 'iteration_2' / name)
    assert not (tmp_path / 'marker').exists()


def test_a_single_file_that_holds_a_pickle_is_refused(tmp_path: Path) -> None:
    file = tmp_path / 'model.pt'
    for content in payloads(tmp_path / 'marker'):
        file.write_bytes(content)
        with raises(UnsafeCheckpointError) as caught:
            load_checkpoint(file)
        assert caught.value.where == str(file)
    assert not (tmp_path / 'marker').exists()


def test_a_listed_foreign_file_is_refused(saved: Path, tmp_path: Path) -> None:
    forge(saved / 'iteration_2', '_dict_checkpoint.pkl', payload(tmp_path / 'marker'))
    with raises(CheckpointCorruptError):
        load_checkpoint(saved / 'iteration_2')
    assert not (tmp_path / 'marker').exists()


def test_files_that_the_manifest_does_not_list_are_not_opened(saved: Path, tmp_path: Path) -> None:
    code = f'import os; os.mkdir({str(tmp_path / "marker")!r})'
    path = saved / 'iteration_2'
    for name in (
        'config.py',
        'total_config.py',
        '__init__.py',
        'conftest.py',
        'sitecustomize.py',
        'torch.py',
    ):
        (path / name).write_text(code)
    (path / 'config.json').write_text('{"main_config": {"env": {"type": "os.system"}}}')
    (path / '_dict_checkpoint.pkl').write_bytes(payload(tmp_path / 'marker'))
    os.mkfifo(path / 'pipe')
    before, modules = list(sys.path), set(sys.modules)
    loaded, _ = load_checkpoint(path)
    assert loaded['progress'] == {'train_iter': 2} and verify_checkpoint(path)
    assert not (tmp_path / 'marker').exists()
    assert sys.path == before and not {m for m in sys.modules if 'config' in m} - modules


# what somebody who knows the format may sign


def signed_json(content: Any) -> bytes:
    return content if isinstance(content, bytes) else json.dumps(content).encode()


BOMB = b'[' * 200_000 + b']' * 200_000
FORGED: list[tuple[str, Any]] = [
    ('state.json', BOMB),
    ('state.json', b'[1, 2]'),
    ('state.json', b'\xff\xfe'),
    ('state.json', {'policy': {'__tensor__': 'no such tensor'}}),
    ('state.json', {'policy': {'__tensor__': 'policy.model.layer.weight', 'dtype': 'load'}}),
    ('state.json', {'policy': {'__array__': 'policy.model.layer.weight', 'dtype': 'O'}}),
    ('state.json', {'policy': {'__pairs__': [[[], 1]]}}),
    ('state.json', {'policy': {'__float__': 'huge'}}),
    ('tensors.safetensors', b''),
    ('tensors.safetensors', (2**62).to_bytes(8, 'little') + b'{}'),
    ('replay_buffer.json', {'state': {}}),
    ('replay_buffer.json', {'state': {}, 'rows': {'first': 0, 'stop': 10**15, 'columns': {}, 'files': []}}),
]


def header(**tensors: Any) -> bytes:
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, 'little') + text + b'\0' * 16


FORGED += [
    ('tensors.safetensors', header(a={'dtype': 'F32', 'shape': [10**12], 'data_offsets': [0, 4 * 10**12]})),
    ('tensors.safetensors', header(a={'dtype': 'F32', 'shape': [10**12], 'data_offsets': [0, 16]})),
    ('tensors.safetensors', header(a={'dtype': 'BF16', 'shape': [8], 'data_offsets': [0, 16]})),
]


@pytest.mark.parametrize('case', range(len(FORGED)))
def test_signed_nonsense_is_refused_by_its_file(case: int, saved: Path) -> None:
    name, content = FORGED[case]
    forge(saved / 'iteration_2', name, signed_json(content))
    with pytest.raises(CheckpointCorruptError) as caught:
        load_checkpoint(saved / 'iteration_2')
    assert Path(caught.value.where.partition(': ')[0]).name == name


def rows_of(path: Path) -> dict[str, Any]:
    return json.loads((path / 'replay_buffer.json').read_text())


@pytest.mark.parametrize(
    'edit',
    [
        dict(first=0),
        dict(stop=10**15),
        dict(first=30, stop=20),
        dict(files=['replay_buffer-24-33.safetensors']),
        dict(files=['replay_buffer-13-24.safetensors', 'replay_buffer-24-1000000000000.safetensors']),
        dict(files=['../iteration_1/state.json']),
        dict(files=5),
        dict(columns={'obs': {'__array__': 'gone'}}),
    ],
)
def test_rows_that_do_not_fit_to_their_numbers_are_refused(edit: dict[str, Any], saved: Path) -> None:
    path = saved / 'iteration_2'
    content = rows_of(path)
    content['rows'][0] |= edit
    forge(path, 'replay_buffer.json', json.dumps(content).encode())
    with pytest.raises(CheckpointCorruptError) as caught:
        load_checkpoint(path)
    assert Path(caught.value.where).parent == path


def test_files_of_rows_that_lie_about_their_length_allocate_nothing(saved: Path) -> None:
    path = saved / 'iteration_2'
    content = rows_of(path)
    big = 'replay_buffer-24-900000000000.safetensors'
    content['rows'][0] |= {'stop': 900_000_000_000, 'files': ['replay_buffer-13-24.safetensors', big]}
    forge(path, 'replay_buffer.json', json.dumps(content).encode())
    forge(path, big, (path / 'replay_buffer-24-33.safetensors').read_bytes())
    with raises(CheckpointCorruptError):
        load_checkpoint(path)


def test_a_file_of_rows_with_fewer_than_its_name_says_is_refused(saved: Path) -> None:
    path = saved / 'iteration_2'
    content = rows_of(path)
    content['rows'][0] |= {'files': ['replay_buffer-13-33.safetensors']}
    forge(path, 'replay_buffer.json', json.dumps(content).encode())
    forge(path, 'replay_buffer-13-33.safetensors', (path / 'replay_buffer-24-33.safetensors').read_bytes())
    with raises(CheckpointCorruptError):
        load_checkpoint(path)


@pytest.mark.parametrize(
    'name', ['../iteration_1/state.json', '', 5, 'replay_buffer-1-2.safetensors/../state.json']
)
def test_names_that_lead_elsewhere_are_refused(name: Any, saved: Path) -> None:
    edit_manifest(saved / 'iteration_2', lambda m: m['files'].update({name: facts_of(b'')}))
    with raises(CheckpointCorruptError) as caught:
        load_checkpoint(saved / 'iteration_2')
    assert Path(caught.value.where) == saved / 'iteration_2' / 'manifest.json'


@pytest.mark.parametrize('facts', [None, {'size': 10**18}, {'size': -1}, {'sha256': 'x'}])
def test_impossible_facts_of_a_file_are_refused(facts: Any, saved: Path) -> None:
    def edit(manifest: dict[str, Any]) -> None:
        old = manifest['files']['state.json']
        manifest['files']['state.json'] = {**old, **facts} if isinstance(facts, dict) and facts else facts

    edit_manifest(saved / 'iteration_2', edit)
    with pytest.raises(CheckpointCorruptError):
        load_checkpoint(saved / 'iteration_2')


def test_a_manifest_without_its_files_or_of_no_version_is_refused(saved: Path) -> None:
    for edit in (
        lambda m: m['files'].clear(),
        lambda m: m.update(files=[]),
        lambda m: m['files'].pop('state.json'),
    ):
        shutil.copyfile(saved / 'iteration_1' / 'manifest.json', saved / 'iteration_2' / 'manifest.json')
        edit_manifest(saved / 'iteration_2', edit)
        with raises(CheckpointCorruptError):
            read_manifest(saved / 'iteration_2')
    for text in (b'{}', b'[]', b'{"format_version": 1}', b'{"format_version": "1", "files": {}}', BOMB):
        (saved / 'iteration_2' / 'manifest.json').write_bytes(text)
        with raises(CheckpointCorruptError):
            read_manifest(saved / 'iteration_2')
    sealed = write_text({'files': {}}).replace(b'"format_version":2', b'"format_version":1')
    (saved / 'iteration_2' / 'manifest.json').write_bytes(sealed)
    with raises(CheckpointCorruptError):
        read_manifest(saved / 'iteration_2')


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
