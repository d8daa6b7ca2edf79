"""Updates of Stable-Baselines3 on any device, by its own ``train()``, for ../gpu.py.

Each function takes the device and the rows of a batch, fills the buffer of an algorithm with random rows, and returns a
function that trains from it and returns how many updates that took. SB3 keeps its rows on the host and copies each batch.
"""

from collections.abc import Callable
from functools import partial

import gymnasium as gym
import numpy as np

UPDATES_PER_CALL = 16


class SpacesEnv(gym.Env):
    """An env of which only the spaces matter."""

    def __init__(self, observation_space: gym.Space, action_space: gym.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def box(size: int, bound: float = 1.0) -> gym.spaces.Box:
    return gym.spaces.Box(-bound, bound, (size,), np.float32)


IMAGES = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)


def without_log(model):
    """Gives an algorithm the logger that ``learn`` would, without outputs."""
    from stable_baselines3.common.logger import Logger

    model.set_logger(Logger(None, []))
    return model


def ppo(device: str, size: int, images: bool = False) -> Callable[[], int]:
    """4 epochs of 4 minibatches from a round of rows."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    obs, actions = (IMAGES, 6) if images else (box(4), 2)
    env = DummyVecEnv([lambda: SpacesEnv(obs, gym.spaces.Discrete(actions))] * 8)
    kind = 'CnnPolicy' if images else 'MlpPolicy'
    options = {} if images else {'policy_kwargs': {'net_arch': [64, 64]}}
    model = without_log(
        PPO(kind, env, n_steps=size // 2, batch_size=size, n_epochs=4, ent_coef=0.01, device=device, **options)
    )
    buffer, rng = model.rollout_buffer, np.random.default_rng(0)
    buffer.observations[:] = rng.integers(0, 256, buffer.observations.shape) if images else 0.5
    buffer.actions[:] = rng.integers(0, actions, buffer.actions.shape)
    for name in ('rewards', 'advantages', 'returns', 'values'):
        getattr(buffer, name)[:] = rng.standard_normal(buffer.rewards.shape)
    buffer.log_probs[:] = -1.4
    buffer.pos, buffer.full = buffer.buffer_size, True

    def update() -> int:
        model.train()
        return 4 * 4

    return update


def off_policy(algorithm: str, kind: str, obs: gym.Space, action: gym.Space, device: str, size: int, **options):
    """Any algorithm with a replay buffer, which gets 1,000 random rows."""
    import stable_baselines3

    env = SpacesEnv(obs, action)
    cls = getattr(stable_baselines3, algorithm)
    model = without_log(cls(kind, env, buffer_size=1000, batch_size=size, device=device, **options))
    for space in (obs, action):
        space.seed(0)
    for _ in range(1000):
        rows = [space.sample()[None] for space in (obs, obs)]
        model.replay_buffer.add(*rows, np.array([action.sample()]), np.ones(1), np.zeros(1, bool), [{}])

    def update() -> int:
        model.train(UPDATES_PER_CALL, size)
        return UPDATES_PER_CALL

    return update


def dqn(device: str, size: int) -> Callable[[], int]:
    """DQN, which is not double, with Nature's CNN."""
    return off_policy('DQN', 'CnnPolicy', IMAGES, gym.spaces.Discrete(6), device, size)


def continuous(device: str, size: int, algorithm: str) -> Callable[[], int]:
    """SAC or TD3 with networks of 256-256."""
    options = {'policy_kwargs': {'net_arch': [256, 256]}}
    return off_policy(algorithm, 'MlpPolicy', box(17), box(6), device, size, **options)


UPDATES: dict[str, Callable[[str, int], Callable[[], int]]] = {
    'ppo': ppo,
    'ppo_images': partial(ppo, images=True),
    'dqn_images_32': dqn,
    'dqn_images_256': dqn,
    'sac': partial(continuous, algorithm='SAC'),
    'td3': partial(continuous, algorithm='TD3'),
}
"""Workloads of ../gpu_workloads.py that SB3 has."""
