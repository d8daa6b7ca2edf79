"""Renders pictures of envs, and explains why an env has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlframe.data.timestep import Array
from rlframe.errors import EnvError


def picture_of(draw: Callable[[], Any], name: str) -> Array:
    """Returns the rendered picture of an env, uint8 [H, W, 3].

    Args:
        draw: Its ``render``.
        name: Name of the env in an error.

    Raises:
        EnvError: If it renders nothing, or something other than a picture.
    """
    try:
        picture = np.asarray(draw())
    except RuntimeError as error:  # NotImplementedError is one
        raise _no_picture(name, f'{type(error).__name__}: {error}'.rstrip(': ')) from error
    if picture.dtype != np.uint8 or picture.ndim != 3:
        got = f'{picture.dtype} {list(picture.shape)}' if picture.shape else picture.item()
        raise _no_picture(name, got)
    return picture


def _no_picture(name: str, got: Any) -> EnvError:
    return EnvError(
        f'{name} cannot be rendered',
        where='env.env_id',
        got=got,
        expected="uint8 [H, W, 3] in the render mode 'rgb_array'",
        remedy='Leave --video out, and policy.eval.evaluator.render.render_freq at -1.',
    )
