"""Checkpoints: a directory of tensors and JSON that appears whole or not at all, and that no code is loaded from.

``manifest.json`` names every file with its size and SHA-256, ``state.json`` holds the tree of plain values and
``tensors.safetensors`` its arrays and tensors.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlframe import __version__
from rlframe.errors import CheckpointCorruptError, CheckpointError, CheckpointNotFoundError
from rlframe.utils.lazy import LazyModule

torch = LazyModule('torch')
safetensors_torch = LazyModule('safetensors.torch')

FORMAT_VERSION = 1
MANIFEST, STATE, TENSORS = 'manifest.json', 'state.json', 'tensors.safetensors'


def save_checkpoint(path: Path, state: Mapping[str, Any], facts: Mapping[str, Any] | None = None) -> Path:
    """Writes a checkpoint beside its place and renames it there.

    Args:
        path: The directory to be; one that exists is replaced.
        state: Nested dicts and lists of tensors, arrays, numbers, strings, bools and None.
        facts: What the manifest says beside it.

    Returns:
        The path.
    """
    staging = path.with_name(f'.tmp-{path.name}-{os.getpid()}')
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    tensors: dict[str, Any] = {}
    tree = _flatten(state, '', tensors)
    (staging / STATE).write_text(json.dumps(tree), encoding='utf-8')
    safetensors_torch.save_file(tensors, staging / TENSORS)
    files = {
        name: {'size': (staging / name).stat().st_size, 'sha256': _hash(staging / name)}
        for name in (STATE, TENSORS)
    }
    manifest = {
        'format_version': FORMAT_VERSION,
        'rlframe': __version__,
        'torch': torch.__version__,
        **(facts or {}),
    }
    (staging / MANIFEST).write_text(json.dumps({**manifest, 'files': files}, indent=1), encoding='utf-8')
    for file in staging.iterdir():
        _sync(file)
    _sync(staging)
    if path.exists():
        old = path.with_name(f'.old-{path.name}-{os.getpid()}')
        os.rename(path, old)
        os.rename(staging, path)
        shutil.rmtree(old)
    else:
        os.rename(staging, path)
    _sync(path.parent)
    return path


def load_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads a checkpoint after comparing its files with the manifest.

    Returns:
        The state and the manifest.

    Raises:
        CheckpointNotFoundError: If there is none.
        CheckpointCorruptError: If a file is missing or is not what the manifest says.
    """
    path = find_checkpoint(path)
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding='utf-8'))
        files = manifest['files']
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointCorruptError('the manifest cannot be read', where=str(path / MANIFEST)) from error
    if manifest.get('format_version') != FORMAT_VERSION:
        raise CheckpointError(
            f'format version {manifest.get("format_version")}, this rlframe {__version__} reads {FORMAT_VERSION}',
            where=str(path),
        )
    for name, expected in files.items():
        file = path / name
        if Path(name).name != name or not file.is_file() or file.is_symlink():
            raise CheckpointCorruptError('the file is missing', where=str(file))
        if file.stat().st_size != expected['size']:
            raise CheckpointCorruptError(
                'the file was cut or changed',
                where=str(file),
                got=file.stat().st_size,
                expected=f'{expected["size"]} bytes',
            )
        if _hash(file) != expected['sha256']:
            raise CheckpointCorruptError(
                'the file was changed: its SHA-256 is not that of the manifest', where=str(file)
            )
    tree = json.loads((path / STATE).read_text(encoding='utf-8'))
    return _unflatten(tree, safetensors_torch.load_file(path / TENSORS)), manifest


def find_checkpoint(path: str | Path) -> Path:
    """Returns the checkpoint directory meant by a path to one, to a run folder (its best, else latest) or to a ``ckpt`` folder.

    Raises:
        CheckpointNotFoundError: With the path and what is there instead.
    """
    path = Path(path).expanduser()
    for candidate in (path, path / 'best', path / 'latest', path / 'ckpt' / 'best', path / 'ckpt' / 'latest'):
        if (candidate / MANIFEST).is_file():
            return candidate.resolve()
    if not path.exists():
        raise CheckpointNotFoundError('no such file or directory', where=str(path.absolute()))
    seen = sorted(entry.name for entry in path.iterdir())[:10] if path.is_dir() else 'a file'
    raise CheckpointNotFoundError(
        f'no checkpoint here (no {MANIFEST}); found {seen}', where=str(path.absolute())
    )


def link_checkpoint(path: Path, name: str) -> None:
    """Makes ``name`` beside a checkpoint point to it, in one step, and deletes what no name points to any more."""
    folder = path.parent
    staging = folder / f'.tmp-link-{os.getpid()}'
    staging.unlink(missing_ok=True)
    staging.symlink_to(path.name)
    os.replace(staging, folder / name)
    linked = {entry.resolve().name for entry in folder.iterdir() if entry.is_symlink()}
    for entry in folder.iterdir():
        if (
            entry.is_dir()
            and not entry.is_symlink()
            and entry.name not in linked
            and (entry / MANIFEST).is_file()
        ):
            shutil.rmtree(entry)


def _flatten(value: Any, key: str, tensors: dict[str, Any]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors[key] = value.detach().cpu().clone().contiguous()
        return {'__tensor__': key}
    if isinstance(value, np.ndarray):
        tensors[key] = torch.from_numpy(np.array(value, order='C'))
        return {'__array__': key}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {
            str(name): _flatten(item, f'{key}.{name}' if key else str(name), tensors)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_flatten(item, f'{key}.{i}', tensors) for i, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f'{key}: a {type(value).__name__} cannot be part of a checkpoint; use tensors, arrays and plain values'
    )


def _unflatten(value: Any, tensors: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_unflatten(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if '__tensor__' in value:
        return tensors[value['__tensor__']]
    if '__array__' in value:
        return tensors[value['__array__']].numpy()
    return {name: _unflatten(item, tensors) for name, item in value.items()}


def _hash(path: Path) -> str:
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
