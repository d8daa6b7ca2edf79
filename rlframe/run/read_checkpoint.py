"""OpenCheckpoint: a checkpoint that is read and verified once, and the functions that open, load and verify one.

The manifest is read once, and every other file is compared with that manifest whenever it is read. So the bytes that
are decoded are those that were checked, even if another process replaces the checkpoint meanwhile. None of the files
can run code.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlframe.errors import CheckpointCorruptError, CheckpointError, CheckpointNotFoundError
from rlframe.run.checkpoint_files import MANIFEST, check_file, read_checked, refusal
from rlframe.run.checkpoint_tree import (
    BAD_TREE,
    Array,
    SavedRows,
    Segment,
    decode,
    describe,
    join_segments,
    parse_segment,
)
from rlframe.run.manifest import (
    BUFFER,
    BUFFER_TENSORS,
    SAVED,
    STATE,
    TENSORS,
    Manifest,
    read_manifest,
)
from rlframe.utils import strict_json
from rlframe.utils.files import limit, remedy_of
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import COUNT, DICT, TEXT, Schema, check_state, list_of, loading

safetensors = LazyModule('safetensors')
safetensors_numpy = LazyModule('safetensors.numpy')

CKPT = 'ckpt'
"""Folder of checkpoints in a run folder."""
SUFFIX = '.pth.tar'
"""Suffix of DI-engine's checkpoint names, which rlframe's do not have."""
STANDING = ('best', 'ckpt_best', 'latest')
"""Names of a run's checkpoints: the best in evaluation, the best saved by a hook, the newest."""
RESUMABLE = 'iteration_'
"""Prefix of the names of checkpoints that a run can resume from."""
EMERGENCY = 'emergency_'
"""Prefix of the names of checkpoints of runs that an error ended, which resume only if a user names them."""

Found = list[tuple[Path, Manifest]]
"""Checkpoints with their manifests."""
Damaged = list[tuple[Path, CheckpointError]]
"""Checkpoints that cannot be used, with the damage of each."""
ROWS_SCHEMA: Schema = {'first': COUNT, 'stop': COUNT, 'columns': DICT, 'files': list_of(TEXT)}
NUMBERED: Schema = {'state': DICT, 'rows': list_of(ROWS_SCHEMA)}
"""Content of the file of a replay buffer, and its references to rows in separate files."""


def find_checkpoint(path: str | Path) -> Path:
    """Finds the checkpoint of a path to one, to a run folder (its best, else latest) or to a ``ckpt`` folder.

    Of a trial of Ray Tune it is the newest one; of a whole search, that of the best trial in ``trials.csv``.

    A path may also end in ``.pth.tar``, as DI-engine's checkpoints do: ``ckpt/iteration_100.pth.tar`` means the folder
    ``ckpt/iteration_100``, and ``ckpt/ckpt_best.pth.tar`` the one saved under that name, or else the best checkpoint.
    If there is something of the full name, the path means only that.

    Raises:
        CheckpointNotFoundError: With the path and what exists there instead.
        CheckpointCorruptError: If it is a file.
        UnsafeCheckpointError: If it is a file that holds a pickle, such as one that torch saved.
    """
    path = local_path(path)
    standing = [folder / name for folder in (path, path / CKPT) for name in STANDING]
    for candidate in (*_as_saved(path), *standing, *_of_tune(path), *emergencies(path)):
        if os.path.lexists(candidate / MANIFEST):  # its reader refuses a pipe or a broken link
            return candidate.resolve()
    if path.is_file():
        error = refusal(path.resolve(), f'a checkpoint is a folder with a {MANIFEST}, and this is a file')
        error.where = str(path.absolute())
        raise error
    if not path.exists():
        raise CheckpointNotFoundError('no such file or directory', where=str(path.absolute()))
    raise not_found(path, f'no checkpoint here (no {MANIFEST})')


def _of_tune(path: Path) -> list[Path]:
    """Returns the newest checkpoint in the folder of a trial, or of the best trial of a search."""
    if (path / 'search.json').is_file() and (path / 'trials.csv').is_file():
        with open(path / 'trials.csv', encoding='utf-8', errors='replace', newline='') as file:
            best = next(csv.DictReader(file), {}).get('trial') or ''
        path /= Path(best).name
    return sorted(path.glob('checkpoint_*/latest'))[-1:]


def emergencies(path: Path) -> list[Path]:
    """Returns the emergency checkpoints of a run folder, the newest first."""
    return newest_first(manifests_in(path / CKPT, EMERGENCY)[0])


def _as_saved(path: Path) -> list[Path]:
    """Returns the folders that a path can mean: itself, and the folder that a DI-engine checkpoint name maps to."""
    if not path.name.endswith(SUFFIX) or os.path.lexists(path):
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


