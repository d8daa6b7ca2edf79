"""The manifest: facts about a checkpoint, and the list of its files.

It ends with a keyed hash, by which its author recognises it, and the SHA-256 of everything before.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlframe._version import __version__
from rlframe.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointMismatchError,
    CheckpointVersionError,
    RLFrameError,
)
from rlframe.run.checkpoint_files import MANIFEST, open_regular, refusal
from rlframe.run.checkpoint_tree import BAD_TREE, Encoder, decode, describe, parse_segment, to_json
from rlframe.utils import strict_json
from rlframe.utils.files import LimitExceededError, remedy_of
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import FACTS, check_state, loading
from rlframe.utils.trust_key import is_own, keyed_hash

torch = LazyModule('torch')

FORMAT_VERSION = 2
"""Current format version."""
STATE, TENSORS = 'state.json', 'tensors.safetensors'
BUFFER, BUFFER_TENSORS = 'replay_buffer.json', 'replay_buffer.safetensors'
SAVED, NOT_SAVED = 'saved', 'none'
"""Whether a checkpoint contains the replay buffer, in its manifest."""
ARTIFACT = 'policy'
"""``kind`` in the manifest of an exported policy; a checkpoint's manifest has none."""

_SEAL = re.compile(rb'(?s)(.*),"sha256":"([0-9a-f]{64})"\}\n')
_KEYED = re.compile(rb'(?s)(.*),"keyed_hash":"([0-9a-f]{64})"')
_SHA256 = re.compile(r'[0-9a-f]{64}')


class Manifest(dict[str, Any]):
    """The content of a manifest.

    Args:
        facts: The content, as any mapping.
        is_own: Whether this user wrote it and nobody has changed it since; a copy of the facts loses this flag.
    """

    def __init__(self, facts: Mapping[str, Any], is_own: bool = False) -> None:
        super().__init__(facts)
        self.is_own = is_own
        """Whether this user wrote it and it is unchanged since."""


def write_text(facts: Mapping[str, Any], version: int = FORMAT_VERSION) -> bytes:
    """Returns the bytes of a manifest file, with the keyed hash of this user.

    Args:
        facts: Its content.
        version: Version of the format that the folder has.

    Raises:
        CheckpointError: If a fact is not a plain value.
    """
    encoder = Encoder('facts')
    known = {'format_version': version, 'rlframe': __version__, 'torch': torch.__version__}
    said = {name: value for name, value in facts.items() if name not in ('keyed_hash', 'sha256')}
    body = to_json(encoder.tree({**known, **said, 'format_version': version}))[:-1]
    if encoder.arrays or encoder.rows:
        raise CheckpointError(
            'the facts of a manifest must not contain arrays', where=', '.join(encoder.arrays)
        )
    if (keyed := keyed_hash(body)) is not None:
        body += b',"keyed_hash":"' + keyed.encode('ascii') + b'"'
    return body + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode('ascii') + b'"}\n'


def read_manifest(path: Path) -> Manifest:
    """Reads the manifest of a checkpoint folder, without reading the other files.

    Raises:
        CheckpointCorruptError: If it is missing, was changed, or contains an invalid value.
        CheckpointVersionError: If a newer rlframe wrote it.
        CheckpointMismatchError: If the folder is an exported policy.
        UnsafeCheckpointError: If it was replaced by a pickle.
    """
    manifest = read_sealed(path / MANIFEST)
    if manifest.get('kind') == ARTIFACT:
        raise CheckpointMismatchError(
            'this is an exported policy, not a checkpoint',
            where=str(path),
            remedy=f'Load it with rlframe.load({str(path)!r}).',
        )
    check_version(path, manifest, FORMAT_VERSION)
    check_listed(path, manifest['files'], {STATE, TENSORS}, _is_part)
    with loading(path / MANIFEST):
        check_state(manifest, FACTS)
    return manifest


