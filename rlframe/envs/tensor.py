"""Envs of tensors: their contract, CartPole and Pendulum as tensor operations, and any of them as a vector env of arrays."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rlframe.data.staging import existing_device, numbered
from rlframe.data.timestep import Array, BoolArray, FloatArray
from rlframe.envs.state import Refusal
from rlframe.envs.state_objects import MismatchError
from rlframe.errors import CheckpointStateError, EnvContractError, IncompatibleError
from rlframe.run.checkpoint_tree import BAD_TREE
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import TENSOR, check_state, tensor_like

if TYPE_CHECKING:
    import torch

    VectorEnv = gymnasium.vector.VectorEnv[Any, Any, Any]
else:
    torch = LazyModule('torch')
    VectorEnv = gymnasium.vector.VectorEnv
    spaces = LazyModule('gymnasium.spaces')


class TensorVectorEnv(VectorEnv):
    """N envs that are stepped together: Gymnasium's vector env with tensors in place of arrays.

    A subclass sets ``num_envs``, ``device`` and the two ``single_`` spaces, and defines ``reset`` and ``step``. Its
    constructor takes ``num_envs``, and by name what ``env.kwargs`` contains. All tensors are on ``device``.

    An env begins its next episode in the step that ends one (Gymnasium's ``AutoresetMode.SAME_STEP``). Nothing of it has to
    wait for the device: which envs ended is told by tensors, not by the shape or the presence of one.

    To resume exactly, it also defines ``state_dict()``, which returns everything that later steps depend on, its random
    generators included, as tensors, numbers and text; and ``load_state_dict(state)``, whose tensors may be on the CPU.
    Without both, all envs begin a new episode at each checkpoint.
    """

    gives_tensors: ClassVar[bool] = True
    """Tells such envs from Gymnasium's vector envs."""
    metadata: dict[str, Any] = {'autoreset_mode': AutoresetMode.SAME_STEP}
    num_envs: int
    """Number of envs, N."""
    device: torch.device
    """Device of all tensors."""
    single_observation_space: gymnasium.Space[Any]
    """Space of the observation of one env, a ``Box``."""
    single_action_space: gymnasium.Space[Any]
    """Space of the action of one env."""

    def reset(  # type: ignore[override]  # one seed for all envs
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Begins a new episode in all envs.

        Args:
            seed: Seed of all randomness from here on; None: continue with the generators as they are.
            options: Not used.

        Returns:
            The first observations [N, ...], in the type of their space; and an info, which is not read.
        """
        raise NotImplementedError

    def step(
        self, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Steps all envs.

        Args:
            actions: Actions of the action space, in its type: int64 [N] for ``Discrete``, float32 [N, ...] for a ``Box``.

        Returns:
            Five values. Observations [N, ...]: for an env that ended, the first one of its next episode. Rewards float32
            [N]. Flags ``terminated`` bool [N], and ``truncated`` bool [N]: cut off by a time limit. The info, in which
            ``final_obs`` [N, ...] holds the true last observation of each env that ended; its other rows are not read.
        """
        raise NotImplementedError


def device_of(name: str | torch.device) -> torch.device:
    """Returns the device of a name; ``'auto'`` is CUDA where there is one, else the CPU.

    Raises:
        DeviceError: If this machine has no such device.
    """
    if name == 'auto':
        name = 'cuda' if torch.cuda.is_available() else 'cpu'
    return numbered(
        existing_device(str(name), 'env.kwargs', "device='auto' takes the CPU where there is no GPU.")
    )


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
    """Shapes, types and bounds that an env of tensors has declared, and their checks.

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
        self.action_shape = env.num_envs, *(action.shape or ())
        self.action_dtype = _torch_type(action.dtype)
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


class Simulation(TensorVectorEnv):
    """Body of envs whose step is a function of their state, float64 [N, S], and their action.

    Gymnasium computes in float64 as well, so episodes of the same start and actions stay equal to their end.

    Args:
        num_envs: Number of envs, N.
        device: ``'auto'`` (CUDA where there is one), ``'cpu'``, ``'cuda'``, ``'cuda:i'``.
    """

    env_id: str
    """The env of Gymnasium that it equals."""
    state_size: int
    """Numbers in the state of an env, S."""

    def __init__(self, num_envs: int, device: str = 'auto') -> None:
        self.num_envs = num_envs
        self.device = device_of(device)
        self.spec = gymnasium.spec(self.env_id)
        self._time_limit = self.spec.max_episode_steps or 0
        self._generator = torch.Generator(self.device)
        self._is_seeded = False
        self._state = torch.zeros(num_envs, self.state_size, dtype=torch.float64, device=self.device)
        self._steps = torch.zeros(num_envs, dtype=torch.int64, device=self.device)

    @abstractmethod
    def _first(self, draws: torch.Tensor) -> torch.Tensor:
        """Returns the states that episodes begin in, from draws in [0, 1) of the same shape, float64 [N, S]."""

    @abstractmethod
    def _advance(
        self, state: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the next states [N, S], the rewards float32 [N], and the envs that terminated, bool [N]."""

    @abstractmethod
    def _observe(self, state: torch.Tensor) -> torch.Tensor:
        """Returns the observations of states, float32 [N, ...]."""

    def _draw(self) -> torch.Tensor:
        """Returns a state that an episode begins in for each env, [N, S]."""
        draws = torch.rand(
            self._state.shape, generator=self._generator, dtype=torch.float64, device=self.device
        )
        return self._first(draws)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        if seed is not None:
            self._generator.manual_seed(seed)
        elif not self._is_seeded:
            self._generator.seed()
        self._is_seeded = True
        self._state = self._draw()
        self._steps = torch.zeros_like(self._steps)
        return self._observe(self._state), {}

    def step(
        self, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        state, reward, terminated = self._advance(self._state, actions)
        steps = self._steps + 1
        truncated = steps >= self._time_limit
        done = terminated | truncated
        self._state = torch.where(done.unsqueeze(1), self._draw(), state)
        self._steps = steps.masked_fill_(done, 0)
        return self._observe(self._state), reward, terminated, truncated, {'final_obs': self._observe(state)}

    def state_dict(self) -> dict[str, Any]:
        """Returns states, counts and the generator."""
        return {
            'state': self._state,
            'steps': self._steps,
            'generator': self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()`` of as many envs on a device of the same type."""
        own = {name: tensor_like(value) for name, value in self.state_dict().items()}
        check_state(state, dict.fromkeys(own, TENSOR) | own)
        self._state = state['state'].to(self.device, torch.float64, copy=True)
        self._steps = state['steps'].to(self.device, torch.int64, copy=True)
        self._generator.set_state(state['generator'].cpu())
        self._is_seeded = True


class TorchCartPole(Simulation):
    """Gymnasium's ``CartPole-v1``: the state is position, velocity, angle and angular velocity."""

    env_id, state_size = 'CartPole-v1', 4
    gravity, pole_mass, total_mass, half_length, force, tau = 9.8, 0.1, 1.1, 0.5, 10.0, 0.02
    farthest = 2.4
    steepest = 12 * 2 * math.pi / 360

    def __init__(self, num_envs: int, device: str = 'auto') -> None:
        super().__init__(num_envs, device)
        high = np.array([2 * self.farthest, np.inf, 2 * self.steepest, np.inf], np.float32)
        self.single_observation_space = spaces.Box(-high, high, dtype=np.float32)
        self.single_action_space = spaces.Discrete(2)
        self._reward = torch.ones(num_envs, device=self.device)

    def _first(self, draws: torch.Tensor) -> torch.Tensor:
        return draws * 0.1 - 0.05

    def _advance(
        self, state: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        velocity, angle, spin = state[:, 1:].unbind(1)
        force = (action * 2 - 1) * self.force
        cosine = angle.cos()
        sine = angle.sin()
        pole = self.pole_mass * self.half_length
        push = (force + pole * spin.square() * sine) / self.total_mass
        inertia = self.half_length * (4.0 / 3.0 - self.pole_mass * cosine.square() / self.total_mass)
        turn = (self.gravity * sine - cosine * push) / inertia
        pull = push - pole * turn * cosine / self.total_mass
        state = state + self.tau * torch.stack([velocity, pull, spin, turn], 1)
        terminated = (state[:, 0].abs() > self.farthest) | (state[:, 2].abs() > self.steepest)
        return state, self._reward, terminated

    def _observe(self, state: torch.Tensor) -> torch.Tensor:
        return state.float()


class TorchPendulum(Simulation):
    """Gymnasium's ``Pendulum-v1``: the state is the angle and the angular velocity."""

    env_id, state_size = 'Pendulum-v1', 2
    gravity, tau, fastest, strongest = 10.0, 0.05, 8.0, 2.0

    def __init__(self, num_envs: int, device: str = 'auto') -> None:
        super().__init__(num_envs, device)
        high = np.array([1.0, 1.0, self.fastest], np.float32)
        self.single_observation_space = spaces.Box(-high, high, dtype=np.float32)
        self.single_action_space = spaces.Box(-self.strongest, self.strongest, (1,), np.float32)
        self._never = torch.zeros(num_envs, dtype=torch.bool, device=self.device)
        self._range = torch.tensor([math.pi, 1.0], dtype=torch.float64, device=self.device)

    def _first(self, draws: torch.Tensor) -> torch.Tensor:
        return (draws * 2 - 1) * self._range

    def _advance(
        self, state: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        angle, spin = state.unbind(1)
        torque = action[:, 0].clamp(-self.strongest, self.strongest)
        upright = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        cost = upright.square() + 0.1 * spin.square() + 0.001 * torque.square()
        spin = spin + (1.5 * self.gravity * angle.sin() + 3.0 * torque) * self.tau
        spin = spin.clamp(-self.fastest, self.fastest)
        return torch.stack([angle + spin * self.tau, spin], 1), -cost.float(), self._never

    def _observe(self, state: torch.Tensor) -> torch.Tensor:
        angle = state[:, 0]
        return torch.stack([angle.cos(), angle.sin(), state[:, 1]], 1).float()


class HostVectorEnv(VectorEnv):
    """Envs of tensors as a vector env of arrays, for all that is not on their device; each step waits for it.

    Args:
        tensors: The envs.

    Raises:
        RLFrameError: If they do not keep to the contract.
    """

    metadata: dict[str, Any] = {'autoreset_mode': AutoresetMode.SAME_STEP}

    def __init__(self, tensors: TensorVectorEnv) -> None:
        self.tensors = tensors
        self.contract = TensorContract(tensors)
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
        info = {'final_obs': to_array(step.final_obs)} if (terminated | truncated).any() else {}
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
