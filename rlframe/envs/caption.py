"""Captions: lines of text below a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlframe.data.timestep import Array

LINE, MARGIN, LEAST = 14, 4, 320
"""Height of a line of text, the space around lines, and the least width of a picture with a caption, in pixels."""


def with_caption(picture: Array, lines: Sequence[str]) -> Array:
    """Returns a picture with black lines on white below it; one that is too narrow gets white on its right.

    Args:
        picture: uint8 [H, W, 3].
        lines: The lines, from the top.

    Returns:
        uint8; without pillow, which films need, the picture itself.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        return picture
    height, width = picture.shape[:2]
    strip = Image.new('RGB', (max(width, LEAST), LINE * len(lines) + 2 * MARGIN), 'white')
    draw = ImageDraw.Draw(strip)
    for number, line in enumerate(lines):
        draw.text((MARGIN, MARGIN + LINE * number), line, 'black')
    wide = np.full((height, strip.width, 3), 255, np.uint8)
    wide[:, :width] = picture[:, :, :3]
    return np.concatenate([wide, np.asarray(strip)])
