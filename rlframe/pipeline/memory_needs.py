"""The memory that an experiment will need, and whether what its replay buffer keeps fits the observations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rlframe.data.observation import obs_dtype
from rlframe.data.timestep import EnvSpec
from rlframe.errors import ConfigError
from rlframe.registry import POLICY_REGISTRY
from rlframe.run.machine import available_memory, demand_memory
from rlframe.worker.replay_buffer.stores.frames import is_stack, slots_of

if TYPE_CHECKING:
    from rlframe.config.sections import ExperimentConfig

KEY = 'policy.other.replay_buffer'
COPIES_OF_WEIGHTS = 4
"""A network in training: weights, their gradients, and the two moments of Adam."""


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


def buffer_nbytes(cfg: ExperimentConfig, spec: EnvSpec) -> int:
    """Estimates the size of the replay buffer in bytes; 0 if there is none, or its size is not an option."""
    section = cfg.policy.other.replay_buffer
    size = int(0 if section is None else section.get('replay_buffer_size', 0))
    state = POLICY_REGISTRY.get(cfg.policy.type).state_nbytes(cfg.policy)
    stack = _shared_frames(cfg, spec)
    frames = slots_of(size) * math.prod(spec.observation_space.shape[1:]) if stack > 1 else 0  # type: ignore[index]  # it is a stack of images
    return (row_nbytes(spec, stack) + state) * size + frames


def check_network_memory(cfg: ExperimentConfig, spec: EnvSpec) -> None:
    """Refuses a network that cannot be trained in this machine's free memory; custom networks are not looked at.

    Raises:
        ResourceError: With the estimated and the free memory.
    """
    from rlframe.pipeline.network_check import blank_network

    network = blank_network(cfg.policy, spec)
    weights = () if network is None else network.parameters()
    nbytes = sum(weight.numel() * weight.element_size() for weight in weights)
    demand_memory(COPIES_OF_WEIGHTS * nbytes, 'the network in training', 'policy.model')


def check_memory(cfg: ExperimentConfig, spec: EnvSpec) -> None:
    """Refuses data that this machine's free memory cannot hold, and a replay buffer whose frames are not images.

    The data of a round, the replay buffer and a batch of sequences are looked at one by one.

    Raises:
        ConfigError: If frames are to be kept once, and observations are no stacks of images.
        ResourceError: With the estimated and the free memory.
    """
    check_frames(cfg, spec)
    section, row = cfg.policy.other.replay_buffer, row_nbytes(spec)
    samples = cfg.policy.collect.get('n_sample') or 0
    demand_memory(samples * row, 'the data of a round', 'policy.collect.n_sample', _fitting(row, 'samples'))
    if section is None:
        return
    needed, size = buffer_nbytes(cfg, spec), int(section.get('replay_buffer_size', 0))
    if needed:
        demand_memory(
            needed,
            'the replay buffer',
            f'{KEY}.replay_buffer_size',
            _fitting(needed / size, 'transitions'),
        )
    steps = section.get('burn_in', 0) + section.get('unroll_len', 1)
    batch = cfg.policy.learn.get('batch_size') or 0
    if steps > 1:
        demand_memory(
            batch * steps * row,
            f'a batch of {batch} sequences of {steps:,} steps',
            f'{KEY}.unroll_len',
            _fitting(batch * row, 'steps'),
        )


def _fitting(nbytes: float, what: str) -> str:
    return f'At most {int(available_memory() // nbytes)} {what} fit.'


def check_frames(cfg: ExperimentConfig, spec: EnvSpec) -> None:
    """Refuses to keep frames once where observations are no stacks of images.

    Raises:
        ConfigError: With the observations, and what fits them.
    """
    section = cfg.policy.other.replay_buffer
    if section is None or section.get('frames') != 'once' or _shared_frames(cfg, spec) > 1:
        return
    stack = cfg.env.get('frame_stack', 1)
    if stack == 1:
        raise ConfigError(
            'frames can be shared only by stacks of them, and env.frame_stack is 1',
            where=f'{KEY}.frames',
            got='once',
            expected="'auto', or env.frame_stack >= 2",
        )
    dtype, shape = obs_dtype(spec.observation_space)
    raise ConfigError(
        f'frames are uint8 images [{stack}, height, width, ...], and observations of {spec.name} are {dtype}{list(shape)}',
        where=f'{KEY}.frames',
        got='once',
        expected="'auto' or 'copied'",
    )


def _shared_frames(cfg: ExperimentConfig, spec: EnvSpec) -> int:
    """Returns how many frames are in a stack whose frames are kept once; 1 if there is no such stack."""
    section, stack = cfg.policy.other.replay_buffer, int(cfg.env.get('frame_stack', 1))
    if section is None or section.get('frames', 'copied') == 'copied' or stack < 2:
        return 1
    dtype, shape = obs_dtype(spec.observation_space)
    return stack if is_stack(dtype, shape, stack) else 1
