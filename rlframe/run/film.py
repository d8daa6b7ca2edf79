"""Films of episodes, as MP4 files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlframe.errors import MissingDependencyError

DEFAULT_FPS = 30
"""Frames per second if the env does not specify them."""


class Film(NamedTuple):
    """The pictures of one episode."""

    label: str
    """``worst``, ``median`` or ``best``."""
    return_: float
    frames: Sequence[Any]
    """uint8 [H, W, 3] each."""

    @property
    def name(self) -> str:
        """Name of its file, without an ending."""
        return f'{self.label}_return_{self.return_:.6g}'


def check_encoder(where: str) -> None:
    """Checks that films can be written.

    Args:
        where: The option that asks for films.

    Raises:
        MissingDependencyError: If they cannot.
    """
    try:
        import moviepy  # noqa: F401  # only to see whether it can be imported
    except ImportError as error:
        raise MissingDependencyError(
            'films need moviepy', where=where, remedy='pip install "rlframe[video]"'
        ) from error


def write_film(path: Path, frames: Sequence[Any], fps: float) -> Path:
    """Writes an MP4 file.

    Args:
        path: The file without its ending; its folder is created.
        frames: Pictures, uint8 [H, W, 3] each.
        fps: Frames per second.

    Returns:
        The file that was written.
    """
    from moviepy import ImageSequenceClip

    path.parent.mkdir(parents=True, exist_ok=True)
    height, width = np.shape(frames[0])[:2]
    even = ((0, height % 2), (0, width % 2), (0, 0))  # H.264 has no odd sizes
    file = path.with_name(f'{path.name}.mp4')
    shown = [np.pad(frame, even, 'edge') for frame in (*frames, frames[-1])]  # it may round the last one away
    with ImageSequenceClip(shown, fps=fps) as clip:
        clip.write_videofile(str(file), logger=None)
    return file


class FilmFolder:
    """Stands in for a ``tb_logger`` and writes the films to a folder, and nothing else.

    Args:
        folder: The folder, created with the first film.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Ignores a number."""

    def add_films(self, films: Sequence[Film], step: int, fps: int) -> None:
        """Writes films."""
        for film in films:
            write_film(self._folder / film.name, film.frames, fps)
