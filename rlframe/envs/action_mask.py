"""Moves action masks from ``info['action_mask']`` into the observations of an env."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from rlframe.data.composite import mask_row
from rlframe.data.observation import ACTION_MASK, check_mask_values, has_mask, mask_parts
from rlframe.data.timestep import Array, BoolArray
from rlframe.errors import EnvContractError, IncompatibleError

if TYPE_CHECKING:
    Wrapper = gymnasium.Wrapper[Any, Any, Any, Any]
    VectorWrapper = gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]
else:
    Wrapper, VectorWrapper = gymnasium.Wrapper, gymnasium.vector.VectorWrapper


def may_give_mask(env: Any) -> bool:
    """Whether only a reset can tell if an env, or a vector env, gives action masks in its infos."""
    if getattr(env, 'gives_tensors', False):
        return False
    obs = getattr(env, 'single_observation_space', env.observation_space)
    return bool(mask_parts(getattr(env, 'single_action_space', env.action_space))) and not has_mask(obs)


def gives_mask(env: Any) -> bool:
    """Resets an env, or a vector env, and returns whether it has an action mask; not if the reset fails."""
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
        self._size = self.observation_space[ACTION_MASK].shape

    def reset(self, **given: Any) -> Any:
        answer: Any = self.env.reset(**given)
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
            return answer
        obs, info = answer
        return self._moved(obs, info, 'reset()', False)

    def step(self, action: Any) -> Any:
        answer: Any = self.env.step(action)
        if not isinstance(answer, tuple) or len(answer) != 5 or not isinstance(answer[4], dict):
            return answer
        obs, reward, terminated, truncated, info = answer
        obs, info = self._moved(obs, info, 'step()', terminated or truncated)
        return obs, reward, terminated, truncated, info

    def _joined(self, mask: Any) -> Array:
        space: Any = self.env.action_space
        try:
            return mask_row(getattr(space, 'whole', space), mask)
        except (LookupError, TypeError, ValueError) as error:
            raise EnvContractError(
                f"{self._name}: info['action_mask'] is not nested as the action space is: {error!r}",
                remedy='Give it as space.sample(mask) takes it, or all masks of Discrete and MultiDiscrete as one array.',
            ) from error

    def _moved(self, obs: Any, info: dict[str, Any], what: str, is_over: bool) -> tuple[Any, dict[str, Any]]:
        mask = info.get(ACTION_MASK)
        if mask is None and is_over:
            mask = np.ones(self._size, np.int8)
        elif isinstance(mask, tuple | dict):
            mask = self._joined(mask)
        if mask is None or np.shape(mask) != self._size:
            raise _no_mask(self._name, what, mask, self._size)
        mask = np.asarray(mask)
        if mask.dtype != np.int8:  # or else the contract of observations sees it
            check_mask_values(mask, f'{self._name}: {what}')
        others = {name: value for name, value in info.items() if name != ACTION_MASK}
        return {'observation': obs, ACTION_MASK: mask.astype(np.int8)}, others


class MaskedVectorEnv(VectorWrapper):
    """Applies ``MaskedEnv`` to every env of a vector env.

    Args:
        env: A vector env whose ``info`` has the masks of all envs as one array, [N, A].

    Raises:
        IncompatibleError: If its action space does not support masks.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._name = env.spec.id if env.spec else type(env.unwrapped).__name__
        single = masked_space(env.single_observation_space, env.single_action_space, self._name)
        self.single_observation_space = single
        self.observation_space = batch_space(single, env.num_envs)
        # last mask of each env
        self._mask = np.ones((env.num_envs, sum(mask_parts(env.single_action_space))), np.int8)

    def reset(self, **given: Any) -> Any:
        due = (given.get('options') or {}).get('reset_mask', np.ones(self.num_envs, np.bool_))
        obs, info = self.env.reset(**given)  # Gymnasium's own vector envs take the key out of the options
        self._take(info, 'reset()', due)
        return self._joined(obs), _without_mask(info)

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(actions)
        is_over = np.asarray(terminated) | np.asarray(truncated)
        self._mask = np.where(is_over[:, None], np.int8(1), self._mask)
        self._take(info, 'step()', ~is_over)
        if 'final_obs' in info:
            info = {**info, 'final_obs': self._final(info)}
        return self._joined(obs), reward, terminated, truncated, _without_mask(info)

    def _take(self, info: dict[str, Any], what: str, due: BoolArray) -> None:
        """Stores the given masks; those of envs that are ``due`` are required, [N]."""
        mask = info.get(ACTION_MASK)
        given = info.get(f'_{ACTION_MASK}', np.full(self.num_envs, mask is not None))
        if (due & ~given).any() or (mask is not None and np.shape(mask) != self._mask.shape):
            raise _no_mask(self._name, what, mask, self._mask.shape)
        self._mask = self._mask.copy()
        if mask is not None:
            check_mask_values(mask[given], f'{self._name}: {what}')
            self._mask[given] = mask[given]

    def _joined(self, obs: Any) -> dict[str, Any]:
        return {'observation': obs, ACTION_MASK: self._mask}

    def _final(self, info: dict[str, Any]) -> Array:
        """Returns the last observations of the episodes that ended, with their masks."""
        final = np.full(self.num_envs, None, object)
        others = info.get('final_info', {})
        for i in np.flatnonzero(info['_final_obs']):
            known = ACTION_MASK in others and others.get(f'_{ACTION_MASK}', info['_final_obs'])[i]
            mask = np.asarray(others[ACTION_MASK][i] if known else np.ones(self._mask.shape[1:]))
            check_mask_values(mask, f'{self._name}: step()')
            final[i] = {'observation': info['final_obs'][i], ACTION_MASK: mask.astype(np.int8)}
        return final


def _without_mask(info: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in info.items() if name not in (ACTION_MASK, f'_{ACTION_MASK}')}


def _no_mask(name: str, what: str, mask: Any, shape: Any) -> EnvContractError:
    got = "no info['action_mask']" if mask is None else f"info['action_mask'] of shape {np.shape(mask)}"
    return EnvContractError(
        f'{name}: {what} gave {got}, expected shape {shape}',
        remedy='An env that gives one at its first reset must give it always. env.action_mask=False ignores it.',
    )