def manifests_in(folder: Path, prefix: str = '', without: Path | None = None) -> tuple[Found, Damaged]:
    """Lists the checkpoints in a folder whose names begin with a prefix; ignores links, and the one ``without``.

    Returns:
        The checkpoints with their manifests, and those with a damaged manifest.
    """
    found: Found = []
    damaged: Damaged = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_folder = path.is_dir() and not path.is_symlink()
        if not is_folder or path.name.startswith('.') or not path.name.startswith(prefix) or path == without:
            continue
        if prefix or (path / MANIFEST).is_file():
            try:
                found.append((path, read_manifest(path)))
            except CheckpointError as error:
                damaged.append((path, error))
    return found, damaged


def newest_first(found: Found) -> list[Path]:
    """Sorts checkpoints by time of saving: by serial number, or by train iteration if they have none."""

    def age(item: tuple[Path, Manifest]) -> tuple[int, int, str]:
        name = item[0].name
        number = name.rpartition('_')[2]
        return serial(item[1]), int(number) if number.isdecimal() else -1, name

    return [path for path, _ in sorted(found, key=age, reverse=True)]


def serial(manifest: Manifest) -> int:
    """Returns the serial number of a checkpoint in its folder, from 1; 0 if unknown."""
    number = manifest.get('serial')
    return number if isinstance(number, int) else 0


def not_found(folder: Path, message: str) -> CheckpointNotFoundError:
    """Returns the error for a folder without a checkpoint, with the names of its first entries."""
    seen = sorted(entry.name for entry in folder.iterdir())[:10] if folder.is_dir() else []
    runs = [name for name in seen if (folder / name / CKPT).is_dir()]
    remedy = f'It contains runs: name one, such as {folder / runs[0]}.' if runs else ''
    return CheckpointNotFoundError(f'{message}; found {seen}', where=str(folder.absolute()), remedy=remedy)


class OpenCheckpoint:
    """A checkpoint whose manifest has been read.

    Args:
        path: Its folder.
        manifest: Its manifest, if that has been read already.

    Raises:
        CheckpointError: If the manifest is missing, damaged or of a newer version.
    """

    def __init__(self, path: Path, manifest: Manifest | None = None) -> None:
        self.path = path
        """The folder."""
        self.manifest = read_manifest(path) if manifest is None else manifest
        """Its manifest."""
        self.is_chosen = False
        """Whether it is the newest intact one that was found in a folder."""
        self.notes: tuple[str, ...] = ()
        """Notes for the user and the log of the run: newer checkpoints that are damaged, a process that was killed."""
        self._files = self.manifest['files']
        self._held: dict[str, bytes] = {}

    def verify(self) -> None:
        """Compares all files with the manifest and keeps their bytes in memory until ``state`` decodes them.

        Raises:
            CheckpointCorruptError: Naming the first file that is missing, truncated or changed.
            UnsafeCheckpointError: If a file was replaced by a pickle.
        """
        for name, expected in self._files.items():
            if _kind_of(name) and expected['size'] > limit('STATE_BYTES'):
                check_file(self.path / name, expected)  # ``state`` rejects it without reading it
            else:
                self._held[name] = read_checked(self.path / name, expected)

    def state(self, buffer: bool = True) -> dict[str, Any]:
        """Returns the state, with the replay buffer if it is requested and available.

        Files that ``verify`` did not read are read now; bytes that it kept are released.

        Args:
            buffer: Whether to include the replay buffer, as ``replay_buffer``; evaluation needs none.

        Raises:
            CheckpointCorruptError: If a file is missing or does not match the manifest.
            UnsafeCheckpointError: If a file holds a pickle.
        """
        text = self._bytes(STATE)
        arrays = self._arrays(TENSORS)
        state = self._tree(STATE, text, arrays)
        if not isinstance(state, dict):
            raise refusal(self.path / STATE, 'this is not the state of a checkpoint')
        if buffer and self.manifest.get('replay_buffer') == SAVED:
            state['replay_buffer'] = self._buffer()
        self._held.clear()
        return state

    def is_newest(self) -> bool:
        """Whether a run would be resumed from it: there is no newer intact checkpoint of a training state next to it."""
        if self.is_chosen:
            return True
        others, _ = manifests_in(self.path.parent, RESUMABLE, self.path)
        newest = newest_first([*others, (self.path, self.manifest)])[0]
        return self.path.name.startswith((RESUMABLE, EMERGENCY)) and newest == self.path

    def _buffer(self) -> Any:
        text = self._bytes(BUFFER)
        arrays = self._arrays(BUFFER_TENSORS) if BUFFER_TENSORS in self._files else {}
        return self._tree(BUFFER, text, arrays, numbered=True)

    def _tree(self, name: str, text: bytes, arrays: Mapping[str, Array], numbered: bool = False) -> Any:
        try:
            tree = strict_json.loads(text, 'STATE')
            if not numbered:
                return decode(tree, arrays)
            with loading(self.path / name):
                check_state(tree, NUMBERED)
            return decode(tree['state'], arrays, self._all_rows(tree['rows']))
        except CheckpointError:
            raise
        except BAD_TREE as error:
            message = f'the file is not what rlframe wrote: {describe(error)}'
            raise refusal(self.path / name, message, remedy=remedy_of(error)) from error

    def _all_rows(self, saved: Sequence[Mapping[str, Any]]) -> list[SavedRows]:
        names = [name for one in saved for name in one['files']]
        if len(set(names)) < len(names):
            raise ValueError('a file of rows is listed twice')
        return [self._rows(one) for one in saved]

    def _rows(self, saved: Mapping[str, Any]) -> SavedRows:
        parts: list[Segment] = [part for name in saved['files'] if (part := parse_segment(name)) is not None]
        most = sum(facts['size'] for facts in self._files.values())
        arrays = join_segments(saved['first'], saved['stop'], parts, self._arrays, most)
        segments = {part.name: self._files[part.name]['sha256'] for part in parts}
        return SavedRows(decode(saved['columns'], arrays), segments)

    def _arrays(self, name: str) -> dict[str, Array]:
        data = self._bytes(name)
        try:
            arrays: dict[str, Array] = safetensors_numpy.load(data)
        except (safetensors.SafetensorError, *BAD_TREE) as error:
            raise refusal(self.path / name, f'this is not a file of tensors: {error}') from error
        return arrays

    def _bytes(self, name: str) -> bytes:
        if name not in self._files:
            raise CheckpointCorruptError(
                f'the manifest does not list {name}', where=str(self.path / MANIFEST)
            )
        if name in self._held:
            return self._held.pop(name)
        return read_checked(self.path / name, self._files[name], _kind_of(name))


