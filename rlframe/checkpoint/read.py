"""Finds checkpoints and lists those of a run, newest first."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from rlframe.checkpoint.files import MANIFEST, refusal
from rlframe.checkpoint.manifest import Manifest, read_manifest
from rlframe.errors import CheckpointError, CheckpointNotFoundError

SUFFIX = '.pth.tar'
"""Suffix of DI-engine's checkpoint names, which rlframe's do not have."""
STANDING = ('best', 'ckpt_best', 'latest')
"""Names of a run's checkpoints: the best in evaluation, the best saved by a hook, the newest."""
RESUMABLE = 'iteration_'
"""Prefix of the names of checkpoints that a run can resume from."""

Found = list[tuple[Path, Manifest]]
"""Checkpoints with their manifests."""
NOTHING_KNOWN: Mapping[Path, Manifest] = MappingProxyType({})


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
    standing = [folder / name for folder in (path, path / 'ckpt') for name in STANDING]
    for candidate in (*_as_saved(path), *standing, *_of_tune(path)):
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
    """Returns the newest checkpoint in the folder of a trial, or in that of the best trial of a search."""
    if (path / 'search.json').is_file() and (path / 'trials.csv').is_file():
        with open(path / 'trials.csv', encoding='utf-8', errors='replace', newline='') as file:
            best = next(csv.DictReader(file), {}).get('trial') or ''
        path /= Path(best).name
    return sorted(path.glob('checkpoint_*/latest'))[-1:]


def _as_saved(path: Path) -> list[Path]:
    """Returns the folders that a path can mean: itself, and the one that a DI-engine checkpoint name maps to."""
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


def manifests_in(
    folder: Path, prefix: str = '', known: Mapping[Path, Manifest] = NOTHING_KNOWN
) -> tuple[Found, list[tuple[Path, CheckpointError]]]:
    """Lists the checkpoints in a folder; ignores links.

    Args:
        folder: The ``ckpt`` folder.
        prefix: Prefix of the names of the checkpoints.
        known: Manifests that were read before and are not read again.

    Returns:
        The checkpoints with their manifests, and those with a damaged manifest.
    """
    found: Found = []
    damaged: list[tuple[Path, CheckpointError]] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_folder = path.is_dir() and not path.is_symlink()
        if not is_folder or path.name.startswith('.') or not path.name.startswith(prefix):
            continue
        if prefix or (path / MANIFEST).is_file():
            try:
                found.append((path, known[path] if path in known else read_manifest(path)))
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
    seen: Iterable[str] = sorted(entry.name for entry in folder.iterdir())[:10] if folder.is_dir() else ()
    return CheckpointNotFoundError(f'{message}; found {list(seen)}', where=str(folder.absolute()))
