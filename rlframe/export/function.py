"""The policy as one function of tensors, from an observation to an action, for formats that know no rlframe."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from rlframe.data.observation import BAD_OBS, MASK_PATH, bounds_of, check_mask_values, pack_into, plain_parts
from rlframe.data.timestep import Array, BoolArray, EnvSpec, is_finite
from rlframe.errors import IncompatibleError, NonFiniteError, ObservationError
from rlframe.model.core import MLP
from rlframe.policy import Policy
from rlframe.policy.parts.actions import float_bounds
from rlframe.policy.parts.normalize import OBS_CLIP
from rlframe.utils.serialize import field_path, leaves, struct_dtype

Kind = tuple[np.dtype[Any], tuple[int, ...]]
"""Type and shape of one observation as an array."""
OBSERVATIONS = ('Box', 'Discrete')
"""Kinds of observation spaces that are one tensor."""


def to_rows(obs: Any, kind: Kind) -> tuple[Array, bool]:
    """Packs the observation of an env, or a vector env.

    ``obs`` is one, or n of them: with a leading axis (in each part, if it has parts), or as a list. ``kind`` describes an
    observation as an array.

    Returns:
        Rows [n, ...], and whether it was a single observation, n = 1.

    Raises:
        ObservationError: If it has another structure, shape or type; the part is named.
        NonFiniteError: If it contains a NaN or an infinity.
    """
    dtype, shape = kind
    if dtype.names is not None and isinstance(obs, list):
        return np.concatenate([np.zeros((0, *shape), dtype), *(to_rows(one, kind)[0] for one in obs)]), False
    try:
        first, axes = _first_part(obs, dtype, shape)
    except BAD_OBS:
        first = np.zeros(())  # _fill names the part
        axes = 0
    is_one = first.ndim <= axes
    rows = np.zeros((1 if is_one else len(first), *shape), dtype)
    _fill(obs, rows[0, ...] if is_one else rows, 'obs', is_one)
    for path, values in leaves(rows, 'obs'):
        if not is_finite(values):
            raise NonFiniteError(f'{path}: it contains NaN or infinity: {values}')
    return rows, is_one


def _fill(obs: Any, rows: Array, path: str, is_one: bool) -> None:
    """Writes observations into an array; parts of a dict that it does not have are left out, as in training."""
    names = rows.dtype.names
    if names is None:
        try:
            if path == MASK_PATH:
                check_mask_values(obs, 'act()')
                obs = np.asarray(obs, rows.dtype)
                obs = obs.reshape(rows.shape) if obs.ndim > rows.ndim else obs  # a row for each integer
            pack_into(obs, rows)
        except BAD_OBS as error:
            got = f'{obs.dtype} of shape {obs.shape}' if isinstance(obs, np.ndarray) else type(obs).__name__
            one = rows.shape if is_one else rows.shape[1:]
            expected = f'{rows.dtype} of shape {one} for one env, with a leading axis for n envs'
            message = f"it is not of the policy's space, {error}"
            raise ObservationError(message, where=path, got=got, expected=expected) from error
        return
    is_row = isinstance(obs, tuple | list)
    if len(obs) != len(names) if is_row else not set(names) <= set(names_of(obs)):
        raise ObservationError(
            "it is not of the policy's space",
            where=path,
            got=f'{len(obs)} parts' if is_row else list(names_of(obs)) or type(obs).__name__,
            expected=f'the parts {list(names)} for one env, with a leading axis in each for n envs',
        )
    for i, name in enumerate(names):
        _fill(obs[i if is_row else name], rows[name], field_path(path, name), is_one)


def _first_part(obs: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[Array, int]:
    """Returns the first plain part of an observation, or of n of them, and the number of axes of one."""
    while names := dtype.names:
        obs = obs[0] if isinstance(obs, tuple) else obs[names[0]]
        dtype, shape = dtype[names[0]].base, dtype[names[0]].shape
    return np.asarray(obs), len(shape)


def names_of(obs: Any) -> tuple[str, ...]:
    """Returns the names of an observation's parts, if they have names."""
    if isinstance(obs, Mapping):
        return tuple(obs)
    return getattr(getattr(obs, 'dtype', None), 'names', None) or ()


class Bounds:
    """The smallest and the largest value of each number in an observation."""

    def __init__(self, space: Any) -> None:
        self._parts = [bounds_of(part) for _, part in plain_parts(space)]

    def check(self, rows: Array) -> None:
        """Checks observations [n, ...].

        Raises:
            ObservationError: If one is outside the space; the part and its first such number are named.
        """
        for (path, values), (low, high) in zip(leaves(rows, 'obs'), self._parts, strict=True):
            bad = (values < low) | (values > high)
            if bad.any():
                at = tuple(np.argwhere(bad)[0])
                low, high = (np.broadcast_to(bound, values.shape)[at] for bound in (low, high))
                raise ObservationError(
                    "it is outside the policy's space",
                    where=path,
                    got=values[at].item(),
                    expected=f'a number in [{low:g}, {high:g}]',
                    remedy='Scale observations as in training. Does the env itself exceed its bounds? Clip them.',
                )


