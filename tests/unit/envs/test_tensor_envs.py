"""Envs of tensors: the physics of Gymnasium, the contract, and their manager by arrays and by tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from error_texts import raises
from fakes import STEP, ScriptedPolicy
from gymnasium import spaces
from tensor_envs import Changed, counting_tensors

from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.tensor import TorchCartPole, TorchPendulum, device_of
from rlframe.envs.tensor_manager import TensorEnvManager
from rlframe.envs.vector_env import GymVectorEnvManager
from rlframe.errors import DeviceError, EnvContractError, EnvError, EnvStartError, IncompatibleError
from rlframe.worker.collector.rollout import Rollout


def cartpole_action(obs: np.ndarray, step: int, rng: np.random.Generator) -> np.ndarray:
    """Balances the pole for a while and then no longer, so that episodes have different lengths."""
    balanced = (obs[:, 2] + 0.5 * obs[:, 3] + 0.1 * obs[:, 1] > 0).astype(np.int64)
    is_random = rng.random(len(obs)) < np.linspace(0.0, 0.6, len(obs))
    return np.where(is_random, rng.integers(2, size=len(obs)), balanced)


def pendulum_action(obs: np.ndarray, step: int, rng: np.random.Generator) -> np.ndarray:
    """Draws torques, some of them too large."""
    return rng.uniform(-2.5, 2.5, (len(obs), 1)).astype(np.float32)


@pytest.mark.parametrize(
    ('kind', 'act'), [(TorchCartPole, cartpole_action), (TorchPendulum, pendulum_action)]
)
def test_episodes_equal_those_of_gymnasium_from_start_to_end(kind: Any, act: Callable[..., Any]) -> None:
    count, rng = 4, np.random.default_rng(3)
    envs = kind(count, 'cpu')
    obs, _ = envs.reset(seed=5)
    others = [gymnasium.make(kind.env_id) for _ in range(count)]
    for other, state in zip(others, envs._state.numpy(), strict=True):
        other.reset(seed=0)
        other.unwrapped.state = state.copy()
    lengths, alive = np.zeros(count, int), np.ones(count, bool)
    for step in range(envs.spec.max_episode_steps):
        action = act(obs.numpy(), step, rng)
        obs, reward, terminated, truncated, info = envs.step(torch.from_numpy(action))
        for i in np.flatnonzero(alive):
            want = others[i].step(action[i])
            np.testing.assert_allclose(info['final_obs'][i].numpy(), want[0], rtol=2e-6, atol=2e-6)
            assert reward[i].item() == pytest.approx(float(want[1]), rel=2e-6)
            assert (terminated[i].item(), truncated[i].item()) == (want[2], want[3])
            lengths[i] += 1
        alive &= ~(terminated | truncated).numpy()
    assert not alive.any() and lengths.max() == envs.spec.max_episode_steps
    assert kind is TorchPendulum or lengths.min() < 200
    assert envs.single_observation_space == others[0].observation_space
    assert envs.single_action_space == others[0].action_space


@pytest.mark.parametrize('kind', [TorchCartPole, TorchPendulum])
def test_the_seed_decides_and_first_states_are_those_of_gymnasium(kind: Any) -> None:
    envs = kind(4000, 'cpu')
    first = [envs.reset(seed=seed)[0] for seed in (1, 1, 2)]
    assert torch.equal(first[0], first[1]) and not torch.equal(first[0], first[2])
    assert not torch.equal(envs.reset()[0], first[2]), 'a reset without a seed continues with the generator'
    assert not torch.equal(kind(2, 'cpu').reset()[0], kind(2, 'cpu').reset()[0])
    high = np.array([0.05] * 4 if kind is TorchCartPole else [np.pi, 1.0])
    np.testing.assert_allclose(envs._state.numpy().max(0), high, rtol=0.01)
    np.testing.assert_allclose(envs._state.numpy().min(0), -high, rtol=0.01)


def test_a_device_that_is_not_there_is_refused() -> None:
    assert device_of('auto').type in ('cpu', 'cuda')
    with raises(DeviceError):
        TorchCartPole(2, 'cuda:77')


BROKEN = {
    'shape': (0, lambda x: x[:, :3]),
    'dtype': (0, lambda x: x.double()),
    'device': (0, lambda x: x.to('meta')),
    'an array': (0, lambda x: x.numpy()),
    'a column of rewards': (1, lambda x: x[:, None]),
    'float flags': (2, lambda x: x.float()),
    'int flags': (3, lambda x: x.long()),
    'last obs of some': (4, lambda x: x[:1]),
    'no last obs': (4, None),
}


@pytest.mark.parametrize(
    ('case', 'after'), [*((case, 20) for case in BROKEN), ('shape', 0), ('float flags', 0)]
)
def test_tensors_that_are_not_as_declared_are_refused_by_name(case: str, after: int) -> None:
    place, change = BROKEN[case]
    manager = TensorEnvManager(Changed(4, place, change, after))
    manager.reset(seed=[1, 2, 3, 4])
    action = torch.zeros(4, dtype=torch.int64)
    for _ in range(after):
        manager.device_step(action)
    with raises(EnvContractError):
        manager.device_step(action)


def test_envs_that_declare_what_they_cannot_are_refused() -> None:
    class Nested(TorchCartPole):
        def __init__(self, num_envs: int) -> None:
            super().__init__(num_envs, 'cpu')
            self.single_observation_space = spaces.Dict(a=self.single_observation_space)

    class NextStep(TorchCartPole):
        metadata: dict[str, Any] = {}

    class NoDevice(TorchCartPole):
        def __init__(self, num_envs: int) -> None:
            super().__init__(num_envs, 'cpu')
            self.device = 'cpu'  # type: ignore[assignment]

    class OldReset(TorchCartPole):
        def reset(self, **options: Any) -> Any:
            return super().reset(**options)[0]

    for kind, error in (
        (Nested, IncompatibleError),
        (NextStep, EnvContractError),
        (NoDevice, EnvContractError),
    ):
        with raises(error):
            TensorEnvManager(kind(3))
    with raises(EnvContractError):
        TensorEnvManager(OldReset(3, 'cpu')).reset(seed=[0, 1, 2])


def test_env_and_manager_that_do_not_fit_are_refused() -> None:
    for section, error in (
        (dict(env_id='CartPole-v1'), EnvError),
        (dict(env_id=TorchCartPole, frame_stack=2), EnvError),
        (dict(env_id=TorchCartPole, action_mask=True), EnvError),
        (dict(env_id=TorchCartPole, wrappers=['FlattenObservation']), EnvError),
        (dict(env_id=TorchCartPole, kwargs=dict(colour=1)), EnvStartError),
    ):
        with raises(error):
            TensorEnvManager.from_factory(GymEnvFactory(section), 2)
    with raises(EnvError):
        GymVectorEnvManager.from_factory(GymEnvFactory(dict(env_id=TorchCartPole)), 2)


def test_arrays_and_tensors_may_take_turns() -> None:
    manager = counting_tensors(2, lengths=[3, 4])
    manager.reset(seed=[1, 2])
    rollout = Rollout(manager, ScriptedPolicy().collect_mode)
    steps = []
    for turn in range(8):
        if turn % 3 == 2:
            final = manager.device_step(torch.zeros(2, dtype=torch.int64)).final_obs.numpy()
            manager._fetch()
        else:
            final = rollout.step().timestep.obs
        steps.append(final[:, STEP].tolist())
    assert steps == [[1, 1], [2, 2], [3, 3], [1, 4], [2, 1], [3, 2], [1, 3], [2, 4]]
    assert manager._episodes.steps.tolist() == [2, 0] and manager._episodes.number.tolist() == [3, 3]


def test_a_state_that_does_not_fit_begins_anew_and_says_so() -> None:
    manager, other = TensorEnvManager(TorchCartPole(3, 'cpu')), TensorEnvManager(TorchCartPole(3, 'cpu'))
    manager.reset(seed=[1, 2, 3])
    manager.device_step(torch.ones(3, dtype=torch.int64))
    state = manager.state_dict()
    state['envs']['all']['tensors']['generator'] = torch.zeros(16, dtype=torch.uint8)  # as CUDA has them
    assert other.load_state_dict(state).tolist() == [0, 1, 2]
    assert 'generator' in other.unsaved[0] and len(other.unsaved) == 3
