"""The manifest: what a checkpoint is, and which files it has. It ends with the SHA-256 of itself."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

from rlframe import __version__
from rlframe.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointMismatchError,
    CheckpointVersionError,
)
from rlframe.utils.checkpoint.files import MANIFEST, check_file, open_regular, refusal
from rlframe.utils.checkpoint.rows import parse_segment
from rlframe.utils.checkpoint.tree import BAD_TREE, Encoder, decode, to_json
from rlframe.utils.lazy import LazyModule

torch = LazyModule('torch')

FORMAT_VERSION = 2
"""What is written. Version 1 had no seal and kept the replay buffer in the state; it is still read."""
STATE, TENSORS = 'state.json', 'tensors.safetensors'
BUFFER, BUFFER_TENSORS = 'replay_buffer.json', 'replay_buffer.safetensors'
SAVED, NOT_SAVED, STRIPPED = 'saved', 'none', 'stripped'
"""What a manifest says of the replay buffer: that it is there, never was, or was taken out for a newer one."""
ARTIFACT = 'policy'
"""What the manifest of an exported policy has as its ``kind``; a checkpoint's has none."""
UNSEALED = 'the manifest was changed: it is not sealed as its format version is'
MAX_BYTES = 64 * 2**20
"""Size above which nothing is taken for a manifest."""

_SEAL = re.compile(rb'(?s)(.*),"sha256":"([0-9a-f]{64})"\}\n')
_SHA256 = re.compile(r'[0-9a-f]{64}')


def write_text(facts: Mapping[str, Any], version: int = FORMAT_VERSION) -> bytes:
    """Returns the bytes of a manifest file.

    Args:
        facts: What it says.
        version: Version of the format that the folder has.

    Raises:
        CheckpointError: If a fact is no plain value.
    """
    encoder = Encoder('facts')
    known = {'format_version': version, 'rlframe': __version__, 'torch': torch.__version__}
    body = to_json(encoder.tree({**known, **facts, 'format_version': version}))[:-1]
    if encoder.arrays or encoder.rows:
        raise CheckpointError('the facts of a manifest hold no arrays', where=', '.join(encoder.arrays))
    return body + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode('ascii') + b'"}\n'


def read_manifest(path: Path) -> dict[str, Any]:
    """Reads the manifest of a checkpoint folder, without looking at the other files.

    Raises:
        CheckpointCorruptError: If it is missing, was changed, or says something impossible.
        CheckpointVersionError: If a newer rlframe wrote it.
        CheckpointMismatchError: If the folder is an exported policy.
        UnsafeCheckpointError: If a pickle took its place.
    """
    manifest, is_sealed = read_sealed(path / MANIFEST)
    if manifest.get('kind') == ARTIFACT:
        raise CheckpointMismatchError(
            'this is an exported policy, not a checkpoint',
            where=str(path),
            remedy=f'rlframe.load({str(path)!r}) acts with it.',
        )
    version = manifest['format_version']
    if is_sealed != (version > 1):
        raise refusal(path / MANIFEST, UNSEALED)
    check_version(path, manifest, FORMAT_VERSION)
    check_listed(path, manifest['files'], {STATE, TENSORS}, _is_part)
    if version == 1:
        manifest.setdefault('replay_buffer', SAVED)
    return manifest


def read_sealed(file: Path) -> tuple[dict[str, Any], bool]:
    """Reads a manifest file of any kind.

    Returns:
        What it says, a ``format_version`` and ``files`` among it, and whether it ends with the SHA-256 of itself.

    Raises:
        CheckpointCorruptError: If it is missing, was changed, or is something else.
        UnsafeCheckpointError: If a pickle took its place.
    """
    with open_regular(file) as opened:
        data = opened.read(MAX_BYTES)
    seal = _SEAL.fullmatch(data)
    if seal and hashlib.sha256(seal[1]).hexdigest().encode('ascii') != seal[2]:
        raise refusal(file, 'the manifest was changed: its SHA-256 is not the one that it ends with')
    try:
        manifest = decode(json.loads(data), {})
        version, _ = manifest['format_version'], manifest['files']
    except BAD_TREE as error:
        raise refusal(file, f'the manifest cannot be read: {type(error).__name__}') from error
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise refusal(file, UNSEALED)
    return dict(manifest), bool(seal)


def check_version(path: Path, manifest: Mapping[str, Any], newest: int) -> None:
    """Refuses a folder whose format is newer than what is known.

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


def check_files(path: Path, manifest: Mapping[str, Any], linked: bool = True) -> None:
    """Compares all files of a checkpoint with its manifest.

    Args:
        path: The checkpoint.
        manifest: Its manifest.
        linked: Whether to read also files that another checkpoint has too, and was compared with.

    Raises:
        CheckpointCorruptError: Naming the first file that is missing, cut or changed.
    """
    for name, expected in manifest['files'].items():
        file = path / name
        if linked or not file.is_file() or file.stat().st_nlink == 1:
            check_file(file, expected)


def check_listed(path: Path, files: Any, required: Set[str], is_part: Callable[[Any], bool]) -> None:
    """Refuses a list of files that no rlframe wrote: foreign names, names of other folders, impossible sizes.

    Args:
        path: The folder.
        files: The list, as its manifest has it.
        required: What must be in it.
        is_part: Tells whether something is the name of a file that may be in it.

    Raises:
        CheckpointCorruptError: Naming what is wrong with it.
        UnsafeCheckpointError: If it names a file that holds a pickle.
    """
    if not isinstance(files, dict) or not required <= files.keys():
        raise CheckpointCorruptError('the manifest lists no files', where=str(path / MANIFEST))
    for name, facts in files.items():
        if not is_part(name):
            message = f'{name!r} is no part of a checkpoint'
            if isinstance(name, str) and name and Path(name).name == name and (path / name).is_file():
                raise refusal(path / name, message)
            raise CheckpointCorruptError(message, where=str(path / MANIFEST))
        size, digest = (facts.get('size'), facts.get('sha256')) if isinstance(facts, dict) else (None, None)
        is_size = isinstance(size, int) and not isinstance(size, bool) and size >= 0
        if not is_size or not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise CheckpointCorruptError(
                f'the manifest has no size and SHA-256 of {name}', where=str(path / MANIFEST)
            )


def _is_part(name: Any) -> bool:
    parts = (STATE, TENSORS, BUFFER, BUFFER_TENSORS)
    return isinstance(name, str) and (name in parts or parse_segment(name) is not None)
