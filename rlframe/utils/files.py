"""Limits on foreign files and texts; files written whole or not at all, and never through a link."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = 'RLFRAME_MAX_'
LIMITS = {
    'MANIFEST_BYTES': 8 * 2**20,
    'MANIFEST_VALUES': 500_000,
    'CONFIG_BYTES': 16 * 2**20,
    'CONFIG_VALUES': 500_000,
    'POLICY_BYTES': 64 * 2**20,
    'POLICY_VALUES': 5_000_000,
    'STATE_BYTES': 512 * 2**20,
    'STATE_VALUES': 10_000_000,
    'NESTING': 100,
    'SPACE_NUMBERS': 2**24,
    'NETWORK_WIDTH': 2**20,
    'NETWORK_OPTIONS': 10_000,
}
"""Names and values. BYTES are of a file, VALUES are the strings, numbers, lists and dicts in it (aliases of YAML
count as often as they are used), SPACE_NUMBERS are the numbers of an observation or the choices of an action,
NETWORK_WIDTH the sizes of layers, NETWORK_OPTIONS the numbers in the options of a network."""
PRIVATE = 0o600
"""Mode of files that may contain secrets."""


class LimitExceededError(ValueError):
    """A number above a limit; the caller that knows the file turns it into an error that names the file.

    Args:
        name: The limit.
        got: The actual number.
        what: What is counted, in words.
    """

    def __init__(self, name: str, got: int, what: str) -> None:
        most = limit(name)
        super().__init__(f'{what}: {got:,}, but the limit is {most:,}')
        self.remedy = f'If you trust it, set {PREFIX}{name}={got}.'


def limit(name: str) -> int:
    """Returns a limit: the value of ``RLFRAME_MAX_<name>``, or the default.

    Raises:
        ValueError: If the variable is not an int.
    """
    text = os.environ.get(PREFIX + name)
    if text is None:
        return LIMITS[name]
    try:
        return int(text)
    except ValueError:
        raise ValueError(f'{PREFIX}{name} is {text!r}, expected an int') from None


def check_limit(name: str, got: int, what: str) -> None:
    """Checks that a number is within a limit.

    Raises:
        LimitExceededError: With the limit, the number, and how to raise the limit.
    """
    if got > limit(name):
        raise LimitExceededError(name, got, what)


def remedy_of(error: BaseException) -> str:
    """Returns how to raise the limit that an error is about; an empty string for other errors."""
    return str(getattr(error, 'remedy', ''))


def printable(text: str) -> str:
    r"""Returns a text with escapes such as ``\x1b`` for control characters, line ends and halves of characters."""
    if text.isprintable():
        return text
    return ''.join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def printable_lines(text: str) -> str:
    """Returns a text whose lines are printable."""
    return '\n'.join(map(printable, text.split('\n')))


def private_opener(path: str, flags: int) -> int:
    """Opens a file for ``open(..., opener=...)``; an existing file keeps its content and becomes private."""
    descriptor = os.open(path, flags, PRIVATE)
    with suppress(OSError, AttributeError):  # a file of another user, or Windows
        os.fchmod(descriptor, PRIVATE)
    return descriptor


def write_private(path: Path, text: str) -> None:
    """Writes a text file that only its owner can read."""
    with open(path, 'w', encoding='utf-8', errors='backslashreplace', opener=private_opener) as file:
        file.write(text)


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
    handle, name = tempfile.mkstemp(prefix='.tmp-', suffix=path.suffix, dir=path.parent)
    os.close(handle)
    draft = Path(name)
    try:
        if not is_private:  # created again, as the umask says
            draft.unlink()
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        yield draft
        with open(draft, 'rb') as file:
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
