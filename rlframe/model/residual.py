"""Convolutional encoders by name: Nature's, and the residual network of IMPALA."""

from __future__ import annotations

import torch
from torch import nn

from rlframe.data.images import NamedEncoder

NATURE_LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel size and stride. Source: Mnih et al. (2015), Methods."""
IMPALA_CHANNELS = (16, 32, 32)
"""Channels of each section. Source: Espeholt et al. (2018), figure 3, right."""


def nature_layers(encoder: NamedEncoder) -> list[tuple[int, int, int]]:
    """Returns the convolutions of Nature's encoder."""
    return [(encoder.channels(out), kernel, stride) for out, kernel, stride in NATURE_LAYERS]


class ResidualBlock(nn.Module):
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
        self.blocks = nn.Sequential(ResidualBlock(channels), ResidualBlock(channels))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Maps [B, C, H, W] to [B, channels, ceil(H / 2), ceil(W / 2)]."""
        features = nn.functional.max_pool2d(self.conv(features), 3, 2, padding=1)
        output: torch.Tensor = self.blocks(features)
        return output


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
        super().__init__(
            *(ResidualSection(before, after) for before, after in zip(ins, channels, strict=False))
        )
        size = list(image[1:])
        for _ in channels:
            size = [(length + 1) // 2 for length in size]
        self.size = channels[-1] * size[0] * size[1]
        """Length of the flat output."""
