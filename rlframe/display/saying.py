"""Lines on standard output, for people and for scripts, and warnings on standard error."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

MOST_COLUMNS = 100
"""Width of text in wider terminals."""


def say(text: str) -> None:
    """Writes a line to standard output and flushes it."""
    sys.stdout.write(text + '\n')
    sys.stdout.flush()


def say_warnings(texts: Iterable[object]) -> None:
    """Writes warnings to standard error, each text once."""
    for text in dict.fromkeys(map(str, texts)):
        sys.stderr.write(f'rlframe: warning: {text}\n')


def say_result(found: Any, text_of: Callable[[Any, int], str], as_json: bool) -> None:
    """Writes the result of a verb to standard output.

    Args:
        found: The result, as JSON-able data.
        text_of: Returns the result as text of at most so many columns.
        as_json: Whether a program reads it, as one line of JSON.
    """
    width = min(shutil.get_terminal_size().columns, MOST_COLUMNS)
    say(json.dumps(found) if as_json else text_of(found, width))


def count_of(count: int, noun: str) -> str:
    """Returns a count with its noun, such as ``1 learner`` or ``2 collectors``."""
    return f'{count} {noun}' if count == 1 else f'{count} {noun}s'


def short_path(path: Path) -> str:
    """Returns a path relative to the working directory if it is inside, else as it is."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def program() -> str:
    """Returns the command that starts rlframe's command line, in the form in which it was started."""
    started = Path(sys.argv[0])
    if started.stem == 'rlframe' and started.suffix in ('', '.exe'):
        return 'rlframe'
    return (
        'python -m rlframe' if started.parts[-2:] == ('rlframe', '__main__.py') else 'python -m rlframe.entry'
    )
