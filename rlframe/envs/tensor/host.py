"""HostVectorEnv: envs of tensors as a Gymnasium vector env of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rlframe.checkpoint.tree import BAD_TREE
from rlframe.data.timestep import Array, BoolArray, FloatArray
from rlframe.envs.state import MismatchError, Refusal
from rlframe.envs.tensor.checks import TensorContract, TensorStep
from rlframe.envs.tensor.interface import TensorVectorEnv
from rlframe.errors import CheckpointStateError
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch

    VectorEnv = gymnasium.vector.VectorEnv[Any, Any, Any]
else:
    torch = LazyModule('torch')
    VectorEnv = gymnasium.vector.VectorEnv


class HostVectorEnv(VectorEnv):
    """Envs of tensors as a vector env of arrays, for all that is not on their device; each step waits for it.

    Args:
        tensors: The envs.

    Raises:
        RLFrameError: If they do not keep to the contract.
    """

    metadata: dict[str, Any] = {'autoreset_mode': AutoresetMode.SAME_STEP}

    def __init__(self, tensors: TensorVectorEnv) -> None:
        self.tensors, self.contract = tensors, TensorContract(tensors)
        self.num_envs, self.spec = tensors.num_envs, tensors.spec
        self.metadata = {**tensors.metadata, **self.metadata}
        self.single_observation_space = tensors.single_observation_space
        self.single_action_space = tensors.single_action_space

    def reset(  # type: ignore[override]  # one seed for all envs
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        return to_array(self.reset_tensors(seed)), {}

    def reset_tensors(self, seed: int | None) -> torch.Tensor:
        """Begins a new episode in all envs and returns the first observations [N, ...]."""
        with torch.no_grad():
            return self.contract.first(self.tensors.reset(seed=seed))

    def step(self, actions: Array) -> tuple[Array, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        contract = self.contract
        rows = torch.as_tensor(np.array(actions)).to(contract.device, contract.action_dtype)
        step = self.step_tensors(rows.reshape(contract.action_shape))
        obs, reward, terminated, truncated = (to_array(column) for column in step[:4])
        done = terminated | truncated
        info = {'final_obs': to_array(step.final_obs), '_final_obs': done} if done.any() else {}
        return obs, reward, terminated, truncated, info

    def step_tensors(self, action: torch.Tensor) -> TensorStep:
        """Steps all envs by actions on their device."""
        with torch.no_grad():
            return self.contract.step(self.tensors.step(action))

    def render(self) -> Any:
        return self.tensors.render()

    def close_extras(self, **kwargs: Any) -> None:
        self.tensors.close()


def to_array(tensor: torch.Tensor) -> Array:
    """Returns a copy of a tensor as an array."""
    array: Array = tensor.cpu().numpy().copy()
    return array


def _copied(state: Any) -> Any:
    """Returns a state with copies of its tensors on the CPU, as the envs may write to their own."""
    if isinstance(state, Mapping):
        return {name: _copied(part) for name, part in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_copied(part) for part in state)
    return state.detach().cpu().clone() if isinstance(state, torch.Tensor) else state


class TensorEnvState:
    """Captures and restores the state of envs of tensors by their own ``state_dict`` and ``load_state_dict``.

    Args:
        env: The envs.
    """

    def __init__(self, env: TensorVectorEnv) -> None:
        self._env: Any = env

    def capture(self) -> dict[str, Any] | Refusal:
        """Returns the state as plain data, or the reason why it cannot be saved."""
        missing = [name for name in ('state_dict', 'load_state_dict') if not hasattr(self._env, name)]
        if missing:
            return Refusal(f'{type(self._env).__name__} has no {" and no ".join(missing)}')
        return {'tensors': _copied(self._env.state_dict())}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a state that ``capture`` returned.

        Raises:
            MismatchError: If the envs cannot take it, such as the generator of a device of another type.
            CheckpointStateError: If it is not a state.
        """
        if not isinstance(state, Mapping) or 'tensors' not in state:
            raise CheckpointStateError('this is not the state of envs of tensors')
        if not hasattr(self._env, 'load_state_dict'):
            raise MismatchError(f'{type(self._env).__name__} has no load_state_dict')
        try:
            self._env.load_state_dict(state['tensors'])
        except (*BAD_TREE, CheckpointStateError) as error:
            raise MismatchError(f'{type(self._env).__name__}.load_state_dict: {error}') from error
