"""W1 of the peers: DQN on CartPole-v1, 8 envs, 5 updates of batch 64 after each step of the 8.

MLP 4-128-128-64-2 ReLU, Adam 1e-3, discount 0.97, buffer of 20,000, hard target update every 100 updates, no evaluation.
Seconds are those of the training loop alone.

usage: w1_dqn.py limit|sb3|tianshou|ding [ENV_STEPS]
"""

from time import perf_counter

import numpy as np
import torch
from harness import HIDDEN, cartpoles, q_network, quiet, run

ENV_NUM, UPDATES, BATCH, CAPACITY, GAMMA, WARM_UP = 8, 5, 64, 20_000, 0.97, 64


class Columns:
    """A ring of transitions in numpy arrays."""

    def __init__(self) -> None:
        self.obs = np.zeros((CAPACITY, 4), np.float32)
        self.next_obs = np.zeros((CAPACITY, 4), np.float32)
        self.action = np.zeros(CAPACITY, np.int64)
        self.reward = np.zeros(CAPACITY, np.float32)
        self.terminated = np.zeros(CAPACITY, np.float32)
        self.position = self.size = 0

    def push(self, obs, action, reward, terminated, next_obs) -> None:
        slot = np.arange(self.position, self.position + ENV_NUM) % CAPACITY
        self.obs[slot], self.next_obs[slot] = obs, next_obs
        self.action[slot], self.reward[slot], self.terminated[slot] = action, reward, terminated
        self.position = (self.position + ENV_NUM) % CAPACITY
        self.size = min(self.size + ENV_NUM, CAPACITY)

    def sample(self, rng: np.random.Generator) -> list[torch.Tensor]:
        slot = rng.integers(0, self.size, BATCH)
        columns = (self.obs, self.action, self.reward, self.terminated, self.next_obs)
        return [torch.from_numpy(column[slot]) for column in columns]


def limit(env_steps: int = 20_000) -> dict:
    """A loop written by hand, with nothing of a framework: numpy ring, vector env, plain torch."""
    env, rng, data = cartpoles(ENV_NUM), np.random.default_rng(0), Columns()
    online, target = q_network(), q_network()
    target.load_state_dict(online.state_dict())
    adam = torch.optim.Adam(online.parameters(), 1e-3)
    obs, _ = env.reset(seed=0)
    updates, start = 0, perf_counter()
    for step in range(0, env_steps, ENV_NUM):
        with torch.no_grad():
            action = online(torch.from_numpy(obs)).argmax(1).numpy()
        explores = rng.random(ENV_NUM) < max(0.1, 0.95 - step / 10_000)
        action[explores] = rng.integers(0, 2, explores.sum())
        following, reward, terminated, _, info = env.step(action)
        last = following
        if 'final_obs' in info:
            ended = info['_final_obs']
            last = following.copy()
            last[ended] = np.stack(info['final_obs'][ended])
        data.push(obs, action, reward, terminated, last)
        obs = following
        if data.size < WARM_UP:
            continue
        for _ in range(UPDATES):
            update(online, target, adam, data.sample(rng))
            updates += 1
            if updates % 100 == 0:
                target.load_state_dict(online.state_dict())
    return {'seconds': perf_counter() - start, 'env_steps': env_steps, 'updates': updates}


def update(online, target, adam, batch: list[torch.Tensor]) -> None:
    obs, action, reward, terminated, next_obs = batch
    with torch.no_grad():
        wanted = reward + GAMMA * (1 - terminated) * target(next_obs).max(1).values
    value = online(obs).gather(1, action[:, None])[:, 0]
    loss = torch.nn.functional.mse_loss(value, wanted)
    adam.zero_grad(set_to_none=True)
    loss.backward()
    adam.step()


