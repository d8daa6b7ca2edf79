"""Locates the state to resume a run from: its config, the newest intact checkpoint, and the folder to write to."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlframe import checkpoint, config
from rlframe.checkpoint.files import MANIFEST, delete_folder
from rlframe.checkpoint.read import RESUMABLE
from rlframe.config.reader import read_written
from rlframe.config.sections import ExperimentConfig
from rlframe.errors import CheckpointError, CheckpointNotFoundError, ConfigError
from rlframe.run import run_folder
from rlframe.run.metrics import METRICS, cut_off
from rlframe.run.run_folder import check_links

logger = logging.getLogger('rlframe.pipeline.resume')

CKPT, CONFIG = 'ckpt', 'config.json'
"""Names in a run folder: its checkpoints, and the config that it started with."""
FIRST_FILES = (run_folder.LOCK, run_folder.LOG, METRICS)
"""Files that a run folder may contain before its config is written."""

Pair = tuple[Mapping[str, Any], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Resumption:
    """The inputs for resuming a run."""

    cfg: ExperimentConfig
    """The config to go on with."""
    checkpoint: Path
    """The checkpoint to resume from."""
    folder: Path | None
    """The run folder to go on writing to; None: a new one, as the checkpoint is not the newest of its run."""
    notes: tuple[str, ...]
    """Notes for the user: options that differ, checkpoints that were skipped."""


def resume(
    path: str | Path,
    pair: Pair | None = None,
    *,
    overrides: Sequence[str] = (),
    trust: bool = False,
    allow_import: bool = False,
    **given: Any,
) -> Resumption:
    """Prepares to resume a run.

    Args:
        path: A run folder, whose newest complete checkpoint is used, or a checkpoint.
        pair: Main and create config to continue with; None: the run's own.
        overrides: Options such as ``max_env_step=2e5``.
        trust: Whether the config of a foreign run may reach beyond the run; your own runs do not need it.
        allow_import: Old name of ``trust``.
        given: ``seed``, ``max_env_step`` and ``max_train_iter``, if they override the config.

    Raises:
        CheckpointError: If there is no complete checkpoint.
        UnsafeCheckpointError: If the run is foreign and could reach beyond its folder.
        ExperimentLockedError: If another process is writing to the run folder.
        ConfigError: If the config changes what a resumed run cannot change.
    """
    path = Path(path).expanduser()
    if not _is_run(path):
        return _resume(checkpoint.find_checkpoint(path), [], pair, overrides, trust or allow_import, given)
    folder = path.parent if path.name == CKPT else path
    note = run_folder.last_holder(folder)
    with run_folder.held(folder):  # else the found one may be gone, or no longer the newest
        try:
            found, damaged = checkpoint.newest_good(path)
        except CheckpointNotFoundError as error:
            if (folder / CONFIG).is_file():
                error.remedy = 'If it never had one, -c CONFIG --resume auto starts it again in its folder.'
            raise
        notes = [f'skipped a damaged checkpoint: {error}' for _, error in damaged]
        if note:
            notes.append(
                f'the last process that wrote to this run folder ended without cleaning up (killed?): {note}'
            )
        return _resume(found, notes, pair, overrides, trust or allow_import, given)


def _resume(
    found: Path,
    notes: list[str],
    pair: Pair | None,
    overrides: Sequence[str],
    trust: bool,
    given: dict[str, Any],
) -> Resumption:
    """Prepares to resume from a checkpoint."""
    manifest = checkpoint.verify_checkpoint(found)
    saved = config.config_of(manifest, str(found))
    folder = found.parent.parent
    goes_on = (folder / METRICS).is_file() and _is_newest(found)
    if goes_on or not manifest.is_own:
        check_links(folder, manifest.is_own)
    if pair is None and not manifest.is_own:
        config.check_trust(saved, str(found), trust, overrides)
    if pair is None:
        pair = saved['main_config'], saved['create_config']
    elif given.get('seed') is None:
        given['seed'] = saved['main_config'].get('seed')
    cfg = config.compile_config(*pair, overrides=overrides, **given)
    notes = [f'changed: {line}' for line in config.check_changes(saved, cfg, str(found))] + notes
    return Resumption(cfg, found, folder if goes_on else None, tuple(notes))


def _is_run(path: Path) -> bool:
    """Whether a path is a run folder, or its folder of checkpoints, and not a checkpoint."""
    if not path.is_dir() or (path / MANIFEST).is_file():
        return False
    return path.name == CKPT or (path / CKPT).is_dir() or (path / METRICS).is_file()


def _is_newest(found: Path) -> bool:
    try:
        return checkpoint.newest_good(found.parent)[0] == found
    except CheckpointError:
        return False


def newest_run(cfg: ExperimentConfig, folder_name: str | None = None) -> Path | None:
    """Returns the newest run folder of this config in the working directory, None if there is none to resume.

    Args:
        cfg: The config; a run counts as its own if it differs only in what a resumed run may change.
        folder_name: Name of the only folder that counts, if the user set one.

    Raises:
        ExperimentLockedError: If another process is writing to that folder.
    """
    for folder in _runs_of(cfg, folder_name):
        with run_folder.held(folder):
            try:
                checkpoint.newest_good(folder)
                return folder
            except CheckpointError as error:
                logger.info('%s is not resumed: %s', folder, error)
    return None


def unbegun_run(cfg: ExperimentConfig, folder_name: str | None = None) -> Path | None:
    """Returns the newest run folder of this config that ended before its first checkpoint, None if there is none.

    Args:
        cfg: The config.
        folder_name: Name of the only folder that counts, if the user set one.

    Raises:
        ExperimentLockedError: If another process is writing to that folder.
        UnsafeCheckpointError: If a link in it leads elsewhere.
    """
    for folder in _runs_of(cfg, folder_name):
        with run_folder.held(folder):
            if _is_unbegun(folder):
                check_links(folder)
                return folder
    return None


def _runs_of(cfg: ExperimentConfig, folder_name: str | None) -> list[Path]:
    """Returns the run folders in the working directory that may belong to a config, newest first."""
    pattern = re.compile(re.escape(f'{cfg.exp_name}_seed{cfg.seed}') + r'(_\d+)?')
    folders = [
        folder
        for folder in Path.cwd().iterdir()
        if (folder.name == folder_name if folder_name else pattern.fullmatch(folder.name))
        and _may_be_of(cfg, folder)
    ]
    return sorted(folders, key=_changed_at, reverse=True)


def _changed_at(folder: Path) -> float:
    written = folder / CONFIG
    return (written if written.is_file() else folder).stat().st_mtime


def _may_be_of(cfg: ExperimentConfig, folder: Path) -> bool:
    """Whether a run folder was started with this config, or its run ended before writing one."""
    if not (folder / CONFIG).exists():
        return folder.is_dir() and all(entry.name in FIRST_FILES for entry in folder.iterdir())
    try:
        config.check_changes(read_written(folder / CONFIG), cfg, str(folder))
    except (ConfigError, OSError, ValueError, KeyError) as error:
        logger.info('%s is not resumed: %s', folder, error)
        return False
    return True


def _is_unbegun(folder: Path) -> bool:
    """Whether a run folder has no checkpoint of a training state, not even a damaged one."""
    return not any((folder / CKPT).glob(f'{RESUMABLE}*'))


def begin_again(folder: Path) -> None:
    """Deletes the metrics and policies of a run that ended before its first checkpoint."""
    if _is_unbegun(folder):
        cut_off(folder, {})
        for path in (folder / CKPT).glob('best*'):
            path.unlink() if path.is_symlink() else delete_folder(path)
