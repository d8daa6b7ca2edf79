"""Writes files whole or not at all, and never through a link or into a pipe that somebody left under their name."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path, is_private: bool = True) -> Iterator[Path]:
    """Yields a draft next to ``path`` that replaces it at the end, or is deleted if the block raises.

    A link at ``path`` is replaced, not followed, as the folder may be somebody else's. Resolve paths that the user named.

    Args:
        path: The file.
        is_private: Whether only its owner can read it.

    Raises:
        OSError: If it cannot be written, or is something else than a file.
    """
    if os.path.lexists(path) and not path.is_symlink() and not path.is_file():
        raise OSError(errno.EINVAL, 'this is not a regular file', str(path))
    handle, name = tempfile.mkstemp(prefix='.rlframe-', suffix=path.suffix, dir=path.parent)
    os.close(handle)
    draft = Path(name)
    try:
        if not is_private:  # created again, as the umask says
            draft.unlink()
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        yield draft
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def followed(path: Path) -> Path:
    """Returns where a path that the user named leads to; pipes and devices keep their names, to be refused by them."""
    return path if path.exists() and not path.is_file() else path.resolve()
