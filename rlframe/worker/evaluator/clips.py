"""Clips: the pictures of evaluated episodes, of which only those that may be shown are kept."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlframe.data.timestep import Array
from rlframe.run.film import Film


class Picture(NamedTuple):
    """A compressed picture; those of most envs become a hundred times smaller."""

    content: bytes
    shape: tuple[int, ...]
    """[C, H, W]."""


class Clip(NamedTuple):
    """The pictures of one finished episode; no pictures if it cannot be shown any more."""

    return_: float
    place: tuple[int, int]
    """Env, and number of the episode in it."""
    pictures: Sequence[Picture]


def shown_ranks(count: int) -> list[int]:
    """Returns the ranks by return, 0 for the worst, of at most four clips that a video shows of so many episodes."""
    if count <= 4:
        return [*range(count)]
    middle = (count // 2 - 1, count // 2) if count % 2 else ((count - 1) // 2, count // 2)
    return [0, *middle, count - 1]


class Clips:
    """Collects the pictures of running episodes, and keeps those of the worst, median and best ones.

    A finished episode whose rank cannot become one of these is dropped at once, so memory is limited by the running episodes
    and a few finished ones.

    Args:
        n_episode: Episodes that will be played.
    """

    def __init__(self, n_episode: int) -> None:
        self._n_episode = n_episode
        self._running: dict[int, list[Picture]] = {}
        self._ended: list[Clip] = []  # by return

    def add(self, env_id: int, image: Array) -> None:
        """Adds a picture, uint8 [H, W, C] or [C, H, W], to the running episode of an env."""
        first = image if image.shape[0] in (1, 3) else np.moveaxis(image, -1, 0)
        picture = Picture(zlib.compress(first.tobytes(), 1), first.shape)
        self._running.setdefault(env_id, []).append(picture)

    def end(self, env_id: int, number: int, return_: float) -> None:
        """Ends the running episode of an env, the ``number``-th that counts."""
        self._ended.append(Clip(return_, (env_id, number), self._running.pop(env_id, [])))
        self._ended.sort(key=lambda clip: clip[:2])
        missing, wanted = self._n_episode - len(self._ended), shown_ranks(self._n_episode)
        self._ended = [
            clip if any(rank <= each <= rank + missing for each in wanted) else clip._replace(pictures=[])
            for rank, clip in enumerate(self._ended)
        ]

    def _at(self, rank: int) -> Clip:
        """Returns the clip of a rank, or the nearest one that has pictures, if the evaluation ended early."""
        kept = [i for i, clip in enumerate(self._ended) if clip.pictures]
        if not kept:
            raise ValueError('no frames were given to update_video')
        return self._ended[min(kept, key=lambda i: abs(i - rank))]

    def video(self) -> Array:
        """Returns the clips to show, uint8 [1 to 4, T, C, H, W]; shorter ones are padded with their last picture."""
        clips = [self._at(rank) for rank in shown_ranks(len(self._ended)) or [0]]
        frames = [[_unpacked(picture) for picture in clip.pictures] for clip in clips]
        longest = max(map(len, frames))
        return np.stack([np.stack(own + [own[-1]] * (longest - len(own))) for own in frames])

    def films(self) -> list[Film]:
        """Returns the films of the worst, the median and the best episode; fewer of fewer than three episodes."""
        count = len(self._ended)
        ranks = {'worst': 0, 'median': count // 2, 'best': count - 1}
        if count < 3:
            ranks = {'worst': 0, 'best': 1} if count == 2 else {'episode': 0}
        clips = {label: self._at(rank) for label, rank in ranks.items()}
        return [
            Film(label, clip.return_, [np.moveaxis(_unpacked(picture), 0, -1) for picture in clip.pictures])
            for label, clip in clips.items()
        ]


def _unpacked(picture: Picture) -> Array:
    return np.frombuffer(zlib.decompress(picture.content), np.uint8).reshape(picture.shape)
