"""The requirements on an env, checked in full in its first steps and cheaply afterwards."""

from __future__ import annotations

import logging
import math
import numbers
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.observation import (
    ACTION_MASK,
    MASK_PATH,
    bounds_of,
    check_action_bounds,
    check_mask_values,
    fields_of,
    has_mask,
    mask_parts,
    obs_dtype,
    pack,
    pack_into,
    zero_obs,
)
from rlframe.data.timestep import Array, EnvSpec, IntArray, TimeStep, is_finite
from rlframe.envs.env_checks import check_mask_space, check_masks
from rlframe.errors import (
    ActionError,
    EnvContractError,
    EnvContractWarning,
    IncompatibleError,
    NonFiniteError,
)
from rlframe.utils.lazy import LazyModule
from rlframe.utils.serialize import field_path, leaves

if TYPE_CHECKING:
    import gymnasium

    Env = gymnasium.Env[Any, Any]
else:
    gymnasium = LazyModule('gymnasium')

logger = logging.getLogger(__name__)

CHECKED_STEPS = 8
"""Number of first env steps, and first episodes, of each env that are checked in full."""

LARGEST_REWARD = float(np.finfo(np.float32).max)
"""Rewards are stored as float32."""
LARGEST_SQUARE = LARGEST_REWARD**2

Place = Callable[[int], tuple[int, int]]
"""Returns the running episode of an env and its last env step."""


class Remarks:
    """Reports each kind of contract remark once: as an ``EnvContractWarning``, and in the text log.

    Args:
        hold: Whether to hold remarks back for another process to report.
    """

    def __init__(self, hold: bool = False) -> None:
        self._holds_back = hold
        self._kinds: set[str] = set()
        self.held: list[tuple[str, str]] = []
        """Kinds and texts of the remarks held back for the other process."""

    def report(self, kind: str, text: str) -> None:
        """Reports a remark, unless one of this kind was reported before."""
        if kind in self._kinds:
            return
        self._kinds.add(kind)
        if self._holds_back:
            self.held.append((kind, text))
            return
        logger.info('EnvContractWarning: %s', text)
        warnings.warn(text, EnvContractWarning, stacklevel=2)

    def leave_out(self, kind: str) -> None:
        """Never reports remarks of a kind."""
        self._kinds.add(kind)

    def take(self) -> list[tuple[str, str]]:
        """Returns and clears the held remarks."""
        held = self.held
        self.held = []
        return held


def check_spaces(envs: Sequence[gymnasium.Env[Any, Any] | EnvSpec], spec: EnvSpec) -> None:
    """Checks that all envs share spaces that rlframe can store.

    Raises:
        IncompatibleError: If a space is not supported, bounds of actions contain no value, or one env differs from the
            first.
    """
    space = spec.observation_space
    obs_dtype(space)
    check_mask_space(spec)
    check_action_bounds(spec)
    for i, env in enumerate(envs):
        if env.observation_space != space or env.action_space != spec.action_space:
            raise IncompatibleError(
                f'env {i} has the spaces {env.observation_space!r} and {env.action_space!r},'
                f' env 0 has {space!r} and {spec.action_space!r}',
                where='env.env_id',
            )


def remark_mask(info: Mapping[str, Any], spec: EnvSpec, remarks: Remarks, remedy: str = '') -> None:
    """Remarks on an action mask in an info, which no policy reads; ``remedy`` is for actions that have masks."""
    remedy = remedy or 'the first reset() gave none. Give one from reset(), too, or set env.action_mask=False'
    if ACTION_MASK not in info or has_mask(spec.observation_space):
        return
    if not mask_parts(spec.action_space):
        remedy = f'no mask fits {spec.action_space!r}; masks are for Discrete and MultiDiscrete actions'
    remarks.report(ACTION_MASK, f"{spec.name}: info['{ACTION_MASK}'] is ignored: {remedy}.")


