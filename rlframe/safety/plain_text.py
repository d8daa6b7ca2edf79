"""Makes text of unknown origin safe to show: in a terminal, on a page and in a picture."""

from __future__ import annotations

from typing import Any


def printable(text: str) -> str:
    r"""Returns a text with escapes such as ``\x1b`` for control characters, line ends and halves of characters."""
    if text.isprintable():
        return text
    return ''.join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def printable_lines(text: str) -> str:
    """Returns a text whose lines are printable."""
    return '\n'.join(map(printable, text.split('\n')))


def printable_tree(tree: Any) -> Any:
    """Returns plain data whose keys and strings are printable."""
    if isinstance(tree, dict):
        return {printable(str(name)): printable_tree(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [printable_tree(value) for value in tree]
    return printable(tree) if isinstance(tree, str) else tree
