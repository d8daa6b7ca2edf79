"""OpenCheckpoint: a checkpoint that is read and verified once, and the functions that open, load and verify one.

The manifest is read once, and every other file is compared with that manifest whenever it is read. So the bytes that
are decoded are those that were checked, even if another process replaces the checkpoint meanwhile. None of the files
can run code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlframe.checkpoint.files import MANIFEST, check_file, read_checked, read_limited, refusal
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
from rlframe.checkpoint.read import (
    RESUMABLE,
    find_checkpoint,
    local_path,
    manifests_in,
    newest_first,
    not_found,
)
from rlframe.checkpoint.rows import SavedRows, Segment, join_segments, parse_segment
from rlframe.checkpoint.tree import BAD_TREE, Array, decode, describe
from rlframe.errors import CheckpointCorruptError, CheckpointError
from rlframe.safety import strict_json
from rlframe.safety.limits import limit, remedy_of
from rlframe.safety.secrets import Secrets
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import COUNT, DICT, TEXT, Kind, Schema, check_state, list_of, loading

safetensors = LazyModule('safetensors')
safetensors_numpy = LazyModule('safetensors.numpy')

NUMBERED: Schema = {
    'state': DICT,
    'rows': Kind('a list, a dict or None', lambda value: value is None or isinstance(value, list | Mapping)),
}
ROWS_SCHEMA: Schema = {'first': COUNT, 'stop': COUNT, 'columns': DICT, 'files': list_of(TEXT)}
"""Content of the file of a replay buffer, and its references to rows in separate files."""

Damaged = list[tuple[Path, CheckpointError]]
"""Checkpoints that are skipped, with the damage of each."""


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
        self._files = self.manifest['files']
        self._held: dict[str, bytes] = {}
        self._beside = _names_beside(path)

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

    def state(self, buffer: bool = True, secrets: Secrets | None = None) -> dict[str, Any]:
        """Returns the state, with the replay buffer if it is requested and available.

        Files that ``verify`` did not read are read now; bytes that it kept are released.

        Args:
            buffer: Whether to include the replay buffer, as ``replay_buffer``; evaluation needs none.
            secrets: Values of the secrets that the state only names; by default ``'***'``.

        Raises:
            CheckpointCorruptError: If a file is missing or does not match the manifest; the last intact one next to it is
                named.
            UnsafeCheckpointError: If a file holds a pickle.
        """
        with _alternative_named(self.path):
            text, arrays = self._bytes(STATE), self._arrays(TENSORS)
            state = self._tree(STATE, text, arrays, secrets)
            if not isinstance(state, dict):
                raise refusal(self.path / STATE, 'this is not the state of a checkpoint')
            has_buffer = self.manifest['replay_buffer'] == SAVED and self.manifest['format_version'] > 1
            if not buffer:
                state.pop('replay_buffer', None)
            elif has_buffer:
                state['replay_buffer'] = self._buffer(secrets)
        self._held.clear()
        return state

    def is_newest(self) -> bool:
        """Whether a run would be resumed from it: no newer checkpoint of a training state next to it is intact.

        Of the others, only the files of newer ones are read.
        """
        if not self.path.name.startswith(RESUMABLE):
            return False
        found, _ = manifests_in(self.path.parent, RESUMABLE, {self.path: self.manifest})
        for path in newest_first(found):
            if path == self.path:
                return True
            if _is_intact(path, dict(found)[path]):
                return False
        return False

    def check_current(self) -> None:
        """Checks that no checkpoint was saved or deleted next to it since it was opened.

        A run folder is not locked between the search for its newest checkpoint and the start of the resumed run.

        Raises:
            CheckpointNotFoundError: If one was: this one may no longer be the newest.
        """
        if _names_beside(self.path) != self._beside:
            error = not_found(
                self.path.parent, f'another process changed the run after {self.path.name} was read'
            )
            error.remedy = 'Resume it again.'
            raise error

    def _buffer(self, secrets: Secrets | None) -> Any:
        text = self._bytes(BUFFER)
        arrays = self._arrays(BUFFER_TENSORS) if BUFFER_TENSORS in self._files else {}
        return self._tree(BUFFER, text, arrays, secrets, numbered=True)

    def _tree(
        self,
        name: str,
        text: bytes,
        arrays: Mapping[str, Array],
        secrets: Secrets | None,
        numbered: bool = False,
    ) -> Any:
        try:
            is_old = self.manifest['format_version'] == 1
            tree = strict_json.loads(text, 'STATE', takes_constants=is_old)
            if not numbered:
                return decode(tree, arrays, secrets=secrets)
            with loading(self.path / name):
                check_state(tree, NUMBERED)
            saved = tree['rows'] if isinstance(tree['rows'], list) else [tree['rows']]  # older ones have one
            rows = self._all_rows([one for one in saved if one is not None])
            return decode(tree['state'], arrays, rows, secrets)
        except CheckpointError:
            raise
        except BAD_TREE as error:
            message = f'the file is not what rlframe wrote: {describe(error)}'
            raise refusal(self.path / name, message, remedy=remedy_of(error)) from error

    def _all_rows(self, saved: Sequence[Mapping[str, Any]]) -> list[SavedRows]:
        with loading(self.path / BUFFER):
            for one in saved:
                check_state(one, ROWS_SCHEMA, 'rows')
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
        return read_limited(self.path / name, self._files[name], _kind_of(name))


def open_checkpoint(path: str | Path | OpenCheckpoint) -> OpenCheckpoint:
    """Opens a checkpoint by reading its manifest; one that is open already is returned.

    Args:
        path: The checkpoint, or any path that ``find_checkpoint`` accepts.

    Raises:
        CheckpointNotFoundError: If there is none.
        CheckpointCorruptError: If the manifest is damaged; the last intact one next to it is named.
        CheckpointVersionError: If a newer rlframe wrote it.
    """
    if isinstance(path, OpenCheckpoint):
        return path
    path = find_checkpoint(path)
    with _alternative_named(path):
        return OpenCheckpoint(path)


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
        CheckpointCorruptError: If a file is missing or does not match the manifest; the last intact one next to it is
            named.
        CheckpointVersionError: If a newer rlframe wrote it.
        UnsafeCheckpointError: If a file holds a pickle.
    """
    opened = open_checkpoint(path)
    return opened.state(buffer, secrets), opened.manifest