class FrameStacks:
    """The last frames of each env's running episode, the newest last; an episode begins with its first frame only.

    ``kind`` describes a stack as an array: the first axis of each part is that of the frames. Of the parts ``unstacked``
    only the newest is seen.
    """

    def __init__(self, kind: Kind, unstacked: Collection[str] = ()) -> None:
        self._dtype, self._shape = dtype, shape = kind
        self.frame: Kind = (_frame_dtype(dtype, unstacked), shape if dtype.names else shape[1:])
        """Array type and shape of one frame."""
        self._stacks: Array
        self._is_new: BoolArray
        self.reset()

    def push(self, frames: Array) -> Array:
        """Takes the newest frames [n, ...] of n envs and returns a copy of their stacks."""
        missing = len(frames) - len(self._stacks)
        if missing > 0:
            new = np.zeros((missing, *self._stacks.shape[1:]), self._stacks.dtype)
            self._stacks = np.concatenate([self._stacks, new])
            self._is_new = np.concatenate([self._is_new, np.ones(missing, np.bool_)])
        new_rows = self._is_new[: len(frames)]
        for (_, stack), (_, frame) in zip(leaves(self._stacks[: len(frames)]), leaves(frames), strict=True):
            if stack.shape == frame.shape:
                stack[:] = frame
                continue
            stack[:, :-1] = stack[:, 1:]
            stack[:, -1] = frame
            stack[new_rows] = frame[new_rows][:, None]
        self._is_new[: len(frames)] = False
        return self._stacks[: len(frames)].copy()

    def reset(self, env_id: Array | None = None) -> None:
        """Lets the episodes of these envs, or of all, begin anew."""
        if env_id is None:
            self._stacks = np.zeros((0, *self._shape), self._dtype)
            self._is_new = np.zeros(0, np.bool_)
        else:
            self._is_new[env_id[env_id < len(self._is_new)]] = True


def _frame_dtype(dtype: np.dtype[Any], unstacked: Collection[str] = ()) -> np.dtype[Any]:
    if dtype.names is None:
        return dtype
    parts = {name: dtype[name] for name in dtype.names}
    return struct_dtype(
        {
            name: (part.base, part.shape) if name in unstacked else (_frame_dtype(part.base), part.shape[1:])
            for name, part in parts.items()
        }
    )


class PolicyFunction(nn.Module):
    """Common base of the functions of a policy.

    The policy is on the CPU; it cannot be used otherwise afterwards. Its method ``best_action(obs)`` returns the network's
    greedy action, [B, ...]: classes counted from 0, or numbers in units of [-1, 1]. With a memory, it has ``best_step(obs,
    state)``, which returns the same from recurrent states [B, P, H], and those after the step.

    Raises:
        IncompatibleError: If the policy cannot be such a function.
    """

    offset: torch.Tensor
    scale: torch.Tensor

    def __init__(self, policy: Policy, spec: EnvSpec) -> None:
        super().__init__()
        check_function(policy, spec)
        self._policy: Any = policy
        self.model: Any = policy.model.eval()
        """The network that holds the function's weights."""
        for module in self.model.modules():
            if isinstance(module, MLP):
                module.trace_layers()
        normalizer = policy._normalizer.obs
        self._is_normalized = normalizer is not None
        if normalizer is not None:
            for name, value in zip(('offset', 'scale'), normalizer.in_use(), strict=True):
                self.register_buffer(name, torch.from_numpy(value))
        self.to_env = EnvAction(spec.action_space)
        self.requires_grad_(False)

    def first_state(self, count: int) -> tuple[torch.Tensor, ...]:
        """Returns the further inputs of the function at the beginning of ``count`` episodes."""
        return ()

    def _normalized(self, obs: torch.Tensor) -> torch.Tensor:
        if self._is_normalized:
            obs = ((obs.double() - self.offset) * self.scale).clamp(-OBS_CLIP, OBS_CLIP).float()
        return obs


