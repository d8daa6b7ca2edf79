"""Whether the network and the replay buffer of a config fit into memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.observation import obs_dtype
from rlframe.data.staging import existing_device, numbered
from rlframe.data.timestep import EnvSpec
from rlframe.errors import ConfigError, ResourceError
from rlframe.policy.base_policy import Policy
from rlframe.policy.parts.network import chosen_network
from rlframe.registry import BACKEND_REGISTRY, MODEL_REGISTRY, POLICY_REGISTRY
from rlframe.run.machine import available_memory, demand_memory
from rlframe.utils.files import LimitExceededError, check_limit
from rlframe.utils.lazy import LazyModule
from rlframe.worker.replay_buffer.frames import is_stack, slots_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rlframe.config.schema import ExperimentConfig
else:
    torch = LazyModule('torch')

KEY = 'policy.other.replay_buffer'


def blank_network(cfg: Mapping[str, Any], spec: EnvSpec) -> nn.Module | None:
    """Creates the network of a config on torch's meta device, where tensors have shapes but no memory.

    The constructors of custom policies and networks may do anything, so for these the result is None.

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
    kind = MODEL_REGISTRY.get_cls(chosen_network(twin))
    if not kind.__module__.startswith('rlframe.'):
        return None
    cls.check_spec(spec, twin._cfg)
    try:
        sizes = list(_sizes(dict(options)))
        check_limit('NETWORK_OPTIONS', len(sizes), 'numbers in the network options')
        check_limit('NETWORK_WIDTH', max(sizes, default=0), 'size of a layer')
        with torch.random.fork_rng(devices=[]), torch.device('meta'):
            network = twin.create_model()
    except LimitExceededError as error:
        raise ResourceError(
            f'the network is too large: {error}', where='policy.model', remedy=error.remedy
        ) from error
    except RuntimeError as error:  # a size that no tensor can have
        raise ResourceError(f'no such network: {error}', where='policy.model') from error
    nbytes = sum(weight.numel() * weight.element_size() for weight in network.parameters())
    demand_memory(nbytes, 'the network', 'policy.model')
    return network


def _without_network(cls: type[Policy], cfg: Mapping[str, Any], spec: EnvSpec) -> Policy:
    """Returns a policy with only the attributes that creating its network needs."""
    twin = cls.__new__(cls)
    twin.set_options(cfg, spec)
    twin.device = torch.device('meta')
    twin._on_cpu = False
    return twin


def _sizes(value: Any) -> Iterator[int]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _sizes(item)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def row_nbytes(spec: EnvSpec, frame_stack: int = 1) -> int:
    """Estimates the bytes of a stored transition: two observations, action, reward, two flags and ``collect_iter``.

    Args:
        spec: Its spaces.
        frame_stack: Above 1, observations are the numbers of so many frames, which are stored elsewhere.
    """
    action = spec.action_space
    dtype, shape = obs_dtype(spec.observation_space)
    size = 8 * frame_stack if frame_stack > 1 else math.prod(shape) * dtype.itemsize
    if hasattr(action, 'start') and hasattr(action, 'n'):
        action_size = np.min_scalar_type(int(action.n) - 1).itemsize
    else:
        action_size = int(np.prod(action.shape or (1,))) * np.dtype(action.dtype).itemsize
    return 2 * size + action_size + 4 + 2 + 4


def buffer_nbytes(section: Mapping[str, Any], spec: EnvSpec) -> int:
    """Estimates the size of the replay buffer of a section in bytes; 0 if its size is not an option."""
    size: int = section.get('replay_buffer_size', 0)
    return row_nbytes(spec, _shared_frames(section, spec)) * size + _frames_nbytes(section, spec)


def _frames_nbytes(section: Mapping[str, Any], spec: EnvSpec) -> int:
    """Estimates the size of frames that are kept once, in bytes."""
    if _shared_frames(section, spec) == 1:
        return 0
    size = section.get('replay_buffer_size', 0)
    return slots_of(size) * math.prod(spec.observation_space.shape[1:])  # type: ignore[index]  # it is a stack of images


def check_memory(cfg: ExperimentConfig, spec: EnvSpec, policy: Policy | None = None) -> None:
    """Refuses a replay buffer that main memory cannot hold, whose frames are not images, or that is on another device.

    What a device or another machine cannot hold is refused when the first rows are pushed.

    Args:
        cfg: The config.
        spec: Spaces of its env.
        policy: The one that learns in this process; None: devices are not looked at.

    Raises:
        ConfigError: If frames are to be kept once, and observations are no stacks of images; or if the replay buffer is on
            another device than the policy.
        DeviceError: If the device of the replay buffer does not exist.
        ResourceError: With the estimated and the free memory.
    """
    section = cfg.policy.other.replay_buffer
    if section is None:
        return
    check_frames(section, spec)
    backend = {'type': section.get('backend', 'local'), 'import_names': section.get('import_names')}
    if not BACKEND_REGISTRY.get_cls(backend).keeps_here(section):
        return
    name = section.get('device', 'cpu')
    needed = buffer_nbytes(section, spec)
    if policy is not None and name != 'cpu':
        _check_device(name, policy)
    if needed and (name == 'cpu' or _frames_nbytes(section, spec)):
        fitting = int(min(available_memory() / needed, 1.0) * section['replay_buffer_size'])
        remedy = f'At most {fitting} transitions fit.'
        demand_memory(needed, 'the replay buffer', f'{KEY}.replay_buffer_size', remedy)


def _check_device(name: str, policy: Policy) -> None:
    """Checks the device of a replay buffer.

    Raises:
        ConfigError: If the policy is on another device.
        DeviceError: If it does not exist.
    """
    key = f'{KEY}.device'
    device = existing_device(name, key, f"{key}='cpu' keeps the replay buffer in main memory.")
    of_policy = policy.get_attribute('device')
    if numbered(device) != numbered(of_policy):
        raise ConfigError(
            f'the policy learns on {of_policy} (policy.device), and batches have to be there',
            where=key,
            got=name,
            expected=f"'{of_policy}'" if of_policy.type == 'cpu' else f"'{of_policy}' or 'cpu'",
        )


def check_frames(section: Mapping[str, Any], spec: EnvSpec) -> None:
    """Refuses to keep frames once where observations are no stacks of images.

    Raises:
        ConfigError: With the observations, and what fits them.
    """
    if section.get('frames') != 'once' or _shared_frames(section, spec) > 1:
        return
    dtype, shape = obs_dtype(spec.observation_space)
    raise ConfigError(
        f'frames are uint8 images, and with env.frame_stack={section.get("frame_stack", 1)} observations of {spec.name} are'
        f' {dtype}{list(shape)}',
        where=f'{KEY}.frames',
        got='once',
        expected="'auto' or 'copied', or stacks of images (env.frame_stack >= 2)",
    )


def _shared_frames(section: Mapping[str, Any], spec: EnvSpec) -> int:
    """Returns how many frames are in a stack whose frames are kept once; 1 if there is no such stack."""
    stack = int(section.get('frame_stack', 1))
    if section.get('frames', 'copied') == 'copied' or stack < 2:
        return 1
    dtype, shape = obs_dtype(spec.observation_space)
    return stack if is_stack(dtype, shape, stack) else 1
