"""Options that policies share: schedules, sizes, initial weights, and the encoding of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any, Literal, TypeAlias

from rlframe.errors import ConfigError
from rlframe.utils.field import Field, Section, option

Schedule: TypeAlias = float | dict[str, Any]
"""Type of an option that is a number or a schedule."""
Activation: TypeAlias = Literal['relu', 'tanh', 'gelu', 'silu', 'elu']
"""Nonlinearities behind hidden layers."""


def linear_decay(step: float, start: float, end: float, decay: float) -> float:
    """Linear schedule from ``start`` to ``end``, which it reaches at ``decay`` env steps and keeps."""
    return start + (end - start) * min(step / decay, 1.0)


def exp_decay(step: float, start: float, end: float, decay: float) -> float:
    """Approaches ``end`` exponentially: after ``decay`` env steps 1/e of the distance is left."""
    return end + (start - end) * math.exp(-step / decay)


def cosine_decay(step: float, start: float, end: float, decay: float) -> float:
    """Goes from ``start`` to ``end`` along half a cosine, reaching it at ``decay`` env steps.

    Source:
        Loshchilov & Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts (2017), eq. 5.
    """
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(step / decay, 1.0)))


SCHEDULES: dict[str, Callable[..., float]] = {
    'linear': linear_decay,
    'exp': exp_decay,
    'cosine': cosine_decay,
}
"""The values of ``type``."""


def check_schedule(value: Any) -> str:
    """Returns a description of valid schedules if a value is invalid, else an empty string."""
    form = f'a number, or dict(type={"|".join(SCHEDULES)}, start=, end=, decay= (env steps, > 0))'
    if isinstance(value, int | float):
        return '' if math.isfinite(value) else form
    numbers = [value.get(name) for name in ('start', 'end', 'decay')]
    fine = (
        set(value) <= {'type', 'start', 'end', 'decay'}
        and value.get('type', 'linear') in [*SCHEDULES]  # which takes any value
        and all(isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) for n in numbers)
        and value['decay'] > 0
    )
    return '' if fine else form


def check_positive_schedule(value: Any) -> str:
    """Like ``check_schedule`` for a value that may never be 0 or less at its start."""
    if expected := check_schedule(value):
        return expected
    start = value if isinstance(value, int | float) else value['start']
    return '' if start > 0 else 'a number > 0, or a schedule of one'


def constant(step: float, value: float) -> float:
    """The schedule of an option that is a number."""
    return value


def schedule_of(value: float | Mapping[str, Any]) -> Callable[[float], float]:
    """Returns the value of an option as a function of the env steps so far."""
    if isinstance(value, int | float):
        return partial(constant, value=float(value))
    decay = SCHEDULES[value.get('type', 'linear')]
    return partial(decay, start=value['start'], end=value['end'], decay=value['decay'])


BATCH_SIZE = Field(
    64, range='[1, inf)', unit='transitions', doc='size of the batch of one update', may_change=True
)
DISCOUNT_FACTOR = Field(0.99, range='[0, 1]', unit='per env step', doc='weight of the next reward')
EPOCH_PER_COLLECT = Field(
    4, range='[1, inf)', unit='epochs', doc='passes over the data of one round', may_change=True
)
UPDATE_PER_COLLECT = Field(
    3, range='[1, inf)', unit='train iterations', doc='updates per round of collection', may_change=True
)


NOISE_SIGMA = Field(
    0.1,
    type=(float, dict),
    range='[0, inf)',
    unit='half the range of an action',
    doc='standard deviation of exploration noise; a schedule over env steps',
    check=check_schedule,
    may_change=True,
)


def grad_clip_norm(of: str = 'the gradient', default: float | None = None) -> Field:
    """Returns the option for the largest norm of a gradient."""
    return Field(
        default,
        type=(float, type(None)),
        range='(0, inf)',
        doc=f'largest norm of {of}; None: unlimited',
        may_change=True,
    )


def learning_rate(default: float, of: str = 'the optimizer', over: str = 'env steps') -> Field:
    """Returns the option for a learning rate. ``of`` names its owner, ``over`` the unit of a schedule."""
    return Field(
        default,
        type=(float, dict),
        doc=f'of {of}; a schedule over {over}',
        check=check_positive_schedule,
        may_change=True,
    )


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


def _without_a_name(policy: type[Any], cfg: Any) -> ConfigError | None:
    """Refuses convolutions beside those of a named encoder."""
    if (name := cfg.model.get('encoder', 'auto')) == 'auto':
        return None
    message = f'the encoder {name!r} has its own convolutions'
    return ConfigError(message, expected="None, or encoder='auto'")


def _with_a_name(policy: type[Any], cfg: Any) -> ConfigError | None:
    """Refuses a width of an encoder that has no name."""
    if cfg.model.encoder != 'auto':
        return None
    return ConfigError('the width is a factor of a named encoder', expected="1.0, or encoder='nature'")


HIDDEN_SIZES = Field([64, 64], unit='units', doc='widths of the hidden layers', check=check_widths)


class ModelConfig(Section):
    """Section ``model`` of every policy."""

    type: str | None = option(None, doc="registered model; None: the policy's own", reaches='code')
    import_names: list[str] = option([], doc='modules that register it', reaches='code')
    obs_shape: int | list[int] | tuple[int, ...] | None = option(
        None, doc='shape of an observation; None: read from the env'
    )
    action_shape: int | list[int] | tuple[int, ...] | None = option(
        None, doc='number of actions; None: read from the env'
    )


class ImageModel(ModelConfig):
    """Section ``model`` of a policy whose network has hidden layers, and convolutions for images."""

    encoder_hidden_size_list: list[int] = option(HIDDEN_SIZES)
    activation: Activation = option('relu', doc='nonlinearity')
    encoder: Literal['auto', 'nature', 'impala', 'grid', 'hadamax'] = option(
        'auto',
        doc="convolutions that read images, by name, instead of conv_layers: 'nature' (Mnih et al. 2015), 'impala' residual (Espeholt"
        " et al. 2018, fig. 3), 'hadamax' max-pooled products (Kooi et al. 2025), 'grid' for small grids of symbols, which are"
        " embedded, and for texts beside them; 'auto': as conv_layers says",
    )
    encoder_width: float = option(
        1.0, range='(0, 16]', doc='factor of the channels of a named encoder', rule=_with_a_name
    )
    conv_layers: list[Any] | None = option(
        None,
        unit='[channels, kernel size, stride]',
        doc=(
            'convolutions that read images; [] reads them as vectors, None: [[32, 8, 4], [64, 4, 2], [64, 3, 1]] from 36 x 36'
            ' pixels on, [[16, 3, 1]] below'
        ),
        check=check_conv_layers,
        rule=_without_a_name,
    )
    image_layout: Literal['auto', 'hwc', 'chw'] = option(
        'auto',
        doc="place of the channels of images: 'hwc', 'chw' or 'auto', the smaller one of the first and the last axis",
    )


def without_core(reason: str) -> Callable[[Any], list[ConfigError]]:
    """Returns a check that refuses a recurrent core."""
    return lambda cfg: [] if cfg.model.core is None else [refused(cfg, 'model.core', reason, 'None')]


def refused(cfg: Mapping[str, Any], where: str, message: str, expected: str) -> ConfigError:
    """Returns the error about the value of an option.

    ``where`` is the dotted path of the option in ``cfg``, ``expected`` says which values would do.
    """
    got = reduce(lambda section, key: section[key], where.split('.'), cfg)
    return ConfigError(message, where=where, got=got, expected=expected)