def first_obs(answer: Any, spec: EnvSpec, env: int, episode: int, remarks: Remarks) -> Array:
    """Returns the observation from the return value of ``reset``.

    Args:
        answer: The return value.
        spec: The declared spaces.
        env: Env id.
        episode: Number of the episode that begins, from 1.
        remarks: Receives remarks in the first ``CHECKED_STEPS`` episodes.

    Raises:
        EnvContractError: If it is not ``(obs, info)`` with an observation of the declared shape.
        NonFiniteError: If the observation contains a NaN or an infinity.
    """
    if _is_usual_first(answer, spec, episode):
        usual: Array = answer[0]
        return usual
    what = f'reset() of env {env}, episode {episode},'
    form_of(answer, spec, what)
    remark_mask(answer[1], spec, remarks)
    parts = _declared_parts(answer[0], spec, what)
    for name, values, space in parts:
        if not is_finite(values):
            raise _non_finite(name, values, env, (episode, 0))
        if episode <= CHECKED_STEPS:
            _remark_obs(name, values, space, spec, what, remarks)
    if not fields_of(spec.observation_space):
        return parts[0][1]
    obs: Array = np.asarray(pack(spec.observation_space, answer[0], 'unsafe'))
    if has_mask(spec.observation_space):
        check_masks(obs[None], np.array([False]), np.array([env]), spec, lambda env: (episode, 0))
    return obs


def _is_usual_first(answer: Any, spec: EnvSpec, episode: int) -> bool:
    """Whether the return value of ``reset`` obviously meets the contract: an array in a box, and a dict without a mask.

    The checks of ``first_obs`` take three times as long, which is 5 % of collection in short episodes.
    """
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
        return False
    obs, info = answer
    space: Any = spec.observation_space
    if type(obs) is not np.ndarray or not hasattr(space, 'low') or ACTION_MASK in info:
        return False
    if obs.shape != space.shape or obs.dtype != space.dtype:
        return False
    if episode <= CHECKED_STEPS and not ((obs >= space.low).all() and (obs <= space.high).all()):
        return False
    return is_finite(obs)


def check_step(answer: Any, spec: EnvSpec, env: int, episode: int, step: int, remarks: Remarks) -> None:
    """Checks the return value of ``step``.

    Raises:
        EnvContractError: If it is not five values of the declared shapes and types.
        NonFiniteError: If the observation is converted to integers and one of its numbers is not finite.
    """
    place = f'step() of env {env}, episode {episode}, step {step},'
    obs, reward, terminated, truncated, info = form_of(answer, spec, place)
    remark_mask(info, spec, remarks)
    parts = _declared_parts(obs, spec, place)
    number = reward[()] if isinstance(reward, np.ndarray) and reward.shape == () else reward
    if not isinstance(number, numbers.Real) or isinstance(number, bool):
        weights = "env.wrappers=[dict(type='rlframe.envs.wrappers:WeightedReward', weights=[...])]"
        is_vector = isinstance(reward, np.ndarray) and reward.ndim == 1
        raise EnvContractError(
            f'{spec.name}: {place} gave the reward {_describe(reward)}, expected one number',
            remedy=f'A policy learns from their weighted sum: {weights}.' if is_vector else '',
        )
    for name, flag in (('terminated', terminated), ('truncated', truncated)):
        if not isinstance(flag, bool | np.bool_):
            raise EnvContractError(f'{spec.name}: {place} gave {name}={_describe(flag)}, expected a bool')
    for name, values, space in parts:
        if is_finite(values):
            _remark_obs(name, values, space, spec, place, remarks)
        elif np.dtype(space.dtype).kind != 'f':  # or else check_values sees it
            raise _non_finite(name, values, env, (episode, step))


def form_of(answer: Any, spec: EnvSpec, place: str) -> tuple[Any, ...]:
    """Returns the return value of ``reset`` or ``step`` of an env or a vector env, if it has the form of Gymnasium.

    Args:
        answer: The return value.
        spec: The declared spaces.
        place: Its source, which begins with ``reset()`` or ``step()``.

    Raises:
        EnvContractError: If it is not ``(obs, info)`` or ``(obs, reward, terminated, truncated, info)``, with a dict as
            info.
    """
    is_step = place.startswith('step()')
    if not isinstance(answer, tuple) or len(answer) != (5 if is_step else 2):
        got = f'{len(answer)} values' if isinstance(answer, tuple) else _describe(answer)
        expected = '5: (obs, reward, terminated, truncated, info)' if is_step else '(obs, info)'
        old = 'Four values are' if is_step else 'This is'
        raise EnvContractError(
            f'{spec.name}: {place} returned {got}, expected {expected}',
            remedy=f'{old} the interface of Gym before 0.26; port the env, or wrap it with the package shimmy.',
        )
    if not isinstance(answer[-1], dict):
        raise EnvContractError(f'{spec.name}: {place} gave the info {_describe(answer[-1])}, expected a dict')
    return answer


