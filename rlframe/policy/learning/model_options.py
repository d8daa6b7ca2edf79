"""Options that all policies share: initial weights, and the encoding of images."""

from __future__ import annotations

from typing import Any

from rlframe.utils.field import Field


def check_widths(value: Any) -> str:
    """Says which layer widths are valid if ``value`` is not; else returns an empty string."""
    is_good = all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in value)
    return '' if is_good else 'a list of ints > 0'


def check_conv_layers(value: Any) -> str:
    """Says which convolutions are valid if ``value`` is not; else returns an empty string."""
    is_good = all(
        isinstance(layer, list | tuple)
        and len(layer) == 3
        and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in layer)
        for layer in value
    )
    return '' if is_good else 'a list of [channels, kernel size, stride], whole numbers above 0'


ACTIVATION = Field('relu', doc='nonlinearity', choices=('relu', 'tanh', 'gelu', 'silu'))
HIDDEN_SIZES = Field([64, 64], unit='units', doc='widths of the hidden layers', check=check_widths)
INIT_FROM = Field(
    None,
    type=str,
    doc='checkpoint or run folder to take the initial weights from',
    may_change=True,
    reaches='file',
)
"""The option ``init_from`` of a policy."""

IMAGE_OPTIONS: dict[str, Any] = dict(
    conv_layers=Field(
        None,
        type=list,
        unit='[channels, kernel size, stride]',
        doc=(
            'convolutions that read images; [] reads them as vectors, None: [[32, 8, 4], [64, 4, 2], [64, 3, 1]] from 36 x 36'
            ' pixels on, [[16, 3, 1]] below'
        ),
        check=check_conv_layers,
    ),
    image_layout=Field(
        'auto',
        doc="where the channels of images are: 'hwc', 'chw' or 'auto', the smaller one of the first and the last axis",
        choices=('auto', 'hwc', 'chw'),
    ),
)
"""Options of the image encoder."""
