"""One line of facts that fits a width: the least important facts become shorter or disappear first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.text import Text

from rlframe.scores import clock_text, short_count

SEPARATOR = ' | '
SHRINK = (
    'status', 'loss', 'left', 'updates', 'status', 'updates', 'speed', 'steps', 'steps', 'status',
    'return', 'eval', 'return', 'eval', 'steps',
)  # fmt: skip
"""Names of the parts in the order in which they are shortened, each time by one text."""


class Part(NamedTuple):
    """A fact of the line."""

    name: str
    """Its name in ``SHRINK``; a part whose name is not there is never shortened."""
    texts: tuple[str, ...]
    """The fact in words, the longest text first; an empty one leaves it out."""
    style: str = ''
    """Its colour, as rich names it."""


def fitted(parts: Iterable[Part], width: int | None) -> Text:
    """Returns the parts in one line.

    Args:
        parts: The facts, in the order in which they are shown.
        width: Columns of the line; None: as many as it takes.
    """
    parts = list(parts)
    chosen = [list(part.texts) for part in parts]
    cuts: list[tuple[list[str], str]] = []
    for name in SHRINK:
        if width is None or _length(chosen) <= width:
            break
        for part, texts in zip(parts, chosen, strict=True):
            if part.name == name and len(texts) > 1:
                cuts.append((texts, texts.pop(0)))
    for texts, longer in reversed(cuts):  # what a later cut left room for
        texts.insert(0, longer)
        if _length(chosen) > (width or 0):
            texts.pop(0)
    shown = [(texts[0], part.style) for part, texts in zip(parts, chosen, strict=True) if texts[0]]
    line = Text(no_wrap=True, overflow='ellipsis')
    for number, (text, style) in enumerate(shown):
        line.append(SEPARATOR if number else '', 'dim')
        line.append(text, style)
    return line


def _length(chosen: Sequence[Sequence[str]]) -> int:
    texts = [texts[0] for texts in chosen if texts[0]]
    return sum(map(len, texts)) + len(SEPARATOR) * (len(texts) - 1)


def steps_part(count: int) -> Part:
    """Returns the part with the number of env steps."""
    return Part('steps', (f'env steps {count:,}', f'{count:,} steps', f'{short_count(count)} steps', ''))


def status_part(text: str) -> Part:
    """Returns a part with the status of a worker; its first words are the most important ones."""
    return Part('status', (text, text.partition(',')[0], text.partition(':')[0], ''), 'yellow')


def time_part(seconds: float) -> Part:
    """Returns the part with the duration so far."""
    return Part('time', (clock_text(seconds),))


def left_part(seconds: float | None) -> Part:
    """Returns the part with the time that is left at most; None: unknown."""
    text = '--:--' if seconds is None else clock_text(seconds)
    return Part('left', (f'at most {text} left', f'{text} left'))
