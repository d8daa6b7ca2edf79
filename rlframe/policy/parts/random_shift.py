"""RandomShift: images moved by a few pixels, each time that a policy learns from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.faces import Learn
from rlframe.data.observation import image_parts, is_hwc
from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray
from rlframe.errors import IncompatibleError
from rlframe.utils.field import Field

RANDOM_SHIFT = Field(
    0,
    range='[0, inf)',
    unit='pixels',
    doc='largest random shift of images in updates, on-policy once a round; edges are repeated (Kostrikov et al. 2021, section'
    ' 3.1: 4)',
    may_change=True,
)


class RandomShift:
    """Moves the images of batches, the frames of a stack and of a sequence alike.

    Source:
        Kostrikov et al., Image Augmentation Is All You Need: Regularizing Deep Reinforcement Learning from Pixels (2021),
        section 3.1, with one shift of each observation and each next one (K = M = 1).
    """

    def __init__(self, cfg: Any, spec: EnvSpec, rng: np.random.Generator) -> None:
        self._pixels = cfg.learn.random_shift
        self._rng = rng
        layout = cfg.model.get('image_layout', 'auto')
        self._parts = {path: is_hwc(shape, layout) for path, shape in image_parts(spec.observation_space)}

    def learning(self, learn: Learn) -> Learn:
        """Returns a ``forward`` of the learn face that shifts its batch first."""
        if not self._pixels:
            return learn

        def shifted(data: Batch, *args: Any, **kwargs: Any) -> Any:
            names = [name for name in ('obs', 'next_obs') if name in data]
            moved = {name: self(np.asarray(data[name])) for name in names}
            return learn(data.replace(**moved), *args, **kwargs)

        return shifted

    def __call__(self, obs: Array) -> Array:
        """Returns observations [B, ...] with each row moved by a distance of its own."""
        shift = self._rng.integers(-self._pixels, self._pixels + 1, (2, len(obs)))
        if obs.dtype.names is None:
            return shifted_images(obs, shift, self._parts[()])
        moved = obs.copy()
        for path, hwc in self._parts.items():
            part = moved
            for name in path:
                part = part[name]
            part[...] = shifted_images(part, shift, hwc)
        return moved


def check_shift(cfg: Any, spec: EnvSpec) -> None:
    """Checks that the observations of an env can be shifted, and that something of them is left.

    Raises:
        IncompatibleError: If not.
    """
    pixels = cfg.learn.random_shift
    layout = cfg.model.get('image_layout', 'auto')
    sides = [
        min(shape[-3:-1] if is_hwc(shape, layout) else shape[-2:])
        for _, shape in image_parts(spec.observation_space)
    ]
    if not pixels or (sides and pixels < min(sides)):
        return
    what = f'images have {min(sides)} pixels' if sides else 'only images can be shifted'
    raise IncompatibleError(
        f'{what}, and the observation space is {spec.observation_space!r}',
        where='policy.learn.random_shift',
        got=pixels,
        expected=f'less than {min(sides)}' if sides else '0',
    )


def shifted_images(images: Array, shift: IntArray, hwc: bool) -> Array:
    """Moves images [B, ..., H, W], or [B, ..., H, W, C], by ``shift`` [2, B] pixels: pads them by their edges, and crops."""
    height, width = images.shape[-3:-1] if hwc else images.shape[-2:]
    margin = int(np.abs(shift).max(initial=0))
    none = (0, 0)
    around = [none] * (images.ndim - 2 - hwc) + [(margin, margin)] * 2 + [none] * hwc
    wide = np.pad(images, around, mode='edge')
    moved = np.empty_like(images)
    for image, to, down, right in zip(wide, moved, *(shift + margin).tolist(), strict=True):
        place = slice(down, down + height), slice(right, right + width)
        to[...] = image[..., *place, :] if hwc else image[..., *place]
    return moved
