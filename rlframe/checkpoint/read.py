"""Finds and loads checkpoints. Files are first compared with the manifest, and none of them can run code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlframe.checkpoint.files import MANIFEST, read_limited, refusal
from rlframe.checkpoint.manifest import (
    BUFFER,
    BUFFER_TENSORS,
    SAVED,
    STATE,
    TENSORS,
    Manifest,
    check_files,
    read_manifest,
)
from rlframe.checkpoint.rows import SavedRows, Segment, join_segments, parse_segment
from rlframe.checkpoint.tree import BAD_TREE, Array, decode, describe
from rlframe.errors import CheckpointCorruptError, CheckpointError, CheckpointNotFoundError
from rlframe.safety import strict_json
from rlframe.safety.limits import remedy_of
from rlframe.safety.secrets import Secrets
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import COUNT, DICT, TEXT, Kind, Schema, check_state, list_of, loading

safetensors = LazyModule('safetensors')
safetensors_numpy = LazyModule('safetensors.numpy')

SUFFIX = '.pth.tar'
"""Suffix of DI-engine's checkpoint names, which rlframe's do not have."""
STANDING = ('best', 'ckpt_best', 'latest')
"""Names of a run's checkpoints: the best in evaluation, the best saved by a hook, the newest."""
RESUMABLE = 'iteration_'
"""Prefixes of the names of checkpoints that a run can resume from."""

NUMBERED: Schema = {
    'state': DICT,
    'rows': Kind('a dict or None', lambda value: value is None or isinstance(value, Mapping)),
}
ROWS_SCHEMA: Schema = {'first': COUNT, 'stop': COUNT, 'columns': DICT, 'files': list_of(TEXT)}
"""Content of the file of a replay buffer, and its references to rows in separate files."""

Found = list[tuple[Path, dict[str, Any]]]
"""Checkpoints with their manifests."""


def load_checkpoint(
    path: str | Path, buffer: bool = True, secrets: Secrets | None = None
) -> tuple[dict[str, Any], Manifest]:
    """Reads a checkpoint after comparing the files it needs with the manifest.

    Args:
        path: The checkpoint, or any path that ``find_checkpoint`` accepts.
        buffer: Whether to read the replay buffer too, as ``replay_buffer`` of the state; evaluation needs none.
        secrets: Values of the secrets that the state only names; by default ``'***'``.

    Returns:
        The state and the manifest, whose ``replay_buffer`` says whether there is one: ``'saved'``, ``'none'``, or
        ``'stripped'`` if only a newer checkpoint has it.

    Raises:
        CheckpointNotFoundError: If there is none.
        CheckpointCorruptError: If a file is missing or does not match the manifest; the last good one next to it is
            named.
        CheckpointVersionError: If a newer rlframe wrote it.
        UnsafeCheckpointError: If a file holds a pickle.
    """
    path = find_checkpoint(path)
    try:
        manifest = read_manifest(path)
        state = _Files(path, manifest, secrets).state(buffer)
    except CheckpointCorruptError as error:
        error.remedy = error.remedy or _alternative(path)
        raise
    return state, manifest


def verify_checkpoint(path: str | Path) -> Manifest:
    """Compares all files of a checkpoint with its manifest and returns it; raises like ``load_checkpoint``."""
    path = find_checkpoint(path)
    manifest = read_manifest(path)
    check_files(path, manifest)
    return manifest


def newest_good(folder: str | Path) -> tuple[Path, list[tuple[Path, CheckpointError]]]:
    """Finds the newest checkpoint that a run can resume from, skipping damaged ones.

    Args:
        folder: A run folder or its ``ckpt`` folder.

    Returns:
        The checkpoint, and the newer damaged ones with the damage of each.

    Raises:
        CheckpointNotFoundError: If there is no checkpoint of a training state.
        CheckpointCorruptError: If all are damaged; all are named.
    """
    folder = local_path(folder)
    folder = folder / 'ckpt' if (folder / 'ckpt').is_dir() else folder
    found, damaged = manifests_in(folder, RESUMABLE)
    for path in newest_first(found):
        try:
            check_files(path, dict(found)[path])
            return path, damaged
        except CheckpointError as error:
            damaged.append((path, error))
    if damaged:
        raise CheckpointCorruptError(
            'no checkpoint is intact:  ' + '; '.join(str(error) for _, error in damaged), where=str(folder)
        )
    raise _not_found(folder, f'no checkpoint of a training state here (no {RESUMABLE}*)')


