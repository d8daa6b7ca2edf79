"""W8's pairs: a shipped config of rlframe, and SB3 with the hyper-parameters that rl-baselines3-zoo tuned for the same env.

Only data, so that both interpreters can import it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

ZOO = 'https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/hyperparams/'
"""Where the hyper-parameters are from: the file of the algorithm (commits: dqn.yml ce95481, ppo.yml 208b6fd, a2c.yml c6c209e,
sac.yml c94924e, qrdqn.yml 04640c9) and the entry of the env (LunarLander-v2 for LunarLander-v3, robots of v3 for v4 and v5)."""


@dataclass(frozen=True)
class Pair:
    """What both sides train, until when."""

    name: str
    """The shipped config, or the row of docs/results.md that trains it on another env."""
    env_id: str
    algorithm: str
    """SB3's class."""
    published: float
    """Mean return of rl-zoo3's agent, to be reached; for BitFlip, which the zoo has not, a share of successes."""
    budget: int
    """Env steps that rl-zoo3 trained for; where they are spent, a run has not reached the return."""
    every: int
    """Env steps between two looks at the policy."""
    zoo: dict[str, Any]
    """Hyper-parameters as in the zoo's file, for BitFlip those of our config; 'lin_X' falls linearly from X to 0."""
    config: str = ''
    """The shipped config, if the pair has another name."""
    own_budget: int | None = None
    """Env steps of rlframe, if its config needs more of them and less time."""
    cpu_seconds: float = math.inf
    """CPU seconds after which a run is cut."""

    @property
    def in_sbx(self) -> bool:
        """Whether sbx, SB3's algorithms in JAX, can train it: it has no A2C, no QR-DQN and no hindsight."""
        return self.algorithm in ('DQN', 'PPO', 'SAC') and 'hindsight' not in self.zoo

    @property
    def file(self) -> str:
        """Name of the config file."""
        return f'{self.config or self.name}.py'


_WIDE = {'net_arch': [256, 256]}
_DQN_250 = {
    'learning_rate': 6.3e-4,
    'batch_size': 128,
    'buffer_size': 50_000,
    'learning_starts': 0,
    'gamma': 0.99,
    'target_update_interval': 250,
    'train_freq': 4,
    'gradient_steps': -1,
    'exploration_fraction': 0.12,
    'exploration_final_eps': 0.1,
    'policy_kwargs': _WIDE,
}
_CARTPOLE_DQN = {
    'learning_rate': 2.3e-3,
    'batch_size': 64,
    'buffer_size': 100_000,
    'learning_starts': 1000,
    'gamma': 0.99,
    'target_update_interval': 10,
    'train_freq': 256,
    'gradient_steps': 128,
    'exploration_fraction': 0.16,
    'exploration_final_eps': 0.04,
    'policy_kwargs': _WIDE,
}
_ROBOT_NETWORKS = {
    'log_std_init': -2,
    'ortho_init': False,
    'activation_fn': 'ReLU',
    'net_arch': {'pi': [256, 256], 'vf': [256, 256]},
}

