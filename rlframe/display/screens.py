"""Where progress is shown: a line that is redrawn on a terminal or in a notebook, occasional lines elsewhere."""

from __future__ import annotations

import html
import io
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

Picture = Callable[[int | None], RenderableType]
"""Returns what is shown in so many columns; None: in one line of any length."""
NOTEBOOK_COLUMNS = 100
"""Columns of the output of a notebook's cell."""


class PlainScreen:
    """Lines one below the other, for pipes, files and terminals that cannot redraw.

    Args:
        console: Where they are written.
    """

    first, period = 0.5, 5.0
    """Seconds before the first update, and between two."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def start(self) -> None:
        """Takes the place where it is shown."""

    def show(self, picture: Picture) -> None:
        """Shows the present state."""
        self._console.print(picture(None), highlight=False, soft_wrap=True)

    def stop(self) -> None:
        """Gives the place back, with the last state in it."""


class LiveScreen(PlainScreen):
    """A line at the bottom of a terminal that is redrawn."""

    first, period = 0.0, 0.2

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False)

    def start(self) -> None:
        self._live.start()

    def show(self, picture: Picture) -> None:
        self._live.update(picture(self._console.width), refresh=True)

    def stop(self) -> None:
        self._live.stop()


class NotebookScreen(PlainScreen):
    """One output of a notebook's cell that is replaced; it stays in the saved notebook."""

    first, period = 0.0, 0.5
    _handle: Any = None

    def show(self, picture: Picture) -> None:
        drawn = Console(file=io.StringIO(), width=NOTEBOOK_COLUMNS, force_jupyter=False, color_system=None)
        drawn.print(picture(NOTEBOOK_COLUMNS), highlight=False)
        lines = drawn.file.getvalue().splitlines()  # type: ignore[attr-defined]  # a StringIO
        shown = Preformatted('\n'.join(line.rstrip() for line in lines))
        if self._handle is None:
            from IPython.display import display

            self._handle = display(shown, display_id=True)  # type: ignore[no-untyped-call]  # IPython's function has no annotations
        else:
            self._handle.update(shown)


class Preformatted:
    """Text that notebooks show as it is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f'<pre style="margin:0">{html.escape(self._text)}</pre>'


def screen_of(console: Console) -> PlainScreen:
    """Returns the screen that suits a console; colours asked for on a pipe do not make it a terminal."""
    if console.is_jupyter:
        return NotebookScreen(console)
    redraws = console.file.isatty() and console.is_terminal and not console.is_dumb_terminal
    return LiveScreen(console) if redraws else PlainScreen(console)
