"""Saves checkpoints: all files in a temporary folder, the manifest last, then one rename."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlframe.checkpoint.files import (
    MANIFEST,
    FileFacts,
    link_file,
    publish_folder,
    replace_file,
    staging_folder,
    write_file,
)
from rlframe.checkpoint.manifest import (
    BUFFER,
    BUFFER_TENSORS,
    NOT_SAVED,
    SAVED,
    STATE,
    STRIPPED,
    TENSORS,
    read_manifest,
    write_text,
)
from rlframe.checkpoint.read import local_path, manifests_in, newest_first, serial
from rlframe.checkpoint.rows import Rows, Segment, parse_segment, plan_segments
from rlframe.checkpoint.tree import Encoder, to_json
from rlframe.errors import CheckpointError, CheckpointWriteError
from rlframe.safety.secrets import Secrets
from rlframe.safety.strict_json import LimitExceededError, check_size
from rlframe.utils.lazy import LazyModule

safetensors = LazyModule('safetensors.numpy')

SLACK = 4096
"""Approximate number of bytes that a file takes in addition to its content."""
BUFFER_REMEDY = "checkpoint.replay_buffer='none' leaves the replay buffer out; a resume is then not exact."


class _Piece(NamedTuple):
    """A file to write."""

    name: str
    nbytes: int
    make: Callable[[], bytes]
    is_private: bool = False


class _BufferPart(NamedTuple):
    """The files to write for a replay buffer, and those of an earlier checkpoint that are reused."""

    pieces: list[_Piece]
    kept: list[Segment]
    rows: list[Rows]


def save_checkpoint(
    path: str | Path,
    state: Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
    *,
    buffer: Mapping[str, Any] | None = None,
    previous: Path | None = None,
    secrets: Secrets | None = None,
) -> Path:
    """Writes a checkpoint under a temporary name and renames it.

    Args:
        path: The new folder; a checkpoint of that name, or an empty folder, is replaced.
        state: Nested dicts, lists and tuples of tensors, arrays, numbers, strings, bools and None.
        facts: Further content of the manifest.
        buffer: State of the replay buffer, in separate files that can be left out when the checkpoint is read.
        previous: Earlier checkpoint whose files of rows are reused if they hold rows of this buffer; the other rows are
            written.
        secrets: Values that are not written; ``load_checkpoint`` needs them again. Only the owner can read files of
            text.

    Returns:
        The path.

    Raises:
        CheckpointError: If a value in the state cannot be saved; nothing is written.
        CheckpointWriteError: If the disk is full or refuses; an earlier checkpoint of that name is kept.
    """
    path = local_path(path)
    part = _BufferPart([], [], []) if buffer is None else _buffer_part(buffer, previous, secrets)
    encoder = Encoder(secrets=secrets)
    text = to_json(encoder.tree(state))
    pieces = [_text_piece(STATE, text), _tensor_piece(TENSORS, encoder.arrays), *part.pieces]
    needed = sum(piece.nbytes + SLACK for piece in pieces)
    _check_place(path)
    try:
        with staging_folder(path) as staging:
            if shutil.disk_usage(staging).free < needed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            files = {one.name: write_file(staging / one.name, one.make(), one.is_private) for one in pieces}
            files |= _link(part.kept, previous, staging)
            more = {
                'serial': 1
                + max((serial(manifest) for _, manifest in manifests_in(path.parent)[0]), default=0),
                'replay_buffer': NOT_SAVED if buffer is None else SAVED,
                'files': files,
            }
            write_file(
                staging / MANIFEST, write_text({**(facts or {}), **more}, secrets=secrets), private=True
            )
            publish_folder(staging, path)
    except OSError as error:
        raise _write_error(path, needed, error.strerror or str(error)) from error
    for rows in part.rows:
        own = {one.name for one in map(parse_segment, files) if one is not None and one.rows == rows.name}
        rows.segments.clear()
        rows.segments.update({name: facts['sha256'] for name, facts in files.items() if name in own})
    return path


def strip_buffer(path: Path) -> None:
    """Removes the replay buffer from a checkpoint, which stays valid at every moment; one without is unchanged."""
    manifest = read_manifest(path)
    if manifest['format_version'] == 1:
        return  # there the buffer is part of the state
    files: dict[str, FileFacts] = manifest['files']
    if manifest['replay_buffer'] == SAVED:
        rest = {name: facts for name, facts in files.items() if not _is_of_buffer(name)}
        changed = {**manifest, 'replay_buffer': STRIPPED, 'files': rest}
        replace_file(path / MANIFEST, write_text(changed, is_own=manifest.is_own))
    for entry in path.iterdir():
        if _is_of_buffer(entry.name):
            entry.unlink()


def _is_of_buffer(name: str) -> bool:
    return name in (BUFFER, BUFFER_TENSORS) or parse_segment(name) is not None


def _text_piece(name: str, text: bytes) -> _Piece:
    try:
        check_size(len(text), 'STATE')
    except LimitExceededError as error:
        message = f'the state is too large to be loaded again: {error}'
        raise CheckpointError(message, where=name, remedy=error.remedy) from error
    return _Piece(name, len(text), lambda: text, is_private=True)


def _tensor_piece(name: str, arrays: Mapping[str, Any]) -> _Piece:
    nbytes = sum(array.nbytes + len(key) + 100 for key, array in arrays.items())
    return _Piece(name, nbytes, lambda: safetensors.save(arrays))


def _segment_piece(rows: Rows, one: Segment) -> _Piece:
    def make() -> bytes:
        encoder = Encoder('columns')
        encoder.tree(rows.read(one.first, one.stop))
        data: bytes = safetensors.save(encoder.arrays)
        return data

    return _Piece(one.name, (one.stop - one.first) * rows.nbytes, make)


def _buffer_part(buffer: Mapping[str, Any], previous: Path | None, secrets: Secrets | None) -> _BufferPart:
    encoder = Encoder('replay_buffer', secrets)
    numbered: list[dict[str, Any]] = []
    pieces: list[_Piece] = []
    kept: list[Segment] = []
    try:
        tree = encoder.tree(buffer)
        for rows in encoder.rows:
            columns = Encoder('columns').tree(rows.read(rows.first, rows.first))
            old, new = plan_segments(rows, _reusable(rows, previous))
            kept += old
            pieces += [_segment_piece(rows, one) for one in new]
            names = [one.name for one in (*old, *new)]
            numbered.append({'first': rows.first, 'stop': rows.stop, 'columns': columns, 'files': names})
        text = to_json({'state': tree, 'rows': numbered})
    except CheckpointError as error:
        error.remedy = f'{error.remedy} {BUFFER_REMEDY}'.lstrip()
        raise
    pieces.append(_text_piece(BUFFER, text))
    if encoder.arrays:
        pieces.append(_tensor_piece(BUFFER_TENSORS, encoder.arrays))
    return _BufferPart(pieces, kept, encoder.rows)


def _reusable(rows: Rows, previous: Path | None) -> dict[str, int]:
    """Returns the sizes of the files of an earlier checkpoint that hold rows of this buffer."""
    if previous is None:
        return {}
    try:
        files = read_manifest(previous)['files']
    except CheckpointError:
        return {}  # everything is rewritten, so nothing is lost
    return {
        name: facts['size']
        for name, facts in files.items()
        if rows.segments.get(name) == facts['sha256'] and _has_size(previous / name, facts['size'])
    }


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size == size


def _link(kept: list[Segment], previous: Path | None, staging: Path) -> dict[str, FileFacts]:
    if previous is None or not kept:
        return {}
    files: dict[str, FileFacts] = read_manifest(previous)['files']
    for one in kept:
        link_file(previous / one.name, staging / one.name)
    return {one.name: files[one.name] for one in kept}


def _check_place(path: Path) -> None:
    """Refuses to overwrite a folder that is not a checkpoint."""
    is_free = not path.exists() or (path / MANIFEST).is_file() or (path.is_dir() and not any(path.iterdir()))
    if path.is_symlink() or not is_free:
        raise CheckpointWriteError(
            'the path exists already', where=str(path), remedy='Name a folder that does not exist.'
        )


def _write_error(path: Path, needed: int, reason: str) -> CheckpointWriteError:
    parent = next(folder for folder in path.absolute().parents if folder.is_dir())
    free = shutil.disk_usage(parent).free
    message = f'the checkpoint cannot be written: {reason}; it needs {needed} bytes and {free} are free'
    if needed > free:
        message += f', so {needed - free} are missing'
    before = path if path.is_dir() else next(iter(newest_first(manifests_in(path.parent)[0])), None)
    kept = f'The one before is untouched: {before}.' if before else 'There is none before it.'
    return CheckpointWriteError(message, where=str(path), remedy=kept)