def find_checkpoint(path: str | Path) -> Path:
    """Finds the checkpoint of a path to one, to a run folder (its best, else latest) or to a ``ckpt`` folder.

    A path may also end in ``.pth.tar``, as DI-engine's checkpoints do: ``ckpt/iteration_100.pth.tar`` means the folder
    ``ckpt/iteration_100``, and ``ckpt/ckpt_best.pth.tar`` the one saved under that name, or else the best checkpoint.

    Raises:
        CheckpointNotFoundError: With the path and what exists there instead.
        CheckpointCorruptError: If it is a file.
        UnsafeCheckpointError: If it is a file that holds a pickle, such as one that torch saved.
    """
    path = local_path(path)
    standing = [folder / name for folder in (path, path / 'ckpt') for name in STANDING]
    for candidate in (*_as_saved(path), *standing):
        if (candidate / MANIFEST).is_file():
            return candidate.resolve()
    if path.is_file():
        error = refusal(path.resolve(), f'a checkpoint is a folder with a {MANIFEST}, and this is a file')
        error.where = str(path.absolute())
        raise error
    if not path.exists():
        raise CheckpointNotFoundError('no such file or directory', where=str(path.absolute()))
    raise _not_found(path, f'no checkpoint here (no {MANIFEST})')


def _as_saved(path: Path) -> list[Path]:
    """Returns the folders that a path can mean: itself, and the one that a DI-engine checkpoint name maps to."""
    if not path.name.endswith(SUFFIX):
        return [path]
    short = path.with_name(path.name.removesuffix(SUFFIX))
    return [path, short, path.with_name('best')] if short.name == 'ckpt_best' else [path, short]


def local_path(path: str | Path) -> Path:
    """Returns a path, with ``~`` expanded.

    Raises:
        CheckpointNotFoundError: If it is a URI: no other file system renames a folder in one step.
    """
    if re.match(r'[A-Za-z][A-Za-z0-9+.-]+:/', str(path)):
        raise CheckpointNotFoundError(
            'checkpoints must be on a local file system', where=str(path), remedy='Copy it here first.'
        )
    return Path(path).expanduser()


def manifests_in(folder: Path, prefix: str = '') -> tuple[Found, list[tuple[Path, CheckpointError]]]:
    """Returns the checkpoints in a folder with their manifests, and those with a damaged manifest; ignores links."""
    found: Found = []
    damaged: list[tuple[Path, CheckpointError]] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_folder = path.is_dir() and not path.is_symlink()
        if not is_folder or path.name.startswith('.') or not path.name.startswith(prefix):
            continue
        if prefix or (path / MANIFEST).is_file():
            try:
                found.append((path, read_manifest(path)))
            except CheckpointError as error:
                damaged.append((path, error))
    return found, damaged


def newest_first(found: Found) -> list[Path]:
    """Sorts checkpoints by time of saving: by serial number, or by train iteration if they have none."""

    def age(item: tuple[Path, Mapping[str, Any]]) -> tuple[int, int, str]:
        name = item[0].name
        number = name.rpartition('_')[2]
        return serial(item[1]), int(number) if number.isdecimal() else -1, name

    return [path for path, _ in sorted(found, key=age, reverse=True)]


def serial(manifest: Mapping[str, Any]) -> int:
    """Returns the serial number of a checkpoint in its folder, from 1; 0 if unknown."""
    number = manifest.get('serial')
    return number if isinstance(number, int) else 0