def verify_checkpoint(path: str | Path) -> Manifest:
    """Compares all files of a checkpoint with its manifest and returns it; raises like ``load_checkpoint``."""
    path = find_checkpoint(path)
    manifest = read_manifest(path)
    check_files(path, manifest)
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
    folder = folder / 'ckpt' if (folder / 'ckpt').is_dir() else folder
    found, damaged = manifests_in(folder, RESUMABLE)
    for path in newest_first(found):
        opened = OpenCheckpoint(path, dict(found)[path])
        try:
            opened.verify()
            return opened, damaged
        except CheckpointError as error:
            damaged.append((path, error))
    if damaged:
        raise CheckpointCorruptError(
            'all checkpoints are damaged: ' + '; '.join(str(error) for _, error in damaged), where=str(folder)
        )
    raise not_found(folder, f'no checkpoint of a training state here (no {RESUMABLE}*)')


def newest_good(folder: str | Path) -> tuple[Path, Damaged]:
    """Finds the newest checkpoint that a run can resume from; like ``open_newest``, but returns its path."""
    opened, damaged = open_newest(folder)
    return opened.path, damaged


def _kind_of(name: str) -> str:
    """Returns the kind of JSON that a file contains, which has a limit; empty for tensors."""
    return 'STATE' if name.endswith('.json') else ''


def _names_beside(path: Path) -> list[str]:
    """Returns the names of the checkpoints in the folder of a checkpoint that a run can resume from."""
    return sorted(entry.name for entry in path.parent.glob(f'{RESUMABLE}*'))


def _is_intact(path: Path, manifest: Manifest) -> bool:
    try:
        check_files(path, manifest)
    except CheckpointError:
        return False
    return True


@contextmanager
def _alternative_named(path: Path) -> Iterator[None]:
    """Adds to an error about a damaged checkpoint which one next to it is intact."""
    try:
        yield
    except CheckpointCorruptError as error:
        error.remedy = error.remedy or _alternative(path)
        raise


def _alternative(path: Path) -> str:
    found, _ = manifests_in(path.parent, RESUMABLE)
    manifests = {other: manifest for other, manifest in found if other != path}
    for other in newest_first(list(manifests.items())):
        if _is_intact(other, manifests[other]):
            return f'The last intact one next to it is {other}.'
    return 'There is no other intact one next to it.'
