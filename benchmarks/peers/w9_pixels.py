"""W9 of the peers: Pong of 84 x 84 x 4 pixels, Nature's CNN.

sb3 collects with its own Atari wrappers; raw collects by hand over Gymnasium's AtariPreprocessing; update_limit is one
update of DQN from stacks that lie ready; cleanrl is PPO with the settings of CleanRL's ppo_atari_envpool.

usage: w9_pixels.py sb3|raw|update_limit|cleanrl [SIZE ...]
"""

import copy
from itertools import cycle
from time import perf_counter

import numpy as np
import torch
from harness import run
from torch import nn
from torch.nn import functional

EPS, GAMMA, LAMBDA, CLIP = 0.1, 0.99, 0.95, 0.1


def nature() -> nn.Sequential:
    """The convolutions of Nature's DQN and its hidden layer."""
    return nn.Sequential(
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(3136, 512), nn.ReLU()),
    )


def measured(env_steps: int, seconds: float) -> dict:
    return {'env_steps': env_steps, 'seconds': seconds, 'env_steps_per_s': env_steps / seconds}


def sb3(env_num: int = 8, env_steps: int = 4096) -> dict:
    """DQN without updates, so collection and its replay buffer alone."""
    import ale_py
    import gymnasium
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gymnasium.register_envs(ale_py)
    model = DQN(
        'CnnPolicy',
        VecFrameStack(make_atari_env('PongNoFrameskip-v4', env_num, seed=0), 4),
        learning_starts=0,
        buffer_size=env_steps,
        train_freq=env_steps // env_num,
        gradient_steps=0,
        exploration_initial_eps=EPS,
        exploration_final_eps=EPS,
        device='cpu',
    )
    model.learn(10 * env_num)
    start = perf_counter()
    model.learn(env_steps, reset_num_timesteps=False)
    return measured(env_steps, perf_counter() - start)


