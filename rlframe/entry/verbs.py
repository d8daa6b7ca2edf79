"""Command-line options that several verbs share."""

from __future__ import annotations

import argparse
import math
from typing import TypeAlias

Verbs: TypeAlias = 'argparse._SubParsersAction[argparse.ArgumentParser]'
"""The object to which a verb adds its parser."""


def count(text: str) -> int:
    """Reads ``100000`` or ``1e5``.

    Raises:
        ArgumentTypeError: If it is no whole number of at least 1.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number.is_integer() or number < 1:
        raise argparse.ArgumentTypeError(f'{text!r} is not a whole number >= 1, such as 100000 or 1e5')
    return int(number)
