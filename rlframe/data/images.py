"""Which parts of an observation are images, where their channels are, and which encoder reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from rlframe.data.observation import fields_of
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import gymnasium
else:
    gymnasium = LazyModule('gymnasium')

Path = tuple[str, ...]
"""Names of nested parts of an observation, outer ones first."""


def image_parts(space: gymnasium.Space[Any], path: Path = ()) -> Iterator[tuple[Path, tuple[int, ...]]]:
    """Yields the place and the shape of each image: a Box of 3 axes, or of 4 with a stack of frames."""
    if parts := fields_of(space):
        for name, part in parts.items():
            yield from image_parts(part, (*path, name))
    elif isinstance(space, gymnasium.spaces.Box) and len(space.shape) in (3, 4):
        yield path, space.shape


def is_hwc(shape: tuple[int, ...], layout: str) -> bool:
    """Whether channels are the last axis of an image; for ``'auto'``, if it is not longer than the first."""
    return shape[-1] <= shape[-3] if layout == 'auto' else layout == 'hwc'


class NamedEncoder(NamedTuple):
    """An encoder of images that an option names."""

    name: str
    """``'nature'`` or ``'impala'``."""
    width: float = 1.0
    """Factor of all channels."""

    def channels(self, count: int) -> int:
        """Returns a number of channels, times the width."""
        return max(1, round(count * self.width))
