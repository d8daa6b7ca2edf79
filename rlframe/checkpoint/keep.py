"""Decides which checkpoints are kept, maintains the names that point to them, and cleans up after a crash."""

from __future__ import annotations

import logging
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlframe.checkpoint.files import (
    MANIFEST,
    REPLACED,
    TEMPORARY,
    delete_folder,
    sync_folder,
    unused_name,
)
from rlframe.checkpoint.manifest import check_files
from rlframe.checkpoint.read import RESUMABLE, manifests_in, newest_first
from rlframe.checkpoint.rows import MAX_SMALL, SEGMENT_BYTES
from rlframe.checkpoint.write import save_checkpoint, strip_buffer
from rlframe.errors import CheckpointError, CheckpointWriteError
from rlframe.safety.secrets import Secrets
from rlframe.utils.checkpoint_options import CHECKPOINT_FIELDS
from rlframe.utils.field import defaults_of

logger = logging.getLogger(__name__)

BEST = 'best_'
"""Prefix of the names of checkpoints that contain a policy for evaluation."""


def publish_checkpoint(
    path: Path,
    state: Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
    *,
    name: str = 'latest',
    buffer: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    secrets: Secrets | None = None,
) -> Path:
    """Saves a checkpoint, points a name to it, and deletes checkpoints that are no longer needed.

    Args:
        path: The new folder.
        state: Everything but the replay buffer.
        facts: Further content of the manifest; ``score`` decides which best checkpoints are kept.
        name: Name next to the folder that will point to it.
        buffer: State of the replay buffer; saved as ``options.replay_buffer`` says.
        options: The section ``checkpoint``; its defaults if not given.
        secrets: Values that are not written.

    Returns:
        The path.

    Raises:
        CheckpointError: If a value in the state cannot be saved.
        CheckpointWriteError: If it cannot be written; earlier checkpoints are kept.
    """
    options = {**defaults_of(CHECKPOINT_FIELDS), **(options or {})}
    how = options['replay_buffer']
    previous = path.parent / 'latest' if how == 'incremental' else None
    saved = None if how == 'none' else buffer
    save_checkpoint(path, state, facts, buffer=saved, previous=previous, secrets=secrets)
    link_checkpoint(path, name, options)
    return path


def link_checkpoint(path: Path, name: str, options: Mapping[str, Any] | None = None) -> None:
    """Points ``name``, next to a checkpoint, to it atomically, and deletes unneeded checkpoints, like ``keep``.

    Where a copy of the run has a folder of that name, as its links were followed, the link replaces it; after a kill in
    between, ``clean_leftovers`` restores the folder.

    Raises:
        CheckpointWriteError: If the disk refuses; the name then points to its previous checkpoint.
    """
    options = {**defaults_of(CHECKPOINT_FIELDS), **(options or {})}
    target = path.parent / name
    staging, copy = unused_name(target, TEMPORARY), unused_name(target, REPLACED)
    try:
        staging.symlink_to(path.name)
        if (target / MANIFEST).is_file() and not target.is_symlink():
            os.rename(target, copy)
        os.replace(staging, target)
        sync_folder(path.parent)
        if copy.exists():
            delete_folder(copy)
    except OSError as error:
        staging.unlink(missing_ok=True)
        if copy.exists() and not os.path.lexists(target):
            os.rename(copy, target)
        raise CheckpointWriteError(
            f'{path} is saved, but the name {name} cannot point to it: {error.strerror}',
            where=str(path.parent),
        ) from error
    keep(
        path.parent,
        options['keep_last'],
        options['keep_best'],
        only_latest_buffer=options['replay_buffer'] == 'latest',
    )


def keep(
    folder: Path, keep_last: int = 2, keep_best: int = 1, *, only_latest_buffer: bool = False
) -> list[Path]:
    """Deletes old checkpoints, except those that a name points to and those that the run did not name itself.

    Before an older training state is deleted, the newest one is compared with its manifest; if damaged, all are kept.

    Args:
        folder: The ``ckpt`` folder.
        keep_last: Number of newest training states to keep.
        keep_best: Number of best policies to keep: those with the highest scores, the newer of equal ones.
        only_latest_buffer: Whether older training states lose their replay buffer.

    Returns:
        The deleted paths.

    Raises:
        CheckpointWriteError: If the disk refuses.
    """
    linked = {entry.resolve() for entry in folder.iterdir() if entry.is_symlink()}
    states, _ = manifests_in(folder, RESUMABLE)
    ordered = newest_first(states)
    gone = [path for path in ordered[keep_last:] if path.resolve() not in linked]
    older = ordered[1:] if only_latest_buffer else []
    if (gone or older) and not _is_whole(ordered[0], dict(states)[ordered[0]]):
        gone = older = []
    gone += [path for path in _best_first(folder)[keep_best:] if path.resolve() not in linked]
    try:
        for path in gone:
            delete_folder(path)
        for path in older:
            if path not in gone:
                strip_buffer(path)
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
    for path in folder.iterdir() if folder.is_dir() else ():
        is_checkpoint = path.is_dir() and not path.is_symlink() and (path / MANIFEST).is_file()
        for entry in path.glob(f'{TEMPORARY}*') if is_checkpoint else ():
            entry.unlink()
    return leftovers


def describe_cost(nbytes: int, options: Mapping[str, Any] | None = None) -> str:
    """Describes the disk space that checkpoints take, for the beginning of a run.

    Args:
        nbytes: Size of the full replay buffer in bytes, 0 if there is none.
        options: The section ``checkpoint``; its defaults if not given.
    """
    options = {**defaults_of(CHECKPOINT_FIELDS), **(options or {})}
    last, how = options['keep_last'], options['replay_buffer']
    if not nbytes:
        return f'checkpoints: keep_last {last}, without a replay buffer'
    if how == 'none':
        return f'checkpoints: keep_last {last}, without the replay buffer ({_size(nbytes)}): a resume is not exact'
    one = f'a checkpoint takes up to {_size(nbytes)} for the replay buffer'
    if how == 'latest':
        return f'{one}, the latest only (keep_last {last})'
    if how == 'incremental':
        slack = min(nbytes, SEGMENT_BYTES + MAX_SMALL * SEGMENT_BYTES // 2)
        return f'{one}; keep_last {last} share it, and take up to {_size(nbytes + slack)} together'
    return f'{one}, {_size(nbytes * (last + 1))} while keep_last {last} are replaced by a new one'


def _best_first(folder: Path) -> list[Path]:
    found, _ = manifests_in(folder, BEST)
    scores = dict(found)

    def score(path: Path) -> float:
        value = scores[path].get('score')
        return value if isinstance(value, int | float) and not math.isnan(value) else -math.inf

    return sorted(newest_first(found), key=score, reverse=True)


def _is_whole(path: Path, manifest: Mapping[str, Any]) -> bool:
    try:
        check_files(path, manifest, linked=False)
    except CheckpointError as error:
        logger.warning('the newest checkpoint is damaged, so no older one is deleted: %s', error)
        return False
    return True


def _size(nbytes: int) -> str:
    exponent = min((max(nbytes, 1).bit_length() - 1) // 10, 3)
    return f'{nbytes / 1024**exponent:.{min(exponent, 1)}f} {("B", "KiB", "MiB", "GiB")[exponent]}'
