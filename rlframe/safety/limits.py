"""Limits on data from untrusted files, so that a small file cannot take all memory.

Each limit is far above what rlframe itself writes; an environment variable raises it.
"""

from __future__ import annotations

import os

PREFIX = 'RLFRAME_MAX_'
LIMITS = {
    'MANIFEST_BYTES': 8 * 2**20,
    'MANIFEST_VALUES': 500_000,
    'CONFIG_BYTES': 16 * 2**20,
    'CONFIG_VALUES': 500_000,
    'METRICS_BYTES': 1024 * 2**20,
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
