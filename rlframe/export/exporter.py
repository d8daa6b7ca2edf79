"""export_policy: a checkpoint's policy, written in the formats that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlframe.errors import CheckpointWriteError
from rlframe.export.artifact import FOLDER, not_written
from rlframe.export.formats import FORMATS, check_format
from rlframe.export.source import open_source
from rlframe.utils.checkpoint.read import local_path


def export_policy(
    path: str | Path,
    formats: Sequence[str] = ('artifact',),
    out: str | Path | None = None,
    *,
    allow_import: bool = False,
) -> dict[str, Path]:
    """Writes the policy of a checkpoint for use elsewhere; what is there of an earlier export is replaced.

    Args:
        path: A run folder, whose best checkpoint is taken, or a checkpoint.
        formats: Names of ``FORMATS``.
        out: The folder to write to; ``export`` in the run folder by default.
        allow_import: Whether the config in the checkpoint may import the modules that it names.

    Returns:
        What was written, by its format.

    Raises:
        ConfigError: If a format is unknown, or cannot hold such a policy; then nothing is written.
        CheckpointError: If there is no whole checkpoint with a policy.
        CheckpointWriteError: If the disk refuses.
    """
    for name in formats:
        check_format(name)
    source = open_source(path, allow_import)
    home = source.checkpoint.parent
    folder = local_path(out) if out is not None else (home.parent if home.name == 'ckpt' else home) / FOLDER
    if folder.exists() and not folder.is_dir():
        raise CheckpointWriteError('this is a file, and a folder is to be written to', where=str(folder))
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