class _Files:
    """Reads the files of a checkpoint, each compared with the manifest before it is decoded."""

    def __init__(self, path: Path, manifest: Mapping[str, Any], secrets: Secrets | None = None) -> None:
        self._path, self._facts, self._secrets = path, manifest['files'], secrets
        self._is_old = manifest['format_version'] == 1
        self._has_buffer = manifest['replay_buffer'] == SAVED and manifest['format_version'] > 1

    def state(self, buffer: bool) -> dict[str, Any]:
        """Returns the state, with the replay buffer if it is requested and available."""
        text, arrays = self._bytes(STATE), self._arrays(TENSORS)
        state = self._tree(STATE, text, arrays)
        if not isinstance(state, dict):
            raise refusal(self._path / STATE, 'this is not the state of a checkpoint')
        if not buffer:
            state.pop('replay_buffer', None)
        elif self._has_buffer:
            state['replay_buffer'] = self._buffer()
        return state

    def _buffer(self) -> Any:
        text = self._bytes(BUFFER)
        arrays = self._arrays(BUFFER_TENSORS) if BUFFER_TENSORS in self._facts else {}
        return self._tree(BUFFER, text, arrays, numbered=True)

    def _tree(self, name: str, text: bytes, arrays: Mapping[str, Array], numbered: bool = False) -> Any:
        try:
            tree = strict_json.loads(text, 'STATE', takes_constants=self._is_old)
            if not numbered:
                return decode(tree, arrays, secrets=self._secrets)
            with loading(self._path / name):
                check_state(tree, NUMBERED)
            rows = None if tree['rows'] is None else self._rows(tree['rows'])
            return decode(tree['state'], arrays, rows, self._secrets)
        except CheckpointError:
            raise
        except BAD_TREE as error:
            message = f'the file is not what rlframe wrote: {describe(error)}'
            raise refusal(self._path / name, message, remedy=remedy_of(error)) from error

    def _rows(self, saved: Mapping[str, Any]) -> SavedRows:
        with loading(self._path / BUFFER):
            check_state(saved, ROWS_SCHEMA, 'rows')
        parts: list[Segment] = [part for name in saved['files'] if (part := parse_segment(name)) is not None]
        limit = sum(facts['size'] for facts in self._facts.values())
        arrays = join_segments(saved['first'], saved['stop'], parts, self._arrays, limit)
        segments = {part.name: self._facts[part.name]['sha256'] for part in parts}
        return SavedRows(decode(saved['columns'], arrays), segments)

    def _arrays(self, name: str) -> dict[str, Array]:
        data = self._bytes(name)
        try:
            arrays: dict[str, Array] = safetensors_numpy.load(data)
        except (safetensors.SafetensorError, *BAD_TREE) as error:
            raise refusal(self._path / name, f'this is not a file of tensors: {error}') from error
        return arrays

    def _bytes(self, name: str) -> bytes:
        if name not in self._facts:
            raise CheckpointCorruptError(
                f'the manifest does not list {name}', where=str(self._path / MANIFEST)
            )
        return read_limited(self._path / name, self._facts[name], 'STATE' if name.endswith('.json') else '')


def _alternative(path: Path) -> str:
    """Names an intact checkpoint next to a damaged one."""
    found, _ = manifests_in(path.parent, RESUMABLE)
    others = [(other, manifest) for other, manifest in found if other != path]
    for other in newest_first(others):
        try:
            check_files(other, dict(others)[other])
            return f'The newest intact one beside it is {other}.'
        except CheckpointError:
            continue
    return 'There is no other intact checkpoint beside it.'


def _not_found(folder: Path, message: str) -> CheckpointNotFoundError:
    seen: Iterable[str] = sorted(entry.name for entry in folder.iterdir())[:10] if folder.is_dir() else ()
    return CheckpointNotFoundError(f'{message}; found {list(seen)}', where=str(folder.absolute()))
