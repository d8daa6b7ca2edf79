"""export_policy: a checkpoint's policy, written in the formats that are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlframe.checkpoint import OpenCheckpoint
from rlframe.checkpoint.read import local_path
from rlframe.errors import CheckpointWriteError
from rlframe.export.artifact import FOLDER, not_written
from rlframe.export.formats import FORMATS, check_format
from rlframe.export.source import open_source
from rlframe.run.run_folder import check_links


def export_policy(
    path: str | Path | OpenCheckpoint,
    formats: Sequence[str] = ('artifact',),
    out: str | Path | None = None,
    *,
    trust: bool = False,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    model: Any = None,
    env: Any = None,
) -> dict[str, Path]:
    """Writes the policy of a checkpoint for use elsewhere, replacing an earlier export.

    Args:
        path: A run folder, whose best checkpoint is used, or a checkpoint, which may be open already.
        formats: Names of ``FORMATS``.
        out: The folder to write to; ``export`` in the run folder by default.
        trust: Whether the config of a foreign run may reach beyond the run.
        overrides: Options that replace those of the run, such as secrets, which checkpoints never contain.
        model: A network to load the weights into, in place of the one named in the config.
        env: Id, class or factory of the env, in place of the one named in the config.

    Returns:
        The written paths, by format.

    Raises:
        ConfigError: If a format is unknown, or cannot hold such a policy; then nothing is written.
        CheckpointError: If there is no complete checkpoint with a policy.
        CheckpointWriteError: If the disk refuses.
    """
    for name in formats:
        check_format(name)
    source = open_source(path, trust, overrides, model, env)
    home = source.checkpoint.parent
    run = home.parent if home.name == 'ckpt' else home
    folder = local_path(out) if out is not None else run / FOLDER
    if out is None and not source.manifest.is_own:
        check_links(run if home.name == 'ckpt' else folder)
    if folder.exists() and not folder.is_dir():
        raise CheckpointWriteError('this is a file, expected a folder', where=str(folder))
    chosen = {name: folder / FORMATS[name].name for name in FORMATS if name in formats}
    for name, place in chosen.items():
        FORMATS[name].check(source, place)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_written(folder, error) from error
    for name, place in chosen.items():
        FORMATS[name].write(source, place)
    return chosen
