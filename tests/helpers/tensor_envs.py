"""Envs of tensors whose every value tells where it comes from, broken ones, and a policy that repeats what it was given."""

from __future__ import annotations

from typing import Any

import torch
from fakes import ScriptedPolicy, counted_reward
from gymnasium import spaces

from rlframe.data import Batch
from rlframe.data.faces import TensorMode
from rlframe.envs.tensor import TensorVectorEnv, TorchCartPole
from rlframe.envs.tensor_manager import TensorEnvManager

CPU = torch.device('cpu')


class CountingTensors(TensorVectorEnv):
    """Its obs is (env number, episode, step), as that of ``CountingEnv``; it writes each into the same tensor.

    Args:
        num_envs: Number of envs.
        lengths: Steps of an episode: of all envs, or of each.
        ending: 'terminated' or 'truncated'.
    """

    single_observation_space = spaces.Box(-torch.inf, torch.inf, (3,))
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int, lengths: int | list[int] = 5, ending: str = 'terminated') -> None:
        self.num_envs, self.device, self._ending = num_envs, CPU, ending
        self._lengths = torch.as_tensor(lengths).expand(num_envs)
        self._obs = torch.zeros(num_envs, 3)
        self._obs[:, 0], self._obs[:, 1] = torch.arange(num_envs), -1
        self.seeds: list[int | None] = []
        self.frames = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        self._obs[:, 1] += 1
        self._obs[:, 2] = 0
        return self._obs, {}

    def step(self, actions: torch.Tensor) -> Any:
        self.frames += self.num_envs
        self._obs[:, 2] += 1
        final, done = self._obs.clone(), self._obs[:, 2] >= self._lengths
        self._obs[:, 1] += done
        self._obs[done, 2] = 0
        never = torch.zeros_like(done)
        flags = (done, never) if self._ending == 'terminated' else (never, done)
        return self._obs, counted_reward(*final.unbind(1)), *flags, {'final_obs': final}

    def state_dict(self) -> dict[str, Any]:
        return {'obs': self._obs}

    def load_state_dict(self, state: Any) -> None:
        self._obs = state['obs'].clone()


def counting_tensors(env_num: int, **options: Any) -> TensorEnvManager:
    """Returns a manager of counting envs of tensors."""
    return TensorEnvManager(CountingTensors(env_num, **options))


class StatelessCartPole(TorchCartPole):
    """CartPole whose state cannot be saved."""

    state_dict = load_state_dict = property()  # type: ignore[assignment]  # as if they were not defined


class Changed(TorchCartPole):
    """CartPole with one tensor of a step replaced.

    Args:
        num_envs: Number of envs.
        place: Which of the five values; 4 is the last observation.
        change: A function of the tensor; None: there is no last observation.
        after: Steps that are as they should be.
    """

    def __init__(self, num_envs: int, place: int = 0, change: Any = None, after: int = 0) -> None:
        super().__init__(num_envs, 'cpu')
        self._place, self._change, self._left = place, change, after

    def step(self, actions: torch.Tensor) -> Any:
        answer = list(super().step(actions))
        self._left -= 1
        if self._left >= 0:
            return tuple(answer)
        if self._place < 4:
            answer[self._place] = self._change(answer[self._place])
        elif self._change is None:
            answer[4] = {}
        else:
            answer[4] = {'final_obs': self._change(answer[4]['final_obs'])}
        return tuple(answer)


class ScriptedTensors(ScriptedPolicy):
    """A ``ScriptedPolicy`` that acts by tensors, and returns all rows of a block as samples."""

    def __init__(self, **facts: Any) -> None:
        mode = TensorMode(CPU, self.forward_tensors, self.samples)
        super().__init__(tensor_mode=mode, on_policy=True, **facts)

    def forward_tensors(self, obs: torch.Tensor, generator: torch.Generator, **settings: Any) -> Any:
        self.given_settings.append(settings)
        action = torch.zeros(len(obs), dtype=torch.int64)
        return action, {'action': action, 'told': obs}

    def samples(self, block: Batch) -> Batch:
        self.blocks.append(block)
        return block.map(lambda column: column.flatten(0, 1))
