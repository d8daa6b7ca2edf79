"""Films of episodes, as MP4 files or, without an encoder for these, as GIF files."""

from __future__ import annotations

import importlib.util
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
    """Which one it is: ``worst``, ``median`` or ``best``."""
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
    if not (is_installed('moviepy') or is_installed('PIL')):
        raise MissingDependencyError(
            'films need moviepy, or Pillow for GIF files', where=where, remedy='pip install "rlframe[video]"'
        )


def is_installed(package: str) -> bool:
    """Whether a package can be imported."""
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # a test has taken it out
        return False


def write_film(path: Path, frames: Sequence[Any], fps: float) -> Path:
    """Writes a film.

    Args:
        path: The file without its ending; its folder is created.
        frames: Pictures, uint8 [H, W, 3] each.
        fps: Frames per second.

    Returns:
        The file that was written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not is_installed('moviepy'):
        return write_gif(path.with_name(f'{path.name}.gif'), frames, fps)
    from moviepy import ImageSequenceClip

    height, width = np.shape(frames[0])[:2]
    even = ((0, height % 2), (0, width % 2), (0, 0))  # H.264 has no odd sizes
    file = path.with_name(f'{path.name}.mp4')
    shown = [np.pad(frame, even, 'edge') for frame in (*frames, frames[-1])]  # it may round the last one away
    with ImageSequenceClip(shown, fps=fps) as clip:
        clip.write_videofile(str(file), logger=None)
    return file


def write_gif(file: Path, frames: Sequence[Any], fps: float) -> Path:
    """Writes a GIF file and returns its path."""
    from PIL import Image

    first, *others = (Image.fromarray(np.asarray(frame)) for frame in frames)
    first.save(file, save_all=True, append_images=others, duration=1000 / fps, loop=0)
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
