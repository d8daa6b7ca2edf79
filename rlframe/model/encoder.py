"""Reading observations of any space as vectors: numbers as they are, classes one-hot, images by convolutions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import gymnasium
import numpy as np
import torch
from torch import nn

from rlframe.data.observation import ACTION_MASK, NamedEncoder, fields_of, image_parts, is_hwc
from rlframe.errors import IncompatibleError
from rlframe.utils.serialize import field_path

logger = logging.getLogger(__name__)

NATURE_LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel size and stride. Source: Mnih et al. (2015), Methods."""
IMPALA_CHANNELS = (16, 32, 32)
"""Channels of each section. Source: Espeholt et al. (2018), figure 3, right."""
ConvLayers: TypeAlias = Sequence[Sequence[int]] | NamedEncoder
"""Channels, kernel size and stride of each convolution, or the name of an encoder."""
Obs: TypeAlias = torch.Tensor | dict[str, 'Obs']
"""A tensor [B, ...], or a dict of tensors, one for each field of a structured observation."""
ACTIVATIONS = {
    'relu': torch.relu_,
    'tanh': torch.tanh_,
    'gelu': nn.functional.gelu,
    'silu': nn.functional.silu,
    'elu': nn.functional.elu,
}
"""In-place activations, used if autograd needs only the result: nothing else refers to their input."""
NATURE_SIZE = 36
"""Least height and width that Nature's convolutions leave something of."""
MOST_CHANNELS = 4
"""Channel counts of images: grayscale, RGB, RGBA."""
SYMBOLS = 16
"""Symbols of each kind that a grid of symbols is read to have."""
GRID_CHANNELS = (16, 32, 32)
"""Numbers that the symbols of a cell become, and channels of the convolutions behind them."""
GRID_KERNEL = 3
"""Height and width of these convolutions."""
LETTERS = 32
"""Letters, a power of 2, that a text beside a grid is read to have."""
TEXT_SIZE = 32
"""Numbers that such a text becomes."""
HADAMAX_LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel size and pooling of each block. Source: Kooi et al. (2025), section 4, on Mnih et al.'s layers."""
HADAMAX_SMALL = ((16, 3, 2),)
"""The same for smaller images."""
SMALL_LAYERS = ((16, 3, 1),)
"""Convolutions for smaller images. Source: Young & Tian, MinAtar (2019), section 3."""


def images_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of a network's options that are for the encoder of images; see ``MLP``."""
    return {name: options[name] for name in ('conv_layers', 'image_layout') if name in options}


def vector_space(size: int) -> gymnasium.spaces.Box:
    """Returns the space of vectors of so many numbers."""
    return gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)


class ResidualConvs(nn.Module):
    """Two convolutions whose output is added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Maps [B, C, H, W] to the same shape."""
        inner = torch.relu_(self.first(torch.relu(features)))
        return features + self.second(inner)


class ResidualSection(nn.Module):
    """A convolution, a pooling that halves height and width, and two residual blocks."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, channels, 3, padding=1)
        self.blocks = nn.Sequential(ResidualConvs(channels), ResidualConvs(channels))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Maps [B, C, H, W] to [B, channels, ceil(H / 2), ceil(W / 2)]."""
        features = nn.functional.max_pool2d(self.conv(features), 3, 2, padding=1)
        return self.blocks(features)


