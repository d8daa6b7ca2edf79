"""W2 of the peers: collection only, CartPole-v1 under one epsilon-greedy (0.1) MLP 4-128-128-64-2.

Data is kept as the system keeps it, in its buffer or as a returned batch. Transitions per second; rows that are mere
resets do not count.

usage: w2_collect.py raw|native|sb3|tianshou|ding [ENV_NUM] [ENV_STEPS]
"""

from time import perf_counter

import numpy as np
import torch
from harness import HIDDEN, cartpoles, q_network, quiet, run

EPS = 0.1


def measured(env_num: int, env_steps: int, seconds: float) -> dict:
    return {
        'env_num': env_num,
        'env_steps': env_steps,
        'seconds': seconds,
        'env_steps_per_s': env_steps / seconds,
    }


def raw(env_num: int = 8, env_steps: int = 40_000) -> dict:
    """A loop written by hand over Gymnasium's SyncVectorEnv, which keeps every step in a list."""
    return hand_written(cartpoles(env_num), env_num, env_steps, resets_cost_a_step=False)


def native(env_num: int = 64, env_steps: int = 40_000) -> dict:
    """The same loop over CartPole's own vector env, whose resets take a step of the env."""
    import gymnasium as gym

    env = gym.make_vec('CartPole-v1', env_num, vectorization_mode='vector_entry_point')
    return hand_written(env, env_num, env_steps, resets_cost_a_step=True)


def hand_written(env, env_num: int, env_steps: int, resets_cost_a_step: bool) -> dict:
    network, rng, kept = q_network(), np.random.default_rng(0), []
    obs, _ = env.reset(seed=0)
    resets, done = 0, np.zeros(env_num, bool)
    start = perf_counter()
    for _ in range(env_steps // env_num):
        with torch.no_grad():
            action = network(torch.from_numpy(obs)).argmax(1).numpy()
        explores = rng.random(env_num) < EPS
        action[explores] = rng.integers(0, 2, explores.sum())
        following, reward, terminated, truncated, _ = env.step(action)
        kept.append((obs, action, reward, terminated, truncated, following))
        obs = following
        if resets_cost_a_step:
            resets += int(done.sum())
            done = terminated | truncated
    seconds = perf_counter() - start
    return measured(env_num, env_steps // env_num * env_num - resets, seconds)


def sb3(env_num: int = 8, env_steps: int = 40_000) -> dict:
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_vec_env

    model = DQN(
        'MlpPolicy',
        make_vec_env('CartPole-v1', env_num),
        learning_starts=0,
        buffer_size=env_steps,
        train_freq=env_steps // env_num,
        gradient_steps=0,
        exploration_initial_eps=EPS,
        exploration_final_eps=EPS,
        policy_kwargs={'net_arch': HIDDEN},
        device='cpu',
    )
    start = perf_counter()
    model.learn(env_steps)
    return measured(env_num, env_steps, perf_counter() - start)


def tianshou(env_num: int = 8, env_steps: int = 40_000) -> dict:
    import gymnasium as gym
    import tianshou as ts
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.utils.net.common import Net

    quiet()
    policy = DiscreteQLearningPolicy(
        model=Net(state_shape=(4,), action_shape=2, hidden_sizes=HIDDEN),
        action_space=gym.make('CartPole-v1').action_space,
        eps_training=EPS,
        eps_inference=0.0,
    )
    algorithm = ts.algorithm.DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3))
    envs = ts.env.DummyVectorEnv([lambda: gym.make('CartPole-v1')] * env_num)
    buffer = ts.data.VectorReplayBuffer(env_steps, env_num)
    collector = ts.data.Collector(algorithm, envs, buffer, exploration_noise=True)
    collector.reset()
    collector.collect(n_step=env_num * 10)
    start = perf_counter()
    collector.collect(n_step=env_steps)
    return measured(env_num, env_steps, perf_counter() - start)


def ding(env_num: int = 8, env_steps: int = 40_000) -> dict:
    from ding.config import compile_config
    from ding.envs import BaseEnvManager
    from ding.policy import DQNPolicy
    from ding.worker import (
        AdvancedReplayBuffer,
        BaseLearner,
        InteractionSerialEvaluator,
        SampleSerialCollector,
    )
    from ding_clock import cartpole_config
    from dizoo.classic_control.cartpole.envs.cartpole_env import CartPoleEnv

    quiet()
    section = {
        'cuda': False,
        'model': {'obs_shape': 4, 'action_shape': 2, 'encoder_hidden_size_list': HIDDEN, 'dueling': False},
        'nstep': 1,
        'discount_factor': 0.97,
        'learn': {'update_per_collect': 1, 'batch_size': 64, 'learning_rate': 1e-3},
        'collect': {'n_sample': env_num * 100},
        'other': {
            'eps': {'type': 'exp', 'start': 0.95, 'end': 0.1, 'decay': 10_000},
            'replay_buffer': {'replay_buffer_size': 20_000},
        },
    }
    cfg = compile_config(
        cartpole_config('dqn', section, env_num)[0],
        BaseEnvManager,
        DQNPolicy,
        BaseLearner,
        SampleSerialCollector,
        InteractionSerialEvaluator,
        AdvancedReplayBuffer,
        save_cfg=False,
    )
    env = BaseEnvManager([lambda: CartPoleEnv(cfg.env)] * env_num, cfg.env.manager)
    env.seed(0)
    face = DQNPolicy(cfg.policy).collect_mode
    collector = SampleSerialCollector(cfg.policy.collect.collector, env, face, exp_name='benchmark')
    collector.collect(policy_kwargs={'eps': EPS})
    count, start = 0, perf_counter()
    while count < env_steps:
        count += len(collector.collect(policy_kwargs={'eps': EPS}))
    return measured(env_num, count, perf_counter() - start)


if __name__ == '__main__':
    run({'raw': raw, 'native': native, 'sb3': sb3, 'tianshou': tianshou, 'ding': ding})
