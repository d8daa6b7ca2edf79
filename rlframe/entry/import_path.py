"""Decides whether the command line finds modules in the working directory: yes, except for foreign runs."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rlframe.errors import CheckpointError

if TYPE_CHECKING:
    from rlframe.checkpoint.manifest import Manifest


def set_import_path(args: argparse.Namespace) -> None:
    """Adds the working directory to the import path, or removes it if the command needs no module from it.

    ``python -m`` adds it, the program ``rlframe`` does not. For a foreign run, a file there could shadow a package that
    is not installed, such as one that an env needs.

    Args:
        args: The parsed command line.
    """
    here = os.getcwd()
    if not _is_foreign(args) or _names_modules(args):
        if here not in sys.path and '' not in sys.path:
            sys.path.insert(0, here)
        return
    sys.path[:] = [entry for entry in sys.path if entry not in ('', here)]


def _is_foreign(args: argparse.Namespace) -> bool:
    """Whether the command uses a checkpoint that this user did not write."""
    given = args.checkpoint if args.verb in ('eval', 'export') else getattr(args, 'resume', None)
    if args.verb not in ('eval', 'export', 'train') or given in (None, 'auto'):
        return False
    try:
        return not _manifest(Path(given).expanduser(), is_resumed=args.verb == 'train').is_own
    except CheckpointError:
        return True


def _manifest(path: Path, is_resumed: bool) -> Manifest:
    """Reads the manifest of the checkpoint at a path; for a resumed run, of the newest checkpoint."""
    from rlframe.checkpoint import find_checkpoint
    from rlframe.checkpoint.manifest import read_manifest
    from rlframe.checkpoint.read import RESUMABLE, manifests_in, newest_first

    if is_resumed:
        found, _ = manifests_in(path / 'ckpt' if (path / 'ckpt').is_dir() else path, RESUMABLE)
        if found:
            return read_manifest(newest_first(found)[0])
    return read_manifest(find_checkpoint(path))


def _names_modules(args: argparse.Namespace) -> bool:
    """Whether the command line names modules that may be in the working directory."""
    overrides = getattr(args, 'overrides', ())
    has_config = getattr(args, 'config', None) is not None
    return args.trust or has_config or any(':' in text or 'import_names' in text for text in overrides)