class ResidualLayers(nn.Sequential):
    """The sections of a residual encoder.

    Args:
        image: Channels, height and width.
        encoder: Its width.

    Source:
        Espeholt et al., IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures (2018),
        figure 3, right, without its LSTM.
    """

    def __init__(self, image: tuple[int, int, int], encoder: NamedEncoder) -> None:
        channels = [encoder.channels(count) for count in IMPALA_CHANNELS]
        ins = [image[0], *channels]
        sections = (ResidualSection(before, after) for before, after in zip(ins, channels, strict=False))
        super().__init__(*sections, nn.ReLU(inplace=True))
        size = list(image[1:])
        for _ in channels:
            size = [(length + 1) // 2 for length in size]
        self.size = channels[-1] * size[0] * size[1]
        """Length of the flat output."""


class HadamaxBlock(nn.Module):
    """The largest products, by regions, of two convolutions that both have a norm of their channels and a GELU."""

    def __init__(self, in_channels: int, channels: int, kernel: int, pool: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(in_channels, channels, kernel) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(2))
        self._margin = ((kernel - 1) // 2, kernel // 2) * 2
        self._pool = pool

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Maps [B, C, H, W] to [B, channels, ceil(H / pool), ceil(W / pool)]."""
        padded = nn.functional.pad(features, self._margin)
        first, second = (
            nn.functional.gelu(norm(conv(padded).movedim(1, -1)))
            for conv, norm in zip(self.convs, self.norms, strict=True)
        )
        return nn.functional.max_pool2d((first * second).movedim(-1, 1), self._pool, ceil_mode=True)


class HadamaxLayers(nn.Sequential):
    """The blocks of a Hadamax encoder, which have the pooling that other convolutions have as strides.

    Args:
        image: Channels, height and width.
        encoder: Its width.

    Source:
        Kooi et al., Hadamax Encoding: Elevating Performance in Model-Free Atari (2025), section 4.
    """

    def __init__(self, image: tuple[int, int, int], encoder: NamedEncoder) -> None:
        before, *size = image
        blocks = []
        for count, kernel, pool in HADAMAX_LAYERS if min(size) >= NATURE_SIZE else HADAMAX_SMALL:
            channels = encoder.channels(count)
            blocks.append(HadamaxBlock(before, channels, kernel, pool))
            before = channels
            size = [-(-length // pool) for length in size]
        super().__init__(*blocks)
        self.size = before * size[0] * size[1]
        """Length of the flat output."""


WHOLE = {'impala': ResidualLayers, 'hadamax': HadamaxLayers}
"""Names of encoders that have activations of their own."""


class Reader(Protocol):
    """Encodes observations as vectors."""

    size: int
    """Length of a vector."""

    def __call__(self, obs: Any) -> torch.Tensor:
        """Maps [B, ...] to float32 [B, size]."""


class Flatten:
    """Reads a Box, or anything that is numbers, as one vector."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.size = int(np.prod(space.shape or (1,)))

    def __call__(self, obs: torch.Tensor) -> torch.Tensor:
        return obs if obs.dim() == 2 and obs.dtype is torch.float32 else obs.reshape(obs.shape[0], -1).float()


class OneHot(nn.Module):
    """Reads each class of a Discrete or MultiDiscrete space as a vector with a single 1."""

    _which: torch.Tensor
    _value: torch.Tensor

    def __init__(self, space: Any) -> None:
        super().__init__()
        is_one = isinstance(space, gymnasium.spaces.Discrete)
        counts = np.atleast_1d(space.n if is_one else space.nvec).reshape(-1)
        starts = np.broadcast_to(space.start, counts.shape) if is_one else np.reshape(space.start, -1)
        values = [start + np.arange(count) for start, count in zip(starts, counts, strict=True)]
        self.size = int(counts.sum())
        which = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
        self.register_buffer('_which', which, persistent=False)
        self.register_buffer('_value', torch.from_numpy(np.concatenate(values)), persistent=False)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return (obs.reshape(obs.shape[0], -1)[:, self._which] == self._value).float()


class ImageEncoder(nn.Module):
    """Reads images by convolutions; whole numbers are divided by their bound, a stack's frames are more channels.

    ``space`` is a Box of 3 axes, or of 4 if the first one is a stack of frames; ``layers`` are channels, kernel size and
    stride of each convolution, or the name of an encoder; ``is_hwc``: whether channels are the last of the 3 axes, not the
    first. ``path`` names the observation part, for errors.

    Raises:
        IncompatibleError: If a convolution is larger than its input.
    """

    def __init__(
        self, space: gymnasium.Space[Any], layers: ConvLayers, is_hwc: bool, activation: str, path: str
    ) -> None:
        super().__init__()
        shape: tuple[int, ...] = space.shape or ()
        self._is_hwc = is_hwc
        self._is_stack = len(shape) == 4
        self._scale = _scale_of(space)
        self._activation = ACTIVATIONS[activation]
        image = _chw(shape, is_hwc)
        self._is_whole = isinstance(layers, NamedEncoder) and layers.name in WHOLE
        self.layers: nn.ModuleList | nn.Sequential
        if isinstance(layers, NamedEncoder) and self._is_whole:
            whole: Any = WHOLE[layers.name](image, layers)
            self.layers = whole
            self.size: int = whole.size
            return
        self.layers = nn.ModuleList()
        convolutions: Any = layers
        if isinstance(layers, NamedEncoder):
            convolutions = [(layers.channels(out), kernel, stride) for out, kernel, stride in NATURE_LAYERS]
        # convolutions, each with the size of its output
        channels, *size = image
        for number, (out_channels, kernel, stride) in enumerate(convolutions, 1):
            if min(size) < kernel:
                layout = 'height x width x channels' if is_hwc else 'channels x height x width'
                key = 'encoder' if isinstance(layers, NamedEncoder) else 'conv_layers'
                raise IncompatibleError(
                    f'convolution {number} of {[list(layer) for layer in convolutions]} has kernels of {kernel}x{kernel} and'
                    f' reads {size[0]}x{size[1]}: {path} of shape {list(shape)} is read as {layout}, {image[0]}'
                    f' channels of {image[1]}x{image[2]}',
                    where=f'policy.model.{key}',
                    remedy="Is policy.model.image_layout right ('hwc' or 'chw')? Else take smaller kernels or strides.",
                )
            self.layers.append(nn.Conv2d(channels, out_channels, kernel, stride))
            channels = out_channels
            size = [(length - kernel) // stride + 1 for length in size]
        self.size = channels * size[0] * size[1]

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        features = obs.movedim(-1, -3) if self._is_hwc else obs
        features = (features.flatten(1, 2) if self._is_stack else features).float()
        if self._scale is not None:
            features = features.mul_(self._scale)  # the conversion made new memory
        for layer in self.layers:
            features = layer(features)
            if not self._is_whole:
                features = self._activation(features)
        return features.flatten(1)


class GridEncoder(nn.Module):
    """Reads small grids of symbols: the symbols of a cell are embedded and summed, and two convolutions read the cells.

    ``space`` is a Box of 3 axes whose last or, unless ``is_hwc``, first one lists the symbols of a cell. Symbols from
    ``SYMBOLS`` on share one embedding; a linear layer tells them apart, so that pictures are read as well.
    """

    _first: torch.Tensor

    def __init__(
        self, space: gymnasium.Space[Any], encoder: NamedEncoder, is_hwc: bool, activation: str
    ) -> None:
        super().__init__()
        channels, *size = _chw(space.shape or (), is_hwc)
        self._is_hwc = is_hwc
        self._activation = ACTIVATIONS[activation]
        embedded, *convolved = (encoder.channels(count) for count in GRID_CHANNELS)
        self.symbols = nn.Embedding(channels * SYMBOLS, embedded)
        nn.init.normal_(self.symbols.weight, std=channels**-0.5)
        self.values = nn.Linear(channels, embedded)
        self._scale = _scale_of(space) or 1.0
        self.register_buffer('_first', torch.arange(channels) * SYMBOLS, persistent=False)
        self.layers = nn.ModuleList()
        for before, after in pairwise([embedded, *convolved]):
            kernel = min(GRID_KERNEL, *size)
            self.layers.append(nn.Conv2d(before, after, kernel))
            size = [length - kernel + 1 for length in size]
        self.size = convolved[-1] * size[0] * size[1]

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        cells = obs if self._is_hwc else obs.movedim(1, -1)
        symbols = cells.long().clamp_(0, SYMBOLS - 1) + self._first
        features = self.symbols(symbols).sum(-2) + self.values(cells * self._scale)
        features = features.movedim(-1, 1)
        for layer in self.layers:
            features = self._activation(layer(features))
        return features.flatten(1)


class Text(nn.Module):
    """Reads a vector of bytes as a text: each letter at each place is embedded, and their sum goes through an activation.

    Letters are told apart by their last bits, so that those of either case are the same one.
    """

    _first: torch.Tensor

    def __init__(self, space: gymnasium.Space[Any], encoder: NamedEncoder, activation: str) -> None:
        super().__init__()
        length = int(np.prod(space.shape or (1,)))
        self.size = encoder.channels(TEXT_SIZE)
        self._activation = ACTIVATIONS[activation]
        self.letters = nn.Embedding(length * LETTERS, self.size)
        nn.init.normal_(self.letters.weight, std=length**-0.5)
        self.register_buffer('_first', torch.arange(length) * LETTERS, persistent=False)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        letters = (obs.flatten(1).long() & (LETTERS - 1)) + self._first
        return self._activation(self.letters(letters).sum(1))


class Fields(nn.Module):
    """Reads each part of a Dict or Tuple and puts the vectors side by side."""

    def __init__(self, readers: Mapping[str, Reader]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(reader for reader in readers.values() if isinstance(reader, nn.Module))
        """The readers that have parameters or buffers."""
        self._readers = list(readers.items())
        self.size = sum(reader.size for reader in readers.values())

    def forward(self, obs: dict[str, Any]) -> torch.Tensor:
        vectors = [reader(obs[name]) for name, reader in self._readers]
        return vectors[0] if len(vectors) == 1 else torch.cat(vectors, 1)


def make_reader(
    space: gymnasium.Space[Any],
    activation: str,
    conv_layers: ConvLayers | None = None,
    image_layout: str = 'auto',
) -> Reader:
    """Returns the encoder for the observations of a space; action masks in it are left out.

    ``conv_layers`` are channels, kernel size and stride of each convolution, or the name of an encoder; ``[]`` reads images
    as vectors, None means ``NATURE_LAYERS``, or ``SMALL_LAYERS`` for small images. ``image_layout`` is ``'hwc'`` or
    ``'chw'``, or ``'auto'``: channels are the smaller one of the first and the last axis.

    Raises:
        IncompatibleError: If ``conv_layers`` are given and there is no image or it is too small, or if ``image_layout``
            confuses the channels of an image with one of its sides.
    """
    if conv_layers and not any(True for _ in image_parts(space)):
        named = isinstance(conv_layers, NamedEncoder)
        raise IncompatibleError(
            f'convolutions need an image, and the observation space is {space!r}',
            where=f'policy.model.{"encoder" if named else "conv_layers"}',
            got=conv_layers.name
            if isinstance(conv_layers, NamedEncoder)
            else [list(each) for each in conv_layers],
            expected=f'{"auto" if named else None!r}, or a Box of shape [height, width, channels] or [channels, height, width],'
            ' with a stack of frames as a further axis before them',
        )

    def read(part: gymnasium.Space[Any], path: str) -> Reader:
        if parts := fields_of(part):
            hidden = ACTION_MASK if path == 'obs' else None
            return Fields({n: read(p, field_path(path, n)) for n, p in parts.items() if n != hidden})
        if isinstance(part, gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete):
            return OneHot(part)
        if isinstance(conv_layers, NamedEncoder) and conv_layers.name == 'grid':
            if len(part.shape or ()) == 3:
                return GridEncoder(part, conv_layers, is_hwc(part.shape or (), image_layout), activation)
            is_text = part.dtype == np.uint8 and len(part.shape or ()) == 1
            return Text(part, conv_layers, activation) if is_text else Flatten(part)
        if any(True for _ in image_parts(part)):
            hwc = is_hwc(part.shape or (), image_layout)
            layers = _default_layers(part.shape or (), hwc) if conv_layers is None else conv_layers
            if layers or conv_layers is None:
                _check_layout(part.shape or (), hwc, path)
            if layers and image_layout == 'auto':
                _warn_of_layout((part.shape or ())[-3:], hwc, path)
            return ImageEncoder(part, layers, hwc, activation, path) if layers else Flatten(part)
        return Flatten(part)

    return read(space, 'obs')


def _scale_of(space: Any) -> float | None:
    """Returns the factor that maps whole numbers to [-1, 1]; None for others, and for those without stated bounds."""
    if np.dtype(space.dtype).kind not in 'iu':
        return None
    bound = max(abs(int(space.low.min())), abs(int(space.high.max())), 1)
    return 1 / bound if bound < np.iinfo(space.dtype).max or space.dtype.itemsize <= 2 else None


def _check_layout(shape: tuple[int, ...], hwc: bool, path: str) -> None:
    """Checks that the layout does not read the channels of an image as height or width.

    Raises:
        IncompatibleError: If the image would be a few pixels high or wide with more channels than that, but not in the
            other layout.
    """
    if hwc == is_hwc(shape, 'auto') or shape[-3] == shape[-1]:  # either can be meant
        return
    channels, height, width = _chw(shape[-3:], hwc)
    if height == width or min(height, width) > MOST_CHANNELS or channels <= MOST_CHANNELS:
        return
    raise IncompatibleError(
        f'{path} of shape {list(shape)} would be read as {channels} channels of {height}x{width}',
        where='policy.model.image_layout',
        got='hwc' if hwc else 'chw',
        expected=f"'{'chw' if hwc else 'hwc'}' or 'auto'",
    )


@cache
def _warn_of_layout(shape: tuple[int, ...], hwc: bool, path: str) -> None:
    """Warns once in a process if the axis that is taken for the channels is as long as a side of the image."""
    (channels, *size), (others, *other_size) = _chw(shape, hwc), _chw(shape, not hwc)
    if channels < min(size):
        return
    logger.warning(
        '%s of shape %s is read as %d channels of %dx%d; %d channels of %dx%d: policy.model.image_layout=%r. Set it, to %r as it is'
        ' read now, to end this warning.',
        *(path, list(shape), channels, *size, others, *other_size),
        *(('chw', 'hwc') if hwc else ('hwc', 'chw')),
    )


def _chw(shape: tuple[int, ...], hwc: bool) -> tuple[int, int, int]:
    """Returns channels of all frames together, height and width of an image."""
    first, second, third = shape[-3:]
    channels, height, width = (third, first, second) if hwc else (first, second, third)
    return channels * (shape[0] if len(shape) == 4 else 1), height, width


def _default_layers(shape: tuple[int, ...], hwc: bool) -> Sequence[Sequence[int]]:
    least = min(_chw(shape, hwc)[1:])
    if least < SMALL_LAYERS[0][1]:
        return ()
    return NATURE_LAYERS if least >= NATURE_SIZE else SMALL_LAYERS
