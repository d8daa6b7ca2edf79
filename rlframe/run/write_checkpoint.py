"""Writes checkpoints, decides which are kept, and maintains the names that point to them."""

from __future__ import annotations

import errno
import math
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlframe.errors import CheckpointError, CheckpointWriteError
from rlframe.run.checkpoint_files import (
    MANIFEST,
    REPLACED,
    TEMPORARY,
    CheckpointConfig,
    FileFacts,
    delete_folder,
    link_file,
    publish_folder,
    staging_folder,
    sync_folder,
    unused_name,
    write_file,
)
from rlframe.run.checkpoint_tree import (
    Encoder,
    Rows,
    Segment,
    parse_segment,
    plan_segments,
    to_json,
)
from rlframe.run.manifest import (
    BUFFER,
    BUFFER_TENSORS,
    NOT_SAVED,
    SAVED,
    STATE,
    TENSORS,
    read_manifest,
    write_text,
)
from rlframe.run.read_checkpoint import RESUMABLE, local_path, manifests_in, newest_first, serial
from rlframe.utils.field import defaults_of, fields_of
from rlframe.utils.files import LimitExceededError
from rlframe.utils.lazy import LazyModule
from rlframe.utils.strict_json import check_size

safetensors = LazyModule('safetensors.numpy')

BEST = 'best_'
"""Prefix of the names of checkpoints that contain a policy for evaluation."""
BUFFER_REMEDY = "checkpoint.replay_buffer='none' leaves the replay buffer out; a resume is then not exact."


class _File(NamedTuple):
    """A file to write."""

    name: str
    make: Callable[[], bytes]
    is_private: bool = False


class _BufferPart(NamedTuple):
    """The files to write for a replay buffer, and the reused files of an earlier checkpoint."""

    files: list[_File]
    kept: dict[str, FileFacts]
    rows: list[Rows]


def save_checkpoint(
    path: str | Path,
    state: Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
    *,
    buffer: Mapping[str, Any] | None = None,
    previous: Path | None = None,
) -> Path:
    """Writes a checkpoint under a temporary name and renames it.

    Args:
        path: The new folder; a checkpoint of that name, or an empty folder, is replaced.
        state: Nested dicts, lists and tuples of tensors, arrays, numbers, strings, bools and None.
        facts: Further content of the manifest.
        buffer: State of the replay buffer, in separate files that can be left out when the checkpoint is read.
        previous: Earlier checkpoint whose files of rows are reused if they hold rows of this buffer; the other rows are
            written.

    Returns:
        The path.

    Raises:
        CheckpointError: If a value in the state cannot be saved; nothing is written.
        CheckpointWriteError: If the disk is full or refuses; an earlier checkpoint of that name is kept.
    """
    # encode
    path = local_path(path)
    part = _BufferPart([], {}, []) if buffer is None else _buffer_part(buffer, previous)
    encoder = Encoder()
    text = to_json(encoder.tree(state))
    own = [_text_file(STATE, text), _tensor_file(TENSORS, encoder.arrays), *part.files]
    # write
    _check_place(path)
    try:
        with staging_folder(path) as staging:
            files = {one.name: _write(staging / one.name, one.make(), one.is_private) for one in own}
            for name in part.kept:
                assert previous is not None  # it has them
                link_file(previous / name, staging / name)
            files |= part.kept
            newest = max((serial(manifest) for _, manifest in manifests_in(path.parent)[0]), default=0)
            more = {
                'serial': newest + 1,
                'replay_buffer': NOT_SAVED if buffer is None else SAVED,
                'files': files,
            }
            manifest = write_text({**(facts or {}), **more})
            write_file(staging / MANIFEST, manifest, private=True)
            publish_folder(staging, path)
    except OSError as error:
        raise CheckpointWriteError(
            f'the checkpoint cannot be written: {error.strerror or error}',
            where=str(path),
            remedy='Earlier checkpoints are untouched. Free space, or make the folder writable.',
        ) from error
    for rows in part.rows:
        parts = [one for one in map(parse_segment, files) if one is not None and one.rows == rows.name]
        rows.segments.clear()
        rows.segments.update({one.name: files[one.name]['sha256'] for one in parts})
    return path


def _write(path: Path, data: bytes, private: bool) -> FileFacts:
    """Writes a file if there is room for it, else raises an error with the free and the needed space."""
    free = shutil.disk_usage(path.parent).free
    if free < len(data):
        full = os.strerror(errno.ENOSPC)
        raise OSError(errno.ENOSPC, f'{full}: it needs {len(data)} bytes, and {free} are free')
    return write_file(path, data, private)


def _text_file(name: str, text: bytes) -> _File:
    try:
        check_size(len(text), 'STATE')
    except LimitExceededError as error:
        message = f'the state is too large to be loaded again: {error}'
        raise CheckpointError(message, where=name, remedy=error.remedy) from error
    return _File(name, lambda: text, is_private=True)


def _tensor_file(name: str, arrays: Mapping[str, Any]) -> _File:
    return _File(name, lambda: safetensors.save(arrays))


def _segment_file(rows: Rows, one: Segment) -> _File:
    def make() -> bytes:
        encoder = Encoder('columns')
        encoder.tree(rows.read(one.first, one.stop))
        data: bytes = safetensors.save(encoder.arrays)
        return data

    return _File(one.name, make)


