"""What is required of an env, checked in full in its first steps and cheaply ever after."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.timestep import Array, EnvSpec, TimeStep
from rlframe.errors import ActionError, EnvContractError, IncompatibleError, NonFiniteError

if TYPE_CHECKING:
    import gymnasium

CHECKED_STEPS = 8
"""First env steps, and first episodes, of each env that are checked in full."""


def check_spaces(envs: Sequence[gymnasium.Env[Any, Any] | EnvSpec], spec: EnvSpec) -> None:
    """Checks that all envs share spaces that rlframe can store.

    Raises:
        IncompatibleError: If a space is not supported, or one env differs from the first.
    """
    import gymnasium

    space = spec.observation_space
    if not isinstance(space, gymnasium.spaces.Box | gymnasium.spaces.Discrete):
        raise IncompatibleError(
            f'{spec.name}: observation space {space!r} is not supported',
            where='env.env_id',
            remedy="Supported: Box, Discrete. gymnasium.wrappers.FlattenObservation (env.wrappers=['FlattenObservation'])"
            ' turns most others into a Box.',
        )
    for i, env in enumerate(envs):
        if env.observation_space != space or env.action_space != spec.action_space:
            raise IncompatibleError(
                f'env {i} has the spaces {env.observation_space!r} and {env.action_space!r},'
                f' env 0 has {space!r} and {spec.action_space!r}',
                where='env.env_id',
            )


def first_obs(answer: Any, spec: EnvSpec, env: int, in_full: bool = True) -> Array:
    """Returns the observation out of what ``reset`` returned.

    Raises:
        EnvContractError: If it is not ``(obs, info)`` with an observation of the declared shape.
    """
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
        raise EnvContractError(
            f'{spec.name}: reset() of env {env} returned {_describe(answer)}, expected (obs, info)',
            remedy='This is the interface of Gym before 0.26; port the env, or wrap it with the package shimmy.',
        )
    if in_full:
        _check_obs(answer[0], spec, f'reset() of env {env}')
    return answer[0]


def check_step(answer: Any, spec: EnvSpec, env: int, episode: int, step: int) -> None:
    """Checks what ``step`` returned.

    Raises:
        EnvContractError: If it is not five values of the declared shapes and types.
    """
    place = f'step() of env {env}, episode {episode}, step {step}'
    if not isinstance(answer, tuple) or len(answer) != 5:
        got = f'{len(answer)} values' if isinstance(answer, tuple) else _describe(answer)
        raise EnvContractError(
            f'{spec.name}: {place} returned {got}, expected 5: (obs, reward, terminated, truncated, info)',
            remedy='Four values are the interface of Gym before 0.26; port the env, or wrap it with the package shimmy.',
        )
    obs, reward, terminated, truncated, info = answer
    _check_obs(obs, spec, place)
    scalar = isinstance(reward, numbers.Real | np.number) or (
        isinstance(reward, np.ndarray) and reward.shape == ()
    )
    if not scalar or isinstance(reward, bool):
        raise EnvContractError(
            f'{spec.name}: {place} gave the reward {_describe(reward)}, expected one number'
        )
    for name, flag in (('terminated', terminated), ('truncated', truncated)):
        if not isinstance(flag, bool | np.bool_):
            raise EnvContractError(f'{spec.name}: {place} gave {name}={_describe(flag)}, expected a bool')
    if not isinstance(info, dict):
        raise EnvContractError(f'{spec.name}: {place} gave the info {_describe(info)}, expected a dict')


def check_finite(step: TimeStep, place: Callable[[int], tuple[int, int]]) -> None:
    """Checks rewards and observations for NaN and infinity; one dot product each where all is well.

    Raises:
        NonFiniteError: With the env, its episode and step, and the value.
    """
    for name, values in (('reward', step.reward), ('obs', step.obs)):
        if values.dtype.kind != 'f' or math.isfinite(np.vdot(values, values)):
            continue
        bad = ~np.isfinite(values).reshape(len(values), -1).all(1)
        if bad.any():  # the product of large finite numbers may overflow
            row = int(np.flatnonzero(bad)[0])
            env = int(step.env_id[row])
            episode, number = place(env)
            raise NonFiniteError(f'env {env}, episode {episode}, step {number}: {name} is {values[row]}')


def check_action(action: Any, spec: EnvSpec, env: int) -> None:
    """Checks that a policy's action is one that the env knows.

    Raises:
        ActionError: With the action and the space.
    """
    space = spec.action_space
    value = np.asarray(action, space.dtype) if space.shape else action
    if not space.contains(value):
        raise ActionError(f'{spec.name}: the action {action!r} for env {env} is not in {space!r}')


def _check_obs(obs: Any, spec: EnvSpec, place: str) -> None:
    shape, dtype = spec.observation_space.shape, spec.observation_space.dtype
    got = np.asarray(obs)
    if got.shape != shape:
        raise EnvContractError(f'{spec.name}: {place} gave an obs of shape {got.shape}, declared is {shape}')
    if got.dtype != dtype and not np.can_cast(got.dtype, dtype, 'same_kind'):  # type: ignore[arg-type]
        raise EnvContractError(f'{spec.name}: {place} gave an obs of dtype {got.dtype}, declared is {dtype}')


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f'an array of shape {value.shape}'
    if isinstance(value, tuple):
        return f'a tuple of {len(value)}'
    return f'{value!r} ({type(value).__name__})'
