"""The artifact: the folder that holds a trained policy, compared with its manifest before anything in it is used.

``policy.json`` describes the policy: spaces, preprocessing, postprocessing, normaliser statistics, options of the
network. ``weights.safetensors`` contains the network, ``README.md`` is the model card, ``manifest.json`` lists all
files with size and SHA-256.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlframe.checkpoint.files import (
    MANIFEST,
    publish_folder,
    read_limited,
    refusal,
    staging_folder,
    write_file,
)
from rlframe.checkpoint.manifest import (
    ARTIFACT,
    UNSEALED,
    Manifest,
    check_listed,
    check_version,
    read_sealed,
    write_text,
)
from rlframe.checkpoint.read import local_path
from rlframe.checkpoint.tree import BAD_TREE, Encoder, decode, describe, to_json
from rlframe.errors import CheckpointMismatchError, CheckpointNotFoundError, CheckpointWriteError
from rlframe.safety import strict_json
from rlframe.safety.limits import remedy_of
from rlframe.utils.lazy import LazyModule

safetensors = LazyModule('safetensors')
safetensors_numpy = LazyModule('safetensors.numpy')

FORMAT_VERSION = 1
"""Of the artifacts that are written."""
DESCRIPTION, WEIGHTS, CARD = 'policy.json', 'weights.safetensors', 'README.md'
PARTS = frozenset((DESCRIPTION, WEIGHTS, CARD))
NAME, FOLDER = 'artifact', 'export'
"""Default name of an artifact, and the folder of exports in a run folder."""


class Artifact(NamedTuple):
    """Content of an artifact's manifest."""

    path: Path
    description: dict[str, Any]
    """``policy.json``, with the policy's state, arrays and all, under ``state``."""
    manifest: Manifest


def write_artifact(path: Path, description: Mapping[str, Any], card: str) -> Path:
    """Writes an artifact to a temporary folder and renames it; an existing artifact of that name is replaced.

    Args:
        path: The folder to be.
        description: Nested plain values, and tensors and arrays, which go to the file of weights.
        card: Text of the model card.

    Returns:
        The path.

    Raises:
        CheckpointError: If something in the description cannot be saved; nothing is written.
        CheckpointWriteError: If writing fails, or another file has that name, which is not changed.
    """
    check_place(path)
    encoder = Encoder()
    text = to_json(encoder.tree(description), indent=1) + b'\n'
    contents = {
        DESCRIPTION: text,
        WEIGHTS: safetensors_numpy.save(encoder.arrays),
        CARD: card.encode('utf-8'),
    }
    try:
        with staging_folder(path) as staging:
            files = {name: write_file(staging / name, content) for name, content in contents.items()}
            write_file(
                staging / MANIFEST, write_text({'kind': ARTIFACT, 'files': files}, version=FORMAT_VERSION)
            )
            publish_folder(staging, path)
    except OSError as error:
        raise not_written(path, error) from error
    return path


def check_place(path: Path) -> None:
    """Refuses to put an artifact in the place of something else.

    Raises:
        CheckpointWriteError: If something that is no artifact has that name.
    """
    is_empty = path.is_dir() and not any(path.iterdir())
    if path.is_symlink() or (path.exists() and not is_empty and not _is_artifact(path)):
        raise CheckpointWriteError(
            'the path exists already', where=str(path), remedy='Name a folder that does not exist.'
        )


def not_written(path: Path, error: OSError) -> CheckpointWriteError:
    """Returns the error for a file or folder that the system refused to write."""
    return CheckpointWriteError(f'it cannot be written: {error.strerror or error}', where=str(path))


def _is_artifact(path: Path) -> bool:
    file = path / MANIFEST
    return file.is_file() and read_sealed(file)[0].get('kind') == ARTIFACT


def find_artifact(path: str | Path) -> Path:
    """Returns the artifact meant by a path to one, to the folder that it was exported to, or to a run folder.

    Raises:
        CheckpointNotFoundError: With the path and the names found there.
    """
    path = local_path(path)
    for candidate in (path, path / NAME, path / FOLDER / NAME):
        if os.path.lexists(candidate / MANIFEST):  # what is no file is refused by its reader
            return candidate.resolve()
    if not path.exists():
        raise CheckpointNotFoundError('no such file or directory', where=str(path.absolute()))
    seen = sorted(entry.name for entry in path.iterdir())[:10] if path.is_dir() else 'a file'
    raise CheckpointNotFoundError(
        f'no exported policy here (no {MANIFEST}); found {seen}',
        where=str(path.absolute()),
        remedy=f'Create one from a run: python -m rlframe.entry export {path}.',
    )


def read_artifact(path: str | Path) -> Artifact:
    """Reads an artifact after comparing its files with the manifest.

    Args:
        path: As accepted by ``find_artifact``.

    Raises:
        CheckpointNotFoundError: If it does not exist.
        CheckpointCorruptError: If a file is missing or does not match the manifest; with its name.
        CheckpointVersionError: If a newer rlframe wrote it.
        CheckpointMismatchError: If it is a checkpoint.
        UnsafeCheckpointError: If a pickle took the place of a file.
    """
    path = find_artifact(path)
    manifest, is_sealed = read_sealed(path / MANIFEST)
    if manifest.get('kind') != ARTIFACT:
        raise CheckpointMismatchError(
            'this is a checkpoint, not an exported policy',
            where=str(path),
            remedy=f'Export it: python -m rlframe.entry export {path}.',
        )
    if not is_sealed:
        raise refusal(path / MANIFEST, UNSEALED)
    check_version(path, manifest, FORMAT_VERSION)
    check_listed(path, manifest['files'], PARTS, PARTS.__contains__)
    kinds = {DESCRIPTION: 'POLICY', CARD: 'POLICY', WEIGHTS: ''}
    contents = {
        name: read_limited(path / name, facts, kinds[name]) for name, facts in manifest['files'].items()
    }
    try:
        arrays = safetensors_numpy.load(contents[WEIGHTS])
    except (safetensors.SafetensorError, *BAD_TREE) as error:
        raise refusal(path / WEIGHTS, f'this is not a file of tensors: {error}') from error
    try:
        description = dict(decode(strict_json.loads(contents[DESCRIPTION], 'POLICY'), arrays))
    except BAD_TREE as error:
        message = f'this is not what rlframe wrote: {describe(error)}'
        raise refusal(path / DESCRIPTION, message, remedy=remedy_of(error)) from error
    return Artifact(path, description, manifest)
