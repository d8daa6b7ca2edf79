"""Accepts the arguments of RayCollector in the forms that users of TorchRL write."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.backend.ray.constructor.lists import per_actor
from rlframe.data.timestep import Array
from rlframe.errors import ConfigError
from rlframe.registry import SERIAL_COLLECTOR_REGISTRY
from rlframe.utils.lazy import LazyModule
from rlframe.worker.collector.base_serial_collector import SerialCollector

gymnasium = LazyModule('gymnasium')

FORM = 'a policy of rlframe, a module, a function of observations, or None'
"""Forms of a policy."""
OF_TENSORDICTS = (
    'A module or function gets observations [n, ...] and returns actions [n, ...], without a tensordict: of a policy that'
    ' takes one, pass the network in it (policy.module of a TensorDictModule), or a function around it.'
)
"""Remedy for policies in the form of TorchRL."""
DEVICES = ('device', 'storing_device', 'env_device', 'policy_device')
EXPLORATION = {
    'random': 'random',
    'deterministic': 'deterministic',
    'mode': 'deterministic',
    'mean': 'deterministic',
    'median': 'deterministic',
}
"""TorchRL's exploration types, and rlframe's names for them."""


def collector_of(given: Any) -> tuple[str, Any]:
    """Returns the name and the class of the collector in an actor.

    Args:
        given: A registered type, a class of collectors, or what TorchRL takes: ``'single'``, ``'sync'``, ``'async'`` and
            its classes, which say how one actor steps its envs and which all mean ``'sample'``.

    Raises:
        ConfigError: If it is another object.
    """
    if isinstance(given, str):
        is_torchrl = given in ('single', 'sync', 'async') and given not in SERIAL_COLLECTOR_REGISTRY
        name = 'sample' if is_torchrl else given
        return name, SERIAL_COLLECTOR_REGISTRY.get(name)
    if isinstance(given, type) and given.__module__.partition('.')[0] == 'torchrl':
        return collector_of('sync')
    if not isinstance(given, type) or not issubclass(given, SerialCollector):
        raise ConfigError(
            'this is no collector that steps envs',
            where='collector_class',
            got=given,
            expected=f"a subclass of SerialCollector, 'single', 'sync', 'async' or one of {SERIAL_COLLECTOR_REGISTRY.names()}",
        )
    return given.__name__, given


def exploration_of(given: Any) -> str | None:
    """Returns 'random', 'deterministic' or None for a name in any case, or a member of an enum of such names.

    Raises:
        ConfigError: If there is no such name.
    """
    name = getattr(given, 'name', given)
    known = EXPLORATION.get(name.lower()) if isinstance(name, str) else None
    if name is not None and known is None:
        raise ConfigError(
            'bad value', where='exploration_type', got=given, expected=f'None or one of {list(EXPLORATION)}'
        )
    return known


class EnvCopies:
    """Creates copies of an env.

    Args:
        env: The original env; it is never stepped.
    """

    def __init__(self, env: Any) -> None:
        self._env = env

    def __call__(self) -> Any:
        """Returns another copy."""
        return copy.deepcopy(self._env)


def env_makers(given: Any) -> Any:
    """Returns env factories, with a factory of copies in place of each env instance.

    Args:
        given: A Gymnasium id, a class, a function or an env; or a list of such.
    """
    if isinstance(given, list | tuple):
        return [env_makers(one) for one in given]
    return EnvCopies(given) if isinstance(given, gymnasium.Env) else given


def without_devices(
    collector_kwargs: Any, count: int, devices: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Moves devices from ``collector_kwargs`` to the arguments of the same names, which they override.

    Args:
        collector_kwargs: Options of the collectors in the actors: a dict for all, or a list.
        count: Number of actors.
        devices: What was given for each of ``DEVICES``.

    Returns:
        The options of each collector, and the devices.
    """
    options = [dict(each) for each in per_actor(collector_kwargs or {}, count, 'collector_kwargs')]
    taken = {}
    for name in DEVICES:
        own = [each.pop(name, None) for each in options]
        given = per_actor(devices[name], count, name)
        merged = [mine if mine is not None else other for mine, other in zip(own, given, strict=True)]
        if not any(own):
            taken[name] = devices[name]
        else:
            is_one = all(device == merged[0] for device in merged)
            taken[name] = merged[0] if is_one else merged
    return options, taken


def within_bounds(action: Array, space: Any) -> Array:
    """Clips the actions of a network to the bounds of a ``Box``.

    Args:
        action: [n, ...].
        space: Space of one action.
    """
    if isinstance(space, gymnasium.spaces.Box):
        clipped = np.clip(action, space.low, space.high)
        return (np.rint(clipped) if space.dtype.kind != 'f' else clipped).astype(space.dtype, copy=False)
    return action
