"""Checks what a ``TensorVectorEnv`` declares and returns; nothing here waits for its device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rlframe.data.device import numbered
from rlframe.errors import EnvContractError, IncompatibleError
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
    from gymnasium import spaces

    from rlframe.envs.tensor.interface import TensorVectorEnv
else:
    torch = LazyModule('torch')
    spaces = LazyModule('gymnasium.spaces')


class TensorStep(NamedTuple):
    """One step of N envs, tensors on their device."""

    obs: torch.Tensor
    """Observations to act on next, [N, ...]."""
    reward: torch.Tensor
    """float32 [N]."""
    terminated: torch.Tensor
    """bool [N]."""
    truncated: torch.Tensor
    """bool [N]."""
    final_obs: torch.Tensor
    """True last observations of the envs that ended, [N, ...]; other rows mean nothing."""


class TensorContract:
    """What an env has declared, and has to keep to.

    Args:
        env: The env.

    Raises:
        IncompatibleError: If its spaces are none that tensors can hold.
        EnvContractError: If it does not say its number of envs and their device, or not that it resets itself.
    """

    def __init__(self, env: TensorVectorEnv) -> None:
        self._name = type(env).__name__
        obs, action = (getattr(env, f'single_{kind}_space', None) for kind in ('observation', 'action'))
        actions = (spaces.Discrete, spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)
        if not isinstance(obs, spaces.Box) or not isinstance(action, actions):
            raise IncompatibleError(
                f'{self._name} has the observation space {obs!r} and the action space {action!r}',
                where='env.env_id',
                remedy='Envs of tensors have a Box of observations, and Discrete, Box, MultiDiscrete or MultiBinary actions.',
            )
        mode = getattr(env.metadata.get('autoreset_mode'), 'value', None)
        if mode != 'SameStep':
            raise EnvContractError(
                f"{self._name}: metadata['autoreset_mode'] is {mode!r}, expected AutoresetMode.SAME_STEP",
                remedy='An env of tensors begins its next episode in the step that ends one.',
            )
        if not isinstance(getattr(env, 'device', None), torch.device) or not isinstance(env.num_envs, int):
            raise EnvContractError(f'{self._name} needs num_envs, an int, and device, a torch.device')
        self.device = numbered(env.device)
        """Device of all tensors."""
        self._obs = (env.num_envs, *obs.shape), _torch_type(obs.dtype)
        self._reward, self._flag = ((env.num_envs,), torch.float32), ((env.num_envs,), torch.bool)
        self.action_shape, self.action_dtype = (
            (env.num_envs, *(action.shape or ())),
            _torch_type(action.dtype),
        )
        """Shape and type of the actions of a step."""

    def first(self, answer: Any) -> torch.Tensor:
        """Returns the observations [N, ...] of the return value of ``reset``.

        Raises:
            EnvContractError: If their tensor differs from its declaration.
        """
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise EnvContractError(f'{self._name}: reset() returned {_shown(answer)}, expected (obs, info)')
        return self._checked('reset()', 'obs', answer[0], *self._obs)

    def step(self, answer: Any) -> TensorStep:
        """Returns the parts of the return value of ``step``.

        Raises:
            EnvContractError: If a tensor differs from its declaration, or the last observations are missing.
        """
        if not isinstance(answer, tuple) or len(answer) != 5 or not isinstance(answer[4], dict):
            raise EnvContractError(
                f'{self._name}: step() returned {_shown(answer)}, expected (obs, reward, terminated, truncated, info)'
            )
        obs, reward, terminated, truncated, info = answer
        if 'final_obs' not in info:
            raise EnvContractError(
                f"{self._name}: step() gave no info['final_obs']",
                remedy='It holds the true last observation of each env that ended, [N, ...], and is there in every step,'
                ' also where no env ended: values of truncated episodes are bootstrapped from it.',
            )
        return TensorStep(
            self._checked('step()', 'obs', obs, *self._obs),
            self._checked('step()', 'reward', reward, *self._reward),
            self._checked('step()', 'terminated', terminated, *self._flag),
            self._checked('step()', 'truncated', truncated, *self._flag),
            self._checked('step()', "info['final_obs']", info['final_obs'], *self._obs),
        )

    def _checked(
        self, call: str, name: str, value: Any, shape: tuple[int, ...], dtype: torch.dtype
    ) -> torch.Tensor:
        fits = isinstance(value, torch.Tensor) and value.shape == shape and value.dtype == dtype
        if fits and (value.device == self.device or numbered(value.device) == self.device):
            tensor: torch.Tensor = value
            return tensor
        expected = f'a tensor of shape {list(shape)}, {dtype}, on {self.device}'
        raise EnvContractError(f'{self._name}: {call} gave {name} as {_shown(value)}, expected {expected}')


def _torch_type(dtype: Any) -> torch.dtype:
    """Returns torch's type of the same name as numpy's."""
    found: torch.dtype = getattr(torch, str(dtype))
    return found


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f'a tensor of shape {list(value.shape)}, {value.dtype}, on {value.device}'
    if isinstance(value, tuple):
        return f'{len(value)} values'
    shape = getattr(value, 'shape', None)
    return type(value).__name__ if shape is None else f'{type(value).__name__} of shape {list(shape)}'
