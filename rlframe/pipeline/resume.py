"""Locates the state to resume a run from: its config, the newest intact checkpoint, and the folder to write to."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rlframe import config
from rlframe.config.reader import read_written
from rlframe.config.schema import ExperimentConfig
from rlframe.errors import CheckpointError, CheckpointNotFoundError, ConfigError
from rlframe.run import run_folder
from rlframe.run.checkpoint_files import MANIFEST, delete_folder
from rlframe.run.manifest import naming_version
from rlframe.run.metrics import METRICS, cut_off
from rlframe.run.read_checkpoint import (
    CKPT,
    RESUMABLE,
    OpenCheckpoint,
    emergencies,
    find_checkpoint,
    open_newest,
)
from rlframe.run.run_folder import CONFIG, check_links
from rlframe.utils.flat import flat

logger = logging.getLogger('rlframe.pipeline.resume')

OF_ANOTHER = (
    ', which can act by its policy, evaluate and export it if the network fits, but not train it further'
)
"""Remedy for a run of another version of rlframe."""
Pair = tuple[Mapping[str, Any], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Resumption:
    """The inputs for resuming a run."""

    cfg: ExperimentConfig
    """The config to continue with."""
    saved: OpenCheckpoint
    """The verified checkpoint to resume from, whose files are in memory until the pipeline decodes them."""
    folder: Path | None
    """The run folder to continue in; None: a new one, as the checkpoint is not the newest of its run."""
    notes: tuple[str, ...]
    """Notes for the user: options that differ, checkpoints that were skipped."""

    @property
    def checkpoint(self) -> Path:
        """Path of the checkpoint."""
        return self.saved.path


def resume(
    path: str | Path | OpenCheckpoint,
    pair: Pair | None = None,
    *,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    trust: bool = False,
    **given: Any,
) -> Resumption:
    """Prepares to resume a run.

    Args:
        path: A run folder, whose newest complete checkpoint is used, a checkpoint, or the result of ``find_start``.
        pair: Main and create config to continue with; None: the run's own.
        overrides: Options such as ``max_env_step=2e5``, or dotted keys and values.
        trust: Whether the config of a foreign run may reach beyond the run; your own runs do not need it.
        given: ``seed``, ``max_env_step`` and ``max_train_iter``, if they override the config.

    Raises:
        CheckpointError: If there is no complete checkpoint.
        UnsafeCheckpointError: If the run is foreign and could reach beyond its folder.
        ExperimentLockedError: If another process is writing to the run folder.
        ConfigError: If the config changes what a resumed run cannot change.
    """
    # The order matters: all files are verified first, then links and config of a foreign run are checked, and only then
    # is anything imported or written. From here on, the manifest and the bytes in memory are used, not the files.
    start = path if isinstance(path, OpenCheckpoint) else find_start(path)
    found, manifest = start.path, start.manifest
    saved = config.config_of(manifest, str(found))
    folder = found.parent.parent
    goes_on = start.is_newest() and (folder / METRICS).exists()
    if goes_on or (not manifest.is_own and found.parent.name == CKPT):  # otherwise nothing in there is used
        check_links(folder, manifest.is_own)
    if pair is None and not manifest.is_own:
        config.check_trust(saved, str(found), trust, overrides)
    if pair is None:
        pair = saved['main_config'], saved['create_config']
    elif given.get('seed') is None:
        given['seed'] = saved['main_config'].get('seed')
    with naming_version(manifest, flat(saved['main_config']), OF_ANOTHER):
        cfg = config.compile_config(*pair, overrides=overrides, **given)
        notes = [f'changed: {line}' for line in config.check_changes(saved, cfg, str(found))]
    return Resumption(cfg, start, folder if goes_on else None, (*notes, *start.notes))


def find_start(path: str | Path) -> OpenCheckpoint:
    """Finds the checkpoint to resume from and verifies it; nothing in it is acted on.

    Args:
        path: A run folder, whose newest complete checkpoint is used, or a checkpoint.

    Raises:
        CheckpointError: If there is no complete checkpoint.
        ExperimentLockedError: If another process is writing to the run folder.
    """
    path = Path(path).expanduser()
    if _is_run(path):
        return _newest_of(path)
    try:
        saved = OpenCheckpoint(find_checkpoint(path))
    except CheckpointNotFoundError as error:
        if error.remedy and path.is_dir():
            error.remedy += f' Several seeds resume by -c CONFIG --seeds SEEDS --out {path} --resume auto.'
        raise
    saved.verify()
    return saved


def _newest_of(path: Path) -> OpenCheckpoint:
    """Finds the newest complete checkpoint of a run folder, or of its folder of checkpoints."""
    folder = path.parent if path.name == CKPT else path
    note = run_folder.last_holder(folder)
    with ExitStack() as locked:
        locked.callback(run_folder.lock(folder))  # else a checkpoint may be deleted while it is read
        try:
            saved, damaged = open_newest(path)
        except CheckpointNotFoundError as error:
            if (folder / CONFIG).is_file():
                error.remedy = (
                    'If the run never saved one, -c CONFIG --resume auto starts it again in its folder.'
                )
            if failed := emergencies(folder):
                error.remedy = f'--resume {failed[0]} continues from where an error ended the run.'
            raise
    notes = [f'skipped a damaged checkpoint: {error}' for _, error in damaged]
    if note:
        notes.append(
            f'the last process that wrote to this run folder ended without cleaning up (killed?): {note}'
        )
    saved.notes = tuple(notes)
    return saved


def _is_run(path: Path) -> bool:
    """Whether a path is a run folder, or its folder of checkpoints, and not a checkpoint."""
    if not path.is_dir() or (path / MANIFEST).is_file():
        return False
    return path.name == CKPT or (path / CKPT).is_dir() or (path / METRICS).is_file()


def newest_run(
    cfg: ExperimentConfig, only: str | Path | None = None, home: Path | None = None
) -> OpenCheckpoint | Path | None:
    """Finds the newest run of this config that can be resumed.

    Args:
        cfg: The config; a run counts as its own if it differs only in what a resumed run may change.
        only: The only folder that counts, if the user named one.
        home: The folder whose run folders count; None: the working directory.

    Returns:
        Its newest complete checkpoint. Without such a run, the folder of the newest one that ended before its first
        checkpoint, to start again in; None if there is none.

    Raises:
        ExperimentLockedError: If another process is writing to that folder.
        UnsafeCheckpointError: If a link in a folder to start again in leads elsewhere.
    """
    unbegun: list[Path] = []
    for folder in _runs_of(cfg, only, home or Path.cwd()):
        try:
            return _newest_of(folder)
        except CheckpointError as error:
            logger.info('%s is not resumed: %s', folder, error)
        unbegun += [folder] if _is_unbegun(folder) else []
    for folder in unbegun[:1]:
        check_links(folder)
    return unbegun[0] if unbegun else None


def _runs_of(cfg: ExperimentConfig, only: str | Path | None, home: Path) -> list[Path]:
    """Returns the run folders in a folder, or the one that is named, that may belong to a config, newest first."""
    pattern = re.compile(re.escape(f'{cfg.exp_name}_seed{cfg.seed}') + r'(_\d+)?')
    possible = [folder for folder in home.iterdir() if pattern.fullmatch(folder.name)]
    if only is not None:
        possible = [Path(only).expanduser().absolute()]
    folders = [folder for folder in possible if _may_be_of(cfg, folder)]
    return sorted(folders, key=lambda folder: (folder / CONFIG).stat().st_mtime, reverse=True)


def _may_be_of(cfg: ExperimentConfig, folder: Path) -> bool:
    """Whether a run folder was started with this config."""
    if not (folder / CONFIG).is_file():
        return False
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
