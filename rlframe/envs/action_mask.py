"""Moves action masks from ``info['action_mask']`` into the observations of an env."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlframe.data.composite import mask_row
from rlframe.data.observation import ACTION_MASK, check_mask_values, has_mask, mask_parts
from rlframe.data.timestep import Array
from rlframe.errors import EnvContractError, IncompatibleError

if TYPE_CHECKING:
    Wrapper = gymnasium.Wrapper[Any, Any, Any, Any]
else:
    Wrapper = gymnasium.Wrapper


def may_give_mask(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether only a reset can tell if an env gives action masks in its infos."""
    return bool(mask_parts(env.action_space)) and not has_mask(env.observation_space)


def gives_mask(env: gymnasium.Env[Any, Any]) -> bool:
    """Resets an env, and returns whether it gives an action mask; not if the reset fails."""
    try:
        return ACTION_MASK in env.reset(seed=0)[1]
    except Exception:  # reported by the first real reset
        return False


def masked_space(obs: gymnasium.Space[Any], action: gymnasium.Space[Any], name: str) -> spaces.Dict:
    """Returns the space of observations with an action mask added.

    Raises:
        IncompatibleError: If such an action space does not support masks.
    """
    parts = mask_parts(action)
    if not parts:
        raise IncompatibleError(
            f'{name}: there are no action masks for the action space {action!r}',
            where='env.action_mask',
            remedy='Supported: Discrete, MultiDiscrete, and Dict or Tuple with such parts. Set env.action_mask=False.',
        )
    return spaces.Dict({'observation': obs, ACTION_MASK: spaces.MultiBinary(sum(parts))})


class MaskedEnv(Wrapper):
    """Turns an env's observations into ``{'observation': obs, 'action_mask': info['action_mask']}``.

    Args:
        env: An env whose ``info`` contains the allowed actions, after ``reset`` and every step; it may be missing at
            the end of an episode.

    Raises:
        IncompatibleError: If its action space does not support masks.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._name = env.spec.id if env.spec else type(env.unwrapped).__name__
        self.observation_space = masked_space(env.observation_space, env.action_space, self._name)

    def reset(self, **given: Any) -> Any:
        answer: Any = self.env.reset(**given)
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
            return answer
        return self._moved(*answer, 'reset()')

    def step(self, action: Any) -> Any:
        answer: Any = self.env.step(action)
        if not isinstance(answer, tuple) or len(answer) != 5 or not isinstance(answer[4], dict):
            return answer
        obs, reward, terminated, truncated, info = answer
        obs, info = self._moved(obs, info, 'step()', terminated or truncated)
        return obs, reward, terminated, truncated, info

    def _moved(self, obs: Any, info: dict[str, Any], what: str, is_over: bool = False) -> tuple[Any, Any]:
        return with_mask(obs, info, self.env.action_space, self._name, what, is_over)


def with_mask(
    obs: Any, info: dict[str, Any], space: Any, name: str, what: str, is_over: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns an observation with the action mask of its info, which may be missing at an end, and the rest of the info.

    Raises:
        EnvContractError: If the mask is missing, or does not fit the action space.
        ActionMaskError: If it has other values than 0 and 1.
    """
    size = sum(mask_parts(space))
    mask = info.get(ACTION_MASK)
    if mask is None and is_over:
        mask = np.ones(size, np.int8)
    elif isinstance(mask, tuple | dict):
        mask = _joined(mask, space, name)
    if mask is None or np.shape(mask) != (size,):
        raise _no_mask(name, what, mask, (size,))
    mask = np.asarray(mask)
    if mask.dtype != np.int8:  # or else the contract of observations sees it
        check_mask_values(mask, f'{name}: {what}')
    others = {key: value for key, value in info.items() if key != ACTION_MASK}
    return {'observation': obs, ACTION_MASK: mask.astype(np.int8)}, others


def _joined(mask: Any, space: Any, name: str) -> Array:
    try:
        return mask_row(getattr(space, 'whole', space), mask)
    except (LookupError, TypeError, ValueError) as error:
        raise EnvContractError(
            f"{name}: info['action_mask'] is not nested as the action space is: {error!r}",
            remedy='Give it as space.sample(mask) takes it, or all masks of Discrete and MultiDiscrete as one array.',
        ) from error


def _no_mask(name: str, what: str, mask: Any, shape: Any) -> EnvContractError:
    got = "no info['action_mask']" if mask is None else f"info['action_mask'] of shape {np.shape(mask)}"
    return EnvContractError(
        f'{name}: {what} gave {got}, expected shape {shape}',
        remedy='An env that gives one at its first reset must give it always. env.action_mask=False ignores it.',
    )
