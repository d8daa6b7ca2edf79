"""What ``--trust`` accepts, and whether modules are found in the working directory."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rlframe.entry.arguments import Args
from rlframe.errors import RLFrameError


@contextmanager
def telling_what_is_trusted(args: Args) -> Iterator[None]:
    """Prints each value that ``--trust`` accepts to stderr before it is used."""
    logger, handler = logging.getLogger('rlframe.trust'), logging.StreamHandler()
    handler.setFormatter(logging.Formatter('rlframe: %(message)s'))
    if getattr(args, 'trust', False):
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def set_import_path(args: Args) -> None:
    """Adds the working directory to the import path, or removes it if the command needs no module from it.

    ``python -m`` adds it, the program ``rlframe`` does not. For a foreign run, a file there could shadow a package that
    is not installed, such as one that an env needs. So it is removed until the checkpoint has turned out to be the
    user's own.

    Args:
        args: The parsed command line. The path of a checkpoint is replaced by the open checkpoint, as the verb must use
            the one that this decision is about.
    """
    here, before = os.getcwd(), list(sys.path)
    if not _names_modules(args):
        sys.path[:] = [entry for entry in before if entry not in ('', here)]
        if not _is_own(args):
            return
        sys.path[:] = before
    if here not in sys.path and '' not in sys.path:
        sys.path.insert(0, here)


def _is_own(args: Args) -> bool:
    """Opens the checkpoint that the command uses, and returns whether this user wrote it; the verb reports errors."""
    try:
        if args.verb == 'train':
            from rlframe.pipeline.resume import find_start

            args.resume = find_start(args.resume)
            return bool(args.resume.saved.manifest.is_own)
        from rlframe.run.read_checkpoint import open_checkpoint

        args.checkpoint = open_checkpoint(args.checkpoint)
        return bool(args.checkpoint.manifest.is_own)
    except RLFrameError:
        return False


def _names_modules(args: Args) -> bool:
    """Whether the command may need modules in the working directory, even if its checkpoint is foreign."""
    if 'trust' not in args:
        return True
    if args.verb == 'train' and (args.config or args.env or args.resume is None):
        return True
    return args.trust or any(':' in text or 'import_names' in text for text in args.overrides)