def sb3(env_steps: int = 20_000) -> dict:
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_vec_env

    model = DQN(
        'MlpPolicy',
        make_vec_env('CartPole-v1', ENV_NUM),
        learning_rate=1e-3,
        buffer_size=CAPACITY,
        learning_starts=WARM_UP,
        batch_size=BATCH,
        gamma=GAMMA,
        train_freq=1,
        gradient_steps=UPDATES,
        target_update_interval=160,  # env steps: 100 updates
        policy_kwargs={'net_arch': HIDDEN},
        device='cpu',
    )
    start = perf_counter()
    model.learn(env_steps)
    return {'seconds': perf_counter() - start, 'env_steps': env_steps, 'updates': model._n_updates}


def tianshou(env_steps: int = 20_000) -> dict:
    import gymnasium as gym
    import tianshou as ts
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.trainer import OffPolicyTrainerParams
    from tianshou.utils.net.common import Net

    quiet()
    env = gym.make('CartPole-v1')
    policy = DiscreteQLearningPolicy(
        model=Net(state_shape=(4,), action_shape=2, hidden_sizes=HIDDEN),
        action_space=env.action_space,
        eps_training=0.3,
        eps_inference=0.0,
    )
    algorithm = ts.algorithm.DQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=1e-3),
        gamma=GAMMA,
        n_step_return_horizon=1,
        target_update_freq=100,
    )
    envs = ts.env.DummyVectorEnv([lambda: gym.make('CartPole-v1')] * ENV_NUM)
    buffer = ts.data.VectorReplayBuffer(CAPACITY, ENV_NUM)
    collector = ts.data.Collector(algorithm, envs, buffer, exploration_noise=True)
    collector.reset()
    collector.collect(n_step=WARM_UP)
    params = OffPolicyTrainerParams(
        training_collector=collector,
        test_collector=None,
        max_epochs=1,
        epoch_num_steps=env_steps,
        collection_step_num_env_steps=ENV_NUM,
        batch_size=BATCH,
        update_step_num_gradient_steps_per_sample=UPDATES / ENV_NUM,
        test_in_training=False,
        show_progress=False,
        verbose=False,
    )
    start = perf_counter()
    result = algorithm.run_training(params)
    seconds = perf_counter() - start
    # its update_step counts rounds of UPDATES gradient steps
    return {'seconds': seconds, 'env_steps': env_steps, 'updates': result.update_step * UPDATES}


def ding(env_steps: int = 20_000) -> dict:
    import ding.entry.serial_entry as entry
    from ding.worker import BaseLearner
    from ding_clock import cartpole_config, clock_of_training
    from easydict import EasyDict

    policy = {
        'cuda': False,
        'model': {'obs_shape': 4, 'action_shape': 2, 'encoder_hidden_size_list': HIDDEN, 'dueling': False},
        'nstep': 1,
        'discount_factor': GAMMA,
        'learn': {
            'update_per_collect': UPDATES,
            'batch_size': BATCH,
            'learning_rate': 1e-3,
            'target_update_freq': 100,
        },
        'collect': {'n_sample': ENV_NUM},
        'eval': {'evaluator': {'eval_freq': 10**9}},
        'other': {
            'eps': {'type': 'exp', 'start': 0.95, 'end': 0.1, 'decay': 10_000},
            'replay_buffer': {'replay_buffer_size': CAPACITY},
        },
    }
    buffer = EasyDict(type='deque', import_names=['ding.data.buffer.deque_buffer_wrapper'])
    main, create = cartpole_config('dqn', policy, ENV_NUM)
    create.replay_buffer = buffer
    updates, train = [0], BaseLearner.train

    def counting_train(self, *args, **kwargs) -> None:
        updates[0] += 1
        train(self, *args, **kwargs)

    BaseLearner.train = counting_train
    seconds = clock_of_training(lambda: entry.serial_pipeline((main, create), seed=0, max_env_step=env_steps))
    return {'seconds': seconds, 'env_steps': env_steps, 'updates': updates[0]}


if __name__ == '__main__':
    run({'limit': limit, 'sb3': sb3, 'tianshou': tianshou, 'ding': ding})