def check_rows(obs: Array, spec: EnvSpec, env_num: int, what: str, remarks: Remarks | None = None) -> Array:
    """Returns the observations of a vector env, [N, ...], in the declared type.

    Args:
        obs: The observations.
        spec: The declared spaces of one env.
        env_num: Number of envs, N.
        what: Their source, for the error.
        remarks: Receives remarks; none are made if not given.

    Raises:
        EnvContractError: If the shape is not the declared one, or these are no numbers.
    """
    parts = _declared_parts(obs, spec, what, (env_num,))
    for name, values, space in parts:
        if remarks is not None and is_finite(values):
            _remark_obs(name, values, space, spec, what, remarks)
    if not fields_of(spec.observation_space):
        return parts[0][1].astype(spec.observation_space.dtype, copy=False)
    rows = zero_obs(spec.observation_space, env_num)
    pack_into(obs, rows, 'unsafe')
    return rows


def check_columns(reward: Array, terminated: Array, truncated: Array, spec: EnvSpec, env_num: int) -> None:
    """Checks the rewards and flags of a vector env, [N] each.

    Raises:
        EnvContractError: If it has a different shape, or the flags are not of type bool.
    """
    shape = (env_num,)
    for name, column in (('reward', reward), ('terminated', terminated), ('truncated', truncated)):
        kinds, numbers_kind = ('iuf', 'numbers') if name == 'reward' else ('b', 'dtype bool')
        if column.shape != shape or column.dtype.kind not in kinds:
            expected = f'shape {shape} and {numbers_kind}'
            raise EnvContractError(
                f'{spec.name}: step() of the vector env gave {name} of shape {column.shape} and dtype {column.dtype},'
                f' expected {expected}'
            )


def check_info_column(name: str, values: Any, spec: EnvSpec, env_num: int) -> None:
    """Checks that an entry of a vector env's info has a value for each env.

    Raises:
        EnvContractError: If it has not.
    """
    shape = (len(values),) if isinstance(values, list | tuple) else getattr(values, 'shape', ())
    if tuple(shape[:1]) != (env_num,):
        raise EnvContractError(
            f'{spec.name}: the vector env gave info[{name!r}]={_describe(values)}, expected a value for each of its'
            f' {env_num} envs'
        )


def check_values(step: TimeStep, spec: EnvSpec, place: Place) -> None:
    """Checks rewards and observations for NaN and infinity, one dot product each if all are finite, and action masks.

    Raises:
        NonFiniteError: With the env, its episode and step, and the value.
        ActionMaskError: If a mask has other values than 0 and 1, or allows no action although the episode continues.
    """
    if not np.vdot(step.reward, step.reward) < LARGEST_SQUARE:
        _check_each('reward', step.reward, step.env_id, place, LARGEST_REWARD)
    if not is_finite(step.obs):
        _check_each('obs', step.obs, step.env_id, place)
    if step.obs.dtype.names:
        if has_mask(spec.observation_space):
            check_masks(step.obs, step.done, step.env_id, spec, place)
        _check_fields(step.obs, step.env_id, place)


def check_first_obs(obs: Array, env_id: IntArray, spec: EnvSpec, place: Place) -> None:
    """Checks the first observations of episodes, [n, ...], as ``check_values`` does."""
    if has_mask(spec.observation_space):
        check_masks(obs, np.zeros(len(obs), np.bool_), env_id, spec, place)
    _check_fields(obs, env_id, place)


def _check_fields(obs: Array, env_id: IntArray, place: Place) -> None:
    for name, values in leaves(obs, 'obs'):
        if not is_finite(values):
            _check_each(name, values, env_id, place)


def _check_each(name: str, values: Array, env_id: IntArray, place: Place, largest: float = math.inf) -> None:
    """Raises the error about the first row that is not finite or above a limit; there may be none."""
    for env, row in zip(env_id.tolist(), values, strict=True):
        if not is_finite(np.asarray(row)) or (np.abs(row) > largest).any():
            raise _non_finite(name, row, env, place(env))


def _non_finite(name: str, value: Any, env: int, place: tuple[int, int]) -> NonFiniteError:
    return NonFiniteError(
        f'env {env}, episode {place[0]}, step {place[1]}: {name} is {value}',
        remedy='Nothing of this step was stored; the env must give finite numbers, and rewards that fit into float32.',
    )


def check_action(action: Any, spec: EnvSpec, env: int) -> None:
    """Checks that a policy's action is in the action space.

    Raises:
        ActionError: With the action and the space.
    """
    space = spec.action_space
    is_array = bool(space.shape) or type(space).__name__ == 'Box'
    value = np.asarray(action, space.dtype) if is_array else action
    is_whole = not is_array or value.dtype.kind == 'f' or _are_whole(action, value)
    if not is_whole or not space.contains(value):
        raise ActionError(f'{spec.name}: the action {action!r} for env {env} is not in {space!r}')


