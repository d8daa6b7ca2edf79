"""Finds where a run that ended early goes on: its config, the newest whole checkpoint, and the folder to write to."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlframe import config
from rlframe.errors import CheckpointError, ConfigError
from rlframe.utils import checkpoint
from rlframe.utils.checkpoint.files import MANIFEST
from rlframe.utils.metrics import METRICS
from rlframe.utils.resolved_config import ResolvedConfig

logger = logging.getLogger('rlframe.resume')

Pair = tuple[Mapping[str, Any], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Resumption:
    """What is needed to go on with a run."""

    cfg: ResolvedConfig
    """The config to go on with."""
    checkpoint: Path
    """Where it goes on."""
    folder: Path | None
    """The run folder to go on writing to; None: a new one, as the checkpoint is not the newest of its run."""
    notes: tuple[str, ...]
    """What the user should know: options that differ, checkpoints that were passed over."""


def resume(
    path: str | Path,
    pair: Pair | None = None,
    *,
    overrides: Sequence[str] = (),
    allow_import: bool = False,
    **given: Any,
) -> Resumption:
    """Prepares to go on with a run.

    Args:
        path: A run folder, whose newest whole checkpoint is taken, or one checkpoint.
        pair: Main and create config to go on with; the run's own where not given.
        overrides: Options such as ``max_env_step=2e5``.
        allow_import: Whether the run's own config may import the modules that it names.
        given: ``seed``, ``max_env_step`` and ``max_train_iter``, where they are to differ from the config.

    Raises:
        CheckpointError: If there is no whole checkpoint.
        ConfigError: If the config changes what a resumed run cannot change.
    """
    path = Path(path).expanduser()
    found, damaged = _find(path)
    manifest = checkpoint.verify_checkpoint(found)
    saved = manifest['config']
    if pair is None:
        config.check_code(saved, str(found), allow_import)
        pair = saved['main_config'], saved['create_config']
    elif given.get('seed') is None:
        given['seed'] = saved['main_config'].get('seed')
    cfg = config.compile_config(*pair, overrides=overrides, **given)
    notes = [f'changed: {line}' for line in config.check_changes(saved, cfg, str(found))]
    notes += [f'passed over a damaged checkpoint: {error}' for _, error in damaged]
    folder = found.parent.parent
    goes_on = (folder / METRICS).is_file() and _is_newest(found)
    return Resumption(cfg, found, folder if goes_on else None, tuple(notes))


def _find(path: Path) -> tuple[Path, list[tuple[Path, CheckpointError]]]:
    """Returns the checkpoint meant by a path, and the newer ones of a run folder that are damaged."""
    if path.is_dir() and not (path / MANIFEST).is_file():
        return checkpoint.newest_good(path)
    return checkpoint.find_checkpoint(path), []


def _is_newest(found: Path) -> bool:
    try:
        return checkpoint.newest_good(found.parent)[0] == found
    except CheckpointError:
        return False


def newest_run(cfg: ResolvedConfig, folder_name: str | None = None) -> Path | None:
    """Returns the newest run folder of this config in the working directory, None if there is none to go on with.

    Args:
        cfg: The config; a run counts as its own if it differs only in what a resumed run may change.
        folder_name: Name of the only folder that counts, where the user named it.
    """
    pattern = re.compile(re.escape(f'{cfg.exp_name}_seed{cfg.seed}') + r'(_\d+)?')
    folders = [
        folder
        for folder in Path.cwd().iterdir()
        if (folder.name == folder_name if folder_name else pattern.fullmatch(folder.name))
        and (folder / 'config.json').is_file()
    ]
    for folder in sorted(folders, key=lambda folder: (folder / 'config.json').stat().st_mtime, reverse=True):
        try:
            checkpoint.newest_good(folder)
            config.check_changes(json.loads((folder / 'config.json').read_text()), cfg, str(folder))
            return folder
        except (ConfigError, ValueError, KeyError) as error:
            logger.info('%s is not gone on with: %s', folder, error)
    return None
