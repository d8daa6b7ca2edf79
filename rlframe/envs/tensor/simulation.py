"""CartPole and Pendulum as tensor operations: thousands of envs take as many kernels as one."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlframe.envs.tensor.interface import TensorVectorEnv, device_of
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import TENSOR, check_state, tensor_like

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


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
        self.num_envs, self.device = num_envs, device_of(device)
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
        self._state, self._steps = self._draw(), torch.zeros_like(self._steps)
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
    farthest, steepest = 2.4, 12 * 2 * math.pi / 360

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
        cosine, sine = angle.cos(), angle.sin()
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