def read_sealed(file: Path) -> Manifest:
    """Reads a manifest file of any kind.

    Returns:
        Its content, including ``format_version`` and ``files``.

    Raises:
        CheckpointCorruptError: If it is missing, was changed, or is not a manifest.
        UnsafeCheckpointError: If it was replaced by a pickle.
    """
    with open_regular(file) as opened:
        try:
            strict_json.check_size(os.fstat(opened.fileno()).st_size, 'MANIFEST')
        except LimitExceededError as error:
            raise refusal(file, f'the manifest is too large: {error}', remedy=error.remedy) from error
        data = opened.read()
    # verify
    seal = _SEAL.fullmatch(data)
    if not seal or hashlib.sha256(seal[1]).hexdigest().encode('ascii') != seal[2]:
        raise refusal(file, 'the manifest was changed: it does not end with its SHA-256')
    # decode
    try:
        manifest = decode(strict_json.loads(data, 'MANIFEST'), {})
        version, _ = manifest['format_version'], manifest['files']
    except BAD_TREE as error:
        message = f'the manifest cannot be read: {describe(error)}'
        raise refusal(file, message, remedy=remedy_of(error)) from error
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise refusal(file, f'the manifest has the format version {version!r}')
    keyed = _KEYED.fullmatch(seal[1])
    own = keyed is not None and is_own(keyed[1], keyed[2].decode('ascii'))
    return Manifest(manifest, own)


def check_version(path: Path, manifest: Mapping[str, Any], newest: int) -> None:
    """Rejects a folder whose format is newer than this version supports.

    Raises:
        CheckpointVersionError: With both versions.
    """
    if manifest['format_version'] > newest:
        raise CheckpointVersionError(
            f'it has the format version {manifest["format_version"]}, written by rlframe {manifest.get("rlframe")};'
            f' rlframe {__version__} reads up to {newest}',
            where=str(path),
            remedy='Upgrade rlframe: pip install --upgrade rlframe.',
        )


def origin(manifest: Mapping[str, Any]) -> str:
    """Returns which version of rlframe wrote a folder, and which this is."""
    there = manifest.get('rlframe', 'of an unknown version')
    if there == __version__:
        return f'another state of rlframe {there} made this'
    return f'rlframe {there} made this, and this is rlframe {__version__}'


@contextmanager
def naming_version(manifest: Mapping[str, Any], keys: Iterable[str] = (), advice: str = '') -> Iterator[None]:
    """Begins the message of an error with the versions, if another version of rlframe wrote the folder.

    Args:
        manifest: Manifest of the folder.
        keys: Its options: if one of them is unknown, another version wrote it, even one of the same number.
        advice: What else to say.
    """
    try:
        yield
    except RLFrameError as error:
        unknown = getattr(error, 'unknown_keys', ())
        if manifest.get('rlframe') != __version__ or not set(keys).isdisjoint(unknown):
            error.message = f'{origin(manifest)}{advice}: {error.message}'
        raise


def check_listed(path: Path, files: Any, required: Set[str], is_part: Callable[[Any], bool]) -> None:
    """Rejects a list of files that rlframe did not write: foreign names, names of other folders, invalid sizes.

    Args:
        path: The folder.
        files: The list from its manifest.
        required: Names that it must contain.
        is_part: Returns whether a name may be in the list.

    Raises:
        CheckpointCorruptError: With a description of the problem.
    """
    if not isinstance(files, dict) or not required <= files.keys():
        raise CheckpointCorruptError('the manifest lists no files', where=str(path / MANIFEST))
    for name, facts in files.items():
        if not is_part(name):
            raise CheckpointCorruptError(f'{name!r} is not part of a checkpoint', where=str(path / MANIFEST))
        size, digest = (facts.get('size'), facts.get('sha256')) if isinstance(facts, dict) else (None, None)
        is_size = isinstance(size, int) and not isinstance(size, bool) and size >= 0
        if not is_size or not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise CheckpointCorruptError(
                f'the manifest has no size and SHA-256 of {name}', where=str(path / MANIFEST)
            )


def _is_part(name: Any) -> bool:
    parts = (STATE, TENSORS, BUFFER, BUFFER_TENSORS)
    return isinstance(name, str) and (name in parts or parse_segment(name) is not None)
