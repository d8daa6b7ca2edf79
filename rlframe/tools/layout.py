"""Lines of text with a column of labels, as the tools print them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gymnasium import Space

LABEL = 11
"""Width of the column of labels."""


def row(label: str, text: str, width: int, indent: int = 0) -> list[str]:
    """Returns a label and its text, wrapped to ``width`` columns.

    Args:
        label: The label.
        text: The text.
        width: Columns.
        indent: Columns by which further lines of the text are indented.
    """
    return _wrap(text, width, f'  {label:{LABEL}}', ' ' * (2 + LABEL + indent))


def wrapped(text: str, indent: int, width: int) -> list[str]:
    """Returns a text indented and wrapped to ``width`` columns; nothing of an empty text."""
    return _wrap(text, width, ' ' * indent, ' ' * indent)


def _wrap(text: str, width: int, first: str, more: str) -> list[str]:
    plain = textwrap.TextWrapper(
        width, initial_indent=first, subsequent_indent=more, break_long_words=False, break_on_hyphens=False
    )
    return plain.wrap(text)


def space_text(space: Space[Any]) -> str:
    """Returns a space in one short line: bounds of a Box as its smallest and largest value."""
    low: Any = getattr(space, 'low', None)
    if low is not None:
        high: Any = space.high  # type: ignore[attr-defined]  # a Box has both
        bounds = f' in [{float(np.min(low)):.4g}, {float(np.max(high)):.4g}]' if np.size(low) else ''
        return f'Box {space.shape} {space.dtype}{bounds}'
    parts: Any = getattr(space, 'spaces', None)
    if isinstance(parts, tuple):
        return f'Tuple({", ".join(map(space_text, parts))})'
    if parts is not None:
        return f'Dict({", ".join(f"{name}: {space_text(part)}" for name, part in parts.items())})'
    return str(space)