def open_checkpoint(path: str | Path | OpenCheckpoint) -> OpenCheckpoint:
    """Opens a checkpoint by reading its manifest; one that is open already is returned.

    Args:
        path: The checkpoint, or any path that ``find_checkpoint`` accepts.

    Raises:
        CheckpointNotFoundError: If there is none.
        CheckpointCorruptError: If the manifest is damaged.
        CheckpointVersionError: If a newer rlframe wrote it.
    """
    if isinstance(path, OpenCheckpoint):
        return path
    return OpenCheckpoint(find_checkpoint(path))


def load_checkpoint(path: str | Path, buffer: bool = True) -> tuple[dict[str, Any], Manifest]:
    """Reads a checkpoint; arguments and errors are those of ``open_checkpoint`` and ``OpenCheckpoint.state``.

    Returns:
        The state and the manifest, whose ``replay_buffer`` says whether there is one: ``'saved'`` or ``'none'``.
    """
    opened = open_checkpoint(path)
    return opened.state(buffer), opened.manifest


def verify_checkpoint(path: str | Path) -> Manifest:
    """Compares all files of a checkpoint with its manifest and returns it; raises like ``load_checkpoint``."""
    path = find_checkpoint(path)
    manifest = read_manifest(path)
    for name, expected in manifest['files'].items():
        check_file(path / name, expected)
    return manifest


def open_newest(folder: str | Path) -> tuple[OpenCheckpoint, Damaged]:
    """Opens and verifies the newest checkpoint that a run can resume from, skipping damaged ones.

    Args:
        folder: A run folder or its ``ckpt`` folder.

    Returns:
        The checkpoint, whose files are in memory, and the newer damaged ones with the damage of each.

    Raises:
        CheckpointNotFoundError: If there is no checkpoint of a training state.
        CheckpointCorruptError: If all are damaged; all are named.
    """
    folder = local_path(folder)
    folder = folder / CKPT if (folder / CKPT).is_dir() else folder
    found, damaged = manifests_in(folder, RESUMABLE)
    for path in newest_first(found):
        opened = OpenCheckpoint(path, dict(found)[path])
        try:
            opened.verify()
            opened.is_chosen = True
            return opened, damaged
        except CheckpointError as error:
            damaged.append((path, error))
    if damaged:
        raise CheckpointCorruptError(
            'all checkpoints are damaged: ' + '; '.join(str(error) for _, error in damaged), where=str(folder)
        )
    raise not_found(folder, f'no checkpoint of a training state here (no {RESUMABLE}*)')


def _kind_of(name: str) -> str:
    """Returns the kind of JSON that a file contains, which has a limit; empty for tensors."""
    return 'STATE' if name.endswith('.json') else ''