def _are_whole(action: Any, value: Array) -> bool:
    """Whether an action for an integer space consists of integers."""
    return np.asarray(action).dtype.kind in 'biu' and bool((value == action).all())


def _declared_parts(
    obs: Any, spec: EnvSpec, place: str, leading: tuple[int, ...] = ()
) -> list[tuple[str, Array, gymnasium.Space[Any]]]:
    """Returns the arrays of an observation, each with its name and its space.

    Args:
        obs: The observation.
        spec: The declared spaces.
        place: Its source, for the error.
        leading: Axes before those of one observation.

    Raises:
        EnvContractError: If parts are missing or unknown, or one is no array of numbers of the declared shape.
        ActionMaskError: If an action mask has other values than 0 and 1, which a conversion might hide.
    """
    found: list[tuple[str, Array, gymnasium.Space[Any]]] = []

    def visit(value: Any, space: gymnasium.Space[Any], name: str) -> None:
        parts = fields_of(space)
        if not parts:
            found.append((name, _declared_kind(name, value, space, f'{spec.name}: {place}', leading), space))
            return
        is_tuple = isinstance(space, gymnasium.spaces.Tuple)
        if not isinstance(value, tuple if is_tuple else Mapping):
            kind = f'tuple of {len(parts)}' if is_tuple else f'dict with {list(parts)}'
            raise EnvContractError(
                f'{spec.name}: {place} gave {name}={_describe(value)}, declared is a {kind}'
            )
        given: Any = {str(i): part for i, part in enumerate(value)} if is_tuple else value
        if given.keys() != parts.keys():
            raise EnvContractError(
                f'{spec.name}: {place} gave {name} with the parts {list(given)}, declared are {list(parts)}'
            )
        for key, part in parts.items():
            visit(given[key], part, field_path(name, key))

    visit(obs, spec.observation_space, 'obs')
    for name, values, _ in found:
        if name == MASK_PATH:
            check_mask_values(values, f'{spec.name}: {place}')
    return found


def _declared_kind(
    name: str, obs: Any, space: gymnasium.Space[Any], place: str, leading: tuple[int, ...]
) -> Array:
    """Returns a part of an observation as a numeric array of the declared shape after ``leading`` axes."""
    declared = (*leading, *(space.shape or ()))
    article = 'an ' if name == 'obs' else ''
    try:
        got = np.asarray(obs)
    except ValueError as error:
        raise EnvContractError(f'{place} gave {article}{name} that is no array: {error}') from error
    if got.shape != declared:
        raise EnvContractError(f'{place} gave {article}{name} of shape {got.shape}, declared is {declared}')
    if got.dtype.kind not in 'biuf':
        raise EnvContractError(
            f'{place} gave {article}{name} of dtype {got.dtype}, declared is {space.dtype}'
        )
    return got


def _remark_obs(
    name: str, obs: Array, space: gymnasium.Space[Any], spec: EnvSpec, place: str, remarks: Remarks
) -> None:
    """Remarks on finite values of another type than declared, or outside the declared bounds."""
    low, high = bounds_of(space)
    dtype: Any = space.dtype
    both_float = obs.dtype.kind == dtype.kind == 'f'
    values = obs.astype(dtype) if both_float else obs  # a bound has the declared dtype
    values_lie = f'lies in [{values.min():g}, {values.max():g}]' if values.size else 'is empty'
    declared = f'declared is {dtype} in [{np.min(low):g}, {np.max(high):g}]'
    article = 'an ' if name == 'obs' else ''
    if not np.can_cast(obs.dtype, dtype):
        loss = ', which cuts fractions off' if obs.dtype.kind == 'f' and not both_float else ''
        remarks.report(
            f'dtype of {name}',
            f'{spec.name}: {place} gave {article}{name} of dtype {obs.dtype} that {values_lie}, {declared};'
            f' it is converted{loss}. Declare what the env gives, or give what it declares.',
        )
    if (values < low).any() or (values > high).any():
        remarks.report(
            f'bounds of {name}',
            f'{spec.name}: {place} gave {article}{name} that {values_lie}, {declared}. The bounds of its observation'
            ' space are wrong, or its observations are.',
        )


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f'an array of shape {value.shape}'
    if isinstance(value, tuple):
        return f'a tuple of {len(value)}'
    return f'{value!r} ({type(value).__name__})'
