"""The policy as one function of tensors, from an observation to an action, for formats that know no rlframe."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from rlframe.data.timestep import EnvSpec
from rlframe.errors import IncompatibleError
from rlframe.model.mlp import MLP
from rlframe.policy import Policy
from rlframe.policy.acting.bounds import float_bounds
from rlframe.policy.learning.normalize import OBS_CLIP

OBSERVATIONS = ('Box', 'Discrete')
"""Kinds of observation spaces that are one tensor."""


class BestAction(Protocol):
    """Parts of a policy that can be exported as a function."""

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the network's greedy action, [B, ...]: classes counted from 0, or numbers in units of [-1, 1]."""


class BestStep(Protocol):
    """Parts of a policy with a memory that can be exported as a function."""

    def best_step(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the same from recurrent states [B, P, H], and the states after the step."""


class PolicyFunction(nn.Module):
    """Common base of the functions of a policy.

    Args:
        policy: The policy, on the CPU; it cannot be used otherwise afterwards.
        spec: Spaces of the env.

    Raises:
        IncompatibleError: If the policy cannot be such a function.
    """

    offset: torch.Tensor
    scale: torch.Tensor

    def __init__(self, policy: Policy, spec: EnvSpec) -> None:
        super().__init__()
        check_function(policy, spec)
        self._policy: Any = policy
        self.model: Any = policy._model.eval()
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
        """Returns what the function takes besides the observations where ``count`` episodes begin."""
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
    return (StepFunction if policy.is_recurrent else ActionFunction)(policy, spec).eval()


class EnvAction(nn.Module):
    """Maps a network's actions, [B, ...], to those of an env, as ``postprocessing`` describes.

    Args:
        space: The action space.
    """

    low: torch.Tensor
    high: torch.Tensor
    half_range: torch.Tensor
    start: torch.Tensor

    def __init__(self, space: Any) -> None:
        super().__init__()
        self._shape: tuple[int, ...] = tuple(space.shape or ())
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
                remedy=f'Override {method}, of tensors [B, ...], beside _forward_eval.',
            )
    policy.eval_mode.reset(None)


def example(spec: EnvSpec, count: int = 2) -> torch.Tensor:
    """Returns observations [count, ...] that a function can be traced with."""
    space: Any = spec.observation_space
    return torch.from_numpy(np.full((count, *space.shape), getattr(space, 'start', 0), space.dtype))