def raw(env_num: int = 8, env_steps: int = 4096) -> dict:
    """A loop written by hand, which keeps every step in a list."""
    import ale_py
    import gymnasium as gym
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    gym.register_envs(ale_py)

    def make() -> gym.Env:
        env = gym.make('ALE/Pong-v5', frameskip=1, repeat_action_probability=0.0, obs_type='grayscale')
        return FrameStackObservation(AtariPreprocessing(env), 4)

    env = gym.vector.SyncVectorEnv([make] * env_num, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    network, rng, kept = nn.Sequential(nature(), nn.Linear(512, 6)), np.random.default_rng(0), []
    obs, _ = env.reset(seed=0)
    start = perf_counter()
    for _ in range(env_steps // env_num):
        with torch.no_grad():
            action = network(torch.from_numpy(obs).float() / 255).argmax(1).numpy()
        explores = rng.random(env_num) < EPS
        action[explores] = rng.integers(0, 6, explores.sum())
        following, reward, terminated, truncated, _ = env.step(action)
        kept.append((obs, action, reward, terminated, truncated, following))
        obs = following
    return measured(env_steps // env_num * env_num, perf_counter() - start)


def dqn_update(batch_size: int, device: str = 'cpu', count: int = 8):
    """Returns one update of double DQN with a target network, from batches that lie on a device."""
    rng = np.random.default_rng(0)
    online = nn.Sequential(nature(), nn.Linear(512, 6)).to(device)
    target = copy.deepcopy(online).requires_grad_(False)
    adam = torch.optim.Adam(online.parameters(), 1e-4, fused=True)

    def batch() -> list[torch.Tensor]:
        frames = [torch.from_numpy(rng.integers(0, 256, (batch_size, 4, 84, 84), np.uint8)) for _ in range(2)]
        action, reward = rng.integers(0, 6, batch_size), rng.standard_normal(batch_size, np.float32)
        rest = [torch.from_numpy(action), torch.from_numpy(reward), torch.from_numpy(reward < -2)]
        return [column.to(device) for column in (*frames, *rest)]

    stream = cycle([batch() for _ in range(count)])

    def update() -> None:
        obs, next_obs, action, reward, terminated = next(stream)
        obs, next_obs = obs.float() / 255, next_obs.float() / 255
        with torch.no_grad():
            best = online(next_obs).argmax(1, keepdim=True)
            wanted = reward + GAMMA * torch.where(terminated, 0.0, target(next_obs).gather(1, best)[:, 0])
        value = online(obs).gather(1, action[:, None])[:, 0]
        adam.zero_grad()
        functional.mse_loss(value, wanted).backward()
        adam.step()

    return update


def update_limit(updates: int = 100, batch_size: int = 32) -> dict:
    """One update of double DQN from stacks that lie ready."""
    update = dqn_update(batch_size)
    for _ in range(5):
        update()
    start = perf_counter()
    for _ in range(updates):
        update()
    return {'us_cycle': (perf_counter() - start) / updates * 1e6, 'updates': updates}


class Agent(nn.Module):
    """Actor and critic on one encoder, with orthogonal weights."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.actor, self.critic = nature(), nn.Linear(512, 6), nn.Linear(512, 1)
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                gain = 0.01 if layer is self.actor else 1.0 if layer is self.critic else 2**0.5
                nn.init.orthogonal_(layer.weight, gain)
                nn.init.zeros_(layer.bias)

    def forward(self, obs: torch.Tensor) -> tuple[torch.distributions.Categorical, torch.Tensor]:
        features = self.encoder(obs / 255.0)
        return torch.distributions.Categorical(logits=self.actor(features)), self.critic(features)[:, 0]


def cleanrl(env_num: int = 8, env_steps: int = 4096, steps: int = 128) -> dict:
    """PPO in EnvPool: 8 envs x 128 steps, 4 epochs of 4 minibatches."""
    import envpool

    options = dict(episodic_life=True, reward_clip=True, seed=0, num_threads=2)
    env = envpool.make('Pong-v5', env_type='gymnasium', num_envs=env_num, **options)
    agent = Agent()
    adam = torch.optim.Adam(agent.parameters(), 2.5e-4, eps=1e-5)
    obs, done = torch.from_numpy(env.reset()[0]), torch.zeros(env_num)

    def round_of(obs: torch.Tensor, done: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept: list[list[torch.Tensor]] = []
        for _ in range(steps):
            with torch.no_grad():
                chosen, value = agent(obs)
                action = chosen.sample()
            following, reward, terminated, truncated, _ = env.step(action.numpy())
            kept.append([obs, action, chosen.log_prob(action), value, torch.from_numpy(reward), done])
            obs, done = torch.from_numpy(following), torch.from_numpy(terminated | truncated).float()
        columns = [torch.stack(column) for column in zip(*kept, strict=True)]
        learn(columns, obs, done)
        return obs, done

    def learn(columns: list[torch.Tensor], last_obs: torch.Tensor, last_done: torch.Tensor) -> None:
        all_obs, action, log_prob, value, reward, ended = columns
        with torch.no_grad():
            next_value = agent(last_obs)[1]
        advantage, running = torch.zeros_like(reward), torch.zeros(env_num)
        for t in reversed(range(steps)):
            goes_on = 1 - (last_done if t == steps - 1 else ended[t + 1])
            following = next_value if t == steps - 1 else value[t + 1]
            running = reward[t] + GAMMA * following * goes_on - value[t] + GAMMA * LAMBDA * goes_on * running
            advantage[t] = running
        flat = [x.flatten(0, 1) for x in (all_obs, action, log_prob, value, advantage, advantage + value)]
        size = env_num * steps
        for _ in range(4):
            for rows in torch.randperm(size).chunk(4):
                update(*(column[rows] for column in flat))

    def update(obs, action, log_prob, value, advantage, return_) -> None:
        chosen, new_value = agent(obs)
        ratio = (chosen.log_prob(action) - log_prob).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
        near = value + (new_value - value).clamp(-CLIP, CLIP)
        value_loss = 0.5 * torch.max((new_value - return_).square(), (near - return_).square()).mean()
        loss = policy_loss - 0.01 * chosen.entropy().mean() + 0.5 * value_loss
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        adam.step()

    start = perf_counter()
    for _ in range(env_steps // (env_num * steps)):
        obs, done = round_of(obs, done)
    return measured(env_steps // (env_num * steps) * env_num * steps, perf_counter() - start)


if __name__ == '__main__':
    run({'sb3': sb3, 'raw': raw, 'update_limit': update_limit, 'cleanrl': cleanrl})
