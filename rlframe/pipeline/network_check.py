"""Compares the network that a file describes with its weights, before allocating memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlframe.checkpoint import compare_states
from rlframe.data.observation import has_mask
from rlframe.data.timestep import EnvSpec
from rlframe.errors import CheckpointMismatchError, ResourceError
from rlframe.policy.base_policy import Policy
from rlframe.registry import MODEL_REGISTRY, POLICY_REGISTRY
from rlframe.safety.limits import LimitExceededError, check_limit
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    from torch import nn

torch = LazyModule('torch')


def check_network(cfg: Mapping[str, Any], spec: EnvSpec, saved: Any) -> None:
    """Checks that saved weights fit the network of the config that they were saved with.

    The network is built on torch's meta device, where tensors have shapes but no memory. Custom policies and networks
    are not checked, as their constructors may do anything.

    Args:
        cfg: The ``policy`` section of a config.
        spec: Spaces of the env.
        saved: The saved weights by name.

    Raises:
        CheckpointMismatchError: If they do not fit; the layers that differ are named.
    """
    try:
        network = blank_network(cfg, spec) if isinstance(saved, Mapping) else None
    except ResourceError as error:
        raise CheckpointMismatchError(error.message, where=error.where, remedy=error.remedy) from error
    if network is None:
        return
    here = network.state_dict()
    if differing := compare_states(saved, here, 'model.'):
        raise CheckpointMismatchError(
            'the weights belong to another network: ' + '; '.join(differing), where='policy.model'
        )


def blank_network(cfg: Mapping[str, Any], spec: EnvSpec) -> nn.Module | None:
    """Creates the network of a config on torch's meta device; None if the policy or the network is custom.

    Args:
        cfg: The ``policy`` section of a config.
        spec: Spaces of the env.

    Raises:
        ResourceError: If there cannot be such a network, or it is too large.
    """
    cls = POLICY_REGISTRY.get_cls(cfg)
    if not cls.__module__.startswith('rlframe.'):
        return None
    twin = _without_network(cls, cfg, spec)
    options = twin._cfg.model
    kind = MODEL_REGISTRY.get_cls({**options, 'type': options.type or twin.default_model()})
    if not kind.__module__.startswith('rlframe.'):
        return None
    cls.check_spec(spec, twin._cfg)
    try:
        sizes = list(_sizes(dict(options)))
        check_limit('NETWORK_OPTIONS', len(sizes), 'numbers in the network options')
        check_limit('NETWORK_WIDTH', max(sizes, default=0), 'size of a layer')
        with torch.random.fork_rng(devices=[]), torch.device('meta'):
            return twin._create_model()
    except LimitExceededError as error:
        raise ResourceError(
            f'the network is too large: {error}', where='policy.model', remedy=error.remedy
        ) from error
    except RuntimeError as error:  # a size that no tensor can have
        raise ResourceError(f'no such network: {error}', where='policy.model') from error


def _without_network(cls: type[Policy], cfg: Mapping[str, Any], spec: EnvSpec) -> Policy:
    """Returns a policy with only the attributes that creating its network needs."""
    twin = cls.__new__(cls)
    twin._cfg, twin._spec, twin._has_mask = cls.resolve_config(cfg), spec, has_mask(spec.observation_space)
    twin._device, twin._on_cpu = torch.device('meta'), False
    return twin


def _sizes(value: Any) -> Iterator[int]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _sizes(item)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value