PAIRS = (
    Pair('cartpole_dqn', 'CartPole-v1', 'DQN', 500.0, 50_000, 1000, _CARTPOLE_DQN),
    Pair(
        'cartpole_ppo',
        'CartPole-v1',
        'PPO',
        500.0,
        100_000,
        2000,
        {
            'n_envs': 8,
            'n_steps': 32,
            'batch_size': 256,
            'gae_lambda': 0.8,
            'gamma': 0.98,
            'n_epochs': 20,
            'ent_coef': 0.0,
            'learning_rate': 'lin_0.001',
            'clip_range': 'lin_0.2',
        },
    ),
    Pair('cartpole_a2c', 'CartPole-v1', 'A2C', 500.0, 500_000, 5000, {'n_envs': 8, 'ent_coef': 0.0}),
    Pair(
        'cartpole_qrdqn',
        'CartPole-v1',
        'QRDQN',
        500.0,
        50_000,
        1000,
        {**_CARTPOLE_DQN, 'policy_kwargs': {**_WIDE, 'n_quantiles': 10}},
    ),
    Pair('acrobot_dqn', 'Acrobot-v1', 'DQN', -76.6, 100_000, 2000, _DQN_250),
    Pair(
        'mountaincar_dqn',
        'MountainCar-v0',
        'DQN',
        -100.8,
        120_000,
        2000,
        {
            'learning_rate': 4e-3,
            'batch_size': 128,
            'buffer_size': 10_000,
            'learning_starts': 1000,
            'gamma': 0.98,
            'target_update_interval': 600,
            'train_freq': 16,
            'gradient_steps': 8,
            'exploration_fraction': 0.2,
            'exploration_final_eps': 0.07,
            'policy_kwargs': _WIDE,
        },
    ),
    Pair(
        'lunarlander_ppo',
        'LunarLander-v3',
        'PPO',
        242.1,
        1_000_000,
        16_384,
        {
            'n_envs': 16,
            'n_steps': 1024,
            'batch_size': 64,
            'gae_lambda': 0.98,
            'gamma': 0.999,
            'n_epochs': 4,
            'ent_coef': 0.01,
        },
    ),
    Pair('lunarlander_dqn', 'LunarLander-v3', 'DQN', 154.4, 100_000, 2000, _DQN_250),
    Pair('pendulum_sac', 'Pendulum-v1', 'SAC', -157.0, 20_000, 500, {'learning_rate': 1e-3}),
    Pair(
        'mountaincar_continuous_sac',
        'MountainCarContinuous-v0',
        'SAC',
        94.7,
        50_000,
        1000,
        {
            'learning_rate': 3e-4,
            'buffer_size': 50_000,
            'batch_size': 512,
            'ent_coef': 0.1,
            'train_freq': 32,
            'gradient_steps': 32,
            'gamma': 0.9999,
            'tau': 0.01,
            'learning_starts': 0,
            'use_sde': True,
            'policy_kwargs': {'log_std_init': -3.67, 'net_arch': [64, 64]},
        },
    ),
    Pair(
        'bitflip_dqn',
        'rlframe/BitFlip-v0',
        'DQN',
        0.98,
        60_000,
        4_000,
        {
            'n_envs': 8,
            'learning_rate': 1e-3,
            'batch_size': 128,
            'buffer_size': 100_000,
            'learning_starts': 500,
            'gamma': 0.98,
            'train_freq': 1,
            'gradient_steps': 4,
            'target_update_interval': 400,
            'exploration_initial_eps': 0.2,
            'exploration_fraction': 2 / 3,
            'exploration_final_eps': 0.0,
            'policy_kwargs': {'net_arch': [256]},
            'hindsight': {'n_sampled_goal': 4, 'goal_selection_strategy': 'future'},
        },
    ),
    Pair(
        'mujoco_hopper_ppo',
        'Hopper-v5',
        'PPO',
        2410.4,
        1_000_000,
        50_000,
        {
            'normalize': True,
            'batch_size': 32,
            'n_steps': 512,
            'gamma': 0.999,
            'learning_rate': 9.80828e-05,
            'ent_coef': 0.00229519,
            'clip_range': 0.2,
            'n_epochs': 5,
            'gae_lambda': 0.99,
            'max_grad_norm': 0.7,
            'vf_coef': 0.835671,
            'policy_kwargs': _ROBOT_NETWORKS,
        },
        config='mujoco_ppo',
        own_budget=3_000_000,
        cpu_seconds=900,
    ),
    Pair(
        'mujoco_walker2d_ppo',
        'Walker2d-v5',
        'PPO',
        3478.8,
        1_000_000,
        50_000,
        {
            'normalize': True,
            'batch_size': 32,
            'n_steps': 512,
            'gamma': 0.99,
            'learning_rate': 5.05041e-05,
            'ent_coef': 0.000585045,
            'clip_range': 0.1,
            'n_epochs': 20,
            'gae_lambda': 0.95,
            'max_grad_norm': 1,
            'vf_coef': 0.871923,
        },
        config='mujoco_ppo',
        own_budget=3_000_000,
        cpu_seconds=900,
    ),
    Pair(
        'mujoco_ant_ppo',
        'Ant-v4',
        'PPO',
        1327.2,
        1_000_000,
        50_000,
        {'normalize': True},
        config='mujoco_ppo',
        own_budget=3_000_000,
        cpu_seconds=900,
    ),
    Pair(
        'mujoco_halfcheetah_crossq',
        'HalfCheetah-v5',
        'SAC',
        9535.5,
        1_000_000,
        10_000,
        {'learning_starts': 10_000},
        config='mujoco_crossq',
        own_budget=200_000,
        cpu_seconds=900,
    ),
)


def pair_of(name: str) -> Pair:
    """Returns the pair of a name."""
    (found,) = (pair for pair in PAIRS if pair.name == name)
    return found