def _buffer_part(buffer: Mapping[str, Any], previous: Path | None) -> _BufferPart:
    encoder = Encoder('replay_buffer')
    numbered: list[dict[str, Any]] = []
    part = _BufferPart([], {}, encoder.rows)
    try:
        tree = encoder.tree(buffer)
        for rows in encoder.rows:
            columns = Encoder('columns').tree(rows.read(rows.first, rows.first))
            reusable = _reusable(rows, previous)
            old, new = plan_segments(rows, {name: facts['size'] for name, facts in reusable.items()})
            part.kept.update({one.name: reusable[one.name] for one in old})
            part.files.extend(_segment_file(rows, one) for one in new)
            names = [one.name for one in (*old, *new)]
            numbered.append({'first': rows.first, 'stop': rows.stop, 'columns': columns, 'files': names})
        text = to_json({'state': tree, 'rows': numbered})
    except CheckpointError as error:
        error.remedy = f'{error.remedy} {BUFFER_REMEDY}'.lstrip()
        raise
    part.files.append(_text_file(BUFFER, text))
    if encoder.arrays:
        part.files.append(_tensor_file(BUFFER_TENSORS, encoder.arrays))
    return part


def _reusable(rows: Rows, previous: Path | None) -> dict[str, FileFacts]:
    """Returns the files of an earlier checkpoint that hold rows of this buffer."""
    if previous is None:
        return {}
    try:
        files: dict[str, FileFacts] = read_manifest(previous)['files']
    except CheckpointError:
        return {}  # everything is rewritten, so nothing is lost
    return {
        name: facts
        for name, facts in files.items()
        if rows.segments.get(name) == facts['sha256'] and _has_size(previous / name, facts['size'])
    }


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size == size


def _check_place(path: Path) -> None:
    """Refuses to overwrite a folder that is not a checkpoint."""
    is_free = not path.exists() or (path / MANIFEST).is_file() or (path.is_dir() and not any(path.iterdir()))
    if path.is_symlink() or not is_free:
        raise CheckpointWriteError(
            'the path exists already', where=str(path), remedy='Name a folder that does not exist.'
        )


def publish_checkpoint(
    path: Path,
    state: Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
    *,
    name: str = 'latest',
    buffer: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Path:
    """Saves a checkpoint, points a name to it, and deletes checkpoints that are no longer needed.

    Args:
        path: The new folder.
        state: Everything but the replay buffer.
        facts: Further content of the manifest; ``score`` decides which best checkpoints are kept.
        name: Name next to the folder that will point to it.
        buffer: State of the replay buffer; saved as ``options.replay_buffer`` says.
        options: The section ``checkpoint``; its defaults if not given.

    Returns:
        The path.

    Raises:
        CheckpointError: If a value in the state cannot be saved.
        CheckpointWriteError: If it cannot be written; earlier checkpoints are kept.
    """
    options = {**defaults_of(fields_of(CheckpointConfig)), **(options or {})}
    previous = path.parent / 'latest' if options['replay_buffer'] == 'incremental' else None
    saved = None if options['replay_buffer'] == 'none' else buffer
    save_checkpoint(path, state, facts, buffer=saved, previous=previous)
    link_checkpoint(path, name)
    keep(path.parent, options['keep_last'], options['keep_best'])
    return path


def link_checkpoint(path: Path, name: str) -> None:
    """Points ``name``, next to a checkpoint, to it atomically.

    Where a copy of the run has a folder of that name, as its links were followed, the link replaces it.

    Raises:
        CheckpointWriteError: If the disk refuses; the name then points to its previous checkpoint.
    """
    target = path.parent / name
    staging = unused_name(target, TEMPORARY)
    try:
        staging.symlink_to(path.name)
        if (target / MANIFEST).is_file() and not target.is_symlink():
            delete_folder(target)
        os.replace(staging, target)
        sync_folder(path.parent)
    except OSError as error:
        staging.unlink(missing_ok=True)
        raise CheckpointWriteError(
            f'{path} is saved, but the name {name} cannot point to it: {error.strerror}',
            where=str(path.parent),
        ) from error


def keep(folder: Path, keep_last: int = 2, keep_best: int = 1) -> list[Path]:
    """Deletes old checkpoints, except checkpoints that a name points to or that the user named.

    Args:
        folder: The ``ckpt`` folder.
        keep_last: Number of newest training states to keep.
        keep_best: Number of best policies to keep: those with the highest scores, the newer of equal ones.

    Returns:
        The deleted paths.

    Raises:
        CheckpointWriteError: If the disk refuses.
    """
    linked = {entry.resolve() for entry in folder.iterdir() if entry.is_symlink()}
    states, _ = manifests_in(folder, RESUMABLE)
    gone = [path for path in newest_first(states)[keep_last:] if path.resolve() not in linked]
    gone += [path for path in _best_first(folder)[keep_best:] if path.resolve() not in linked]
    try:
        for path in gone:
            delete_folder(path)
    except OSError as error:
        message = f'old checkpoints cannot be deleted: {error.strerror}'
        raise CheckpointWriteError(message, where=str(folder)) from error
    return gone


def clean_leftovers(folder: Path) -> list[Path]:
    """Deletes the leftovers of a process that died while saving; restores the name of a checkpoint being replaced.

    Only for a folder that no other process saves to: a run's lock makes sure of that.

    Returns:
        The removed or renamed paths.
    """
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    leftovers = [path for path in found if path.name.startswith((TEMPORARY, REPLACED))]
    for path in leftovers:
        target = path.with_name(path.name.removeprefix(REPLACED).rpartition('-')[0])
        if path.name.startswith(REPLACED) and (path / MANIFEST).is_file() and not target.exists():
            os.rename(path, target)
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return leftovers


def _best_first(folder: Path) -> list[Path]:
    found, _ = manifests_in(folder, BEST)
    scores = dict(found)

    def score(path: Path) -> float:
        value = scores[path].get('score')
        return value if isinstance(value, int | float) and not math.isnan(value) else -math.inf

    return sorted(newest_first(found), key=score, reverse=True)