class ActionFunction(PolicyFunction):
    """Maps observations [B, ...] of the env to the policy's best actions, in the env's own units."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        action: torch.Tensor = self.to_env(self._policy.best_action(self._normalized(obs)))
        return action


class StepFunction(PolicyFunction):
    """Maps observations and recurrent states, float32 [B, P, H], to the best actions and the states after the step."""

    def forward(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        action, after = self._policy.best_step(self._normalized(obs), state)
        return self.to_env(action), after

    def first_state(self, count: int) -> tuple[torch.Tensor, ...]:
        return (torch.zeros(count, *self.model.state_shape),)


def action_function(policy: Policy, spec: EnvSpec) -> PolicyFunction:
    """Returns the policy as a function, in evaluation mode: a ``StepFunction`` if it remembers previous steps.

    Raises:
        IncompatibleError: If the policy cannot be such a function.
    """
    function = StepFunction(policy, spec) if policy.is_recurrent else ActionFunction(policy, spec)
    return function.eval()


class EnvAction(nn.Module):
    """Maps a network's actions, [B, ...], to an env's actions."""

    low: torch.Tensor
    high: torch.Tensor
    half_range: torch.Tensor
    start: torch.Tensor

    def __init__(self, space: Any) -> None:
        super().__init__()
        self._shape: tuple[int, ...] = tuple(space.shape or ())
        self._parts = nn.ModuleList(map(EnvAction, getattr(space, 'parts', {}).values()))
        self._sizes: list[int] = getattr(space, 'sizes', [])
        self._is_continuous = type(space).__name__ == 'Box'
        start = np.asarray(getattr(space, 'start', 0))
        self._has_start = not self._is_continuous and bool(start.any())
        self._dtype = torch.from_numpy(np.zeros(0, space.dtype)).dtype
        if self._is_continuous:
            low, high = float_bounds(space)
            for name, value in {'low': low, 'high': high, 'half_range': (high - low) / 2}.items():
                self.register_buffer(name, torch.from_numpy(np.array(value)))
        elif self._has_start:
            self.register_buffer('start', torch.from_numpy(start.astype(np.int64)))

    def forward(self, action: torch.Tensor) -> torch.Tensor:
        if self._sizes:  # of a Composite
            each = zip(self._parts, torch.split(action, self._sizes, 1), strict=True)
            count = action.shape[0]
            return torch.cat([part(own).reshape(count, -1).double() for part, own in each], 1)
        if len(self._shape) > 1 or (self._is_continuous and not self._shape):
            action = action.reshape(action.shape[0], *self._shape)
        if self._is_continuous:
            # bounds of shape () would not raise its precision
            unit = action.to(self.low.dtype).clamp(-1.0, 1.0)
            scaled = torch.minimum(self.low + (unit + 1.0) * self.half_range, self.high)
            return (scaled if self._dtype.is_floating_point else scaled.round()).to(self._dtype)
        return (action + self.start if self._has_start else action).to(self._dtype)


def _method(policy: Policy) -> str:
    """Returns the method of a policy that its function calls."""
    return 'best_step(obs, state)' if policy.is_recurrent else 'best_action(obs)'


def check_function(policy: Policy, spec: EnvSpec) -> None:
    """Refuses a policy that is no function from one tensor to an action.

    Raises:
        IncompatibleError: With the reason and the formats that remain.
    """
    kind = type(spec.observation_space).__name__
    method = _method(policy)
    reason = ''
    if kind not in OBSERVATIONS:
        reason = f'the observations are of kind {kind}: {spec.observation_space!r}'
    elif not hasattr(policy, method.partition('(')[0]):
        reason = f'{type(policy).__name__} has no method {method}'
    if reason:
        raise IncompatibleError(
            f'{reason}; torch_export and onnx are for functions from one tensor (Box or Discrete) to an action',
            where='--format',
            remedy='The formats artifact and state_dict take every policy.',
        )


def check_agreement(function: PolicyFunction, policy: Policy, spec: EnvSpec, count: int = 32) -> None:
    """Checks on random observations that a function gives the same actions as its policy, also with a memory of them.

    A custom policy may act differently from the method of tensors that it inherits.

    Raises:
        IncompatibleError: If it does not.
    """
    space = copy.deepcopy(spec.observation_space)
    space.seed(0)
    policy.eval_mode.reset(None)
    state: Sequence[torch.Tensor] = function.first_state(count)
    for _ in range(1 + len(state)):
        obs = np.stack([space.sample() for _ in range(count)])
        wanted = np.asarray(policy.eval_mode.forward(obs, np.arange(count))['action'])
        given = function(torch.from_numpy(obs), *state)
        action, *state = given if isinstance(given, tuple) else (given,)
        got = action.numpy()
        is_same = got.shape == wanted.shape and np.isclose(got, wanted, 1e-4, 1e-5).reshape(count, -1).all(1)
        if not np.all(is_same):
            method = _method(policy)
            raise IncompatibleError(
                f'{type(policy).__name__}.{method.partition("(")[0]} gives other actions than evaluations do, for'
                f' {count - np.sum(is_same)} of {count} random observations',
                where='--format',
                remedy=f'Override {method}, of tensors [B, ...], beside forward_eval.',
            )
    policy.eval_mode.reset(None)


def example(spec: EnvSpec, count: int = 2) -> torch.Tensor:
    """Returns observations [count, ...] that a function can be traced with."""
    space: Any = spec.observation_space
    return torch.from_numpy(np.full((count, *space.shape), getattr(space, 'start', 0), space.dtype))
