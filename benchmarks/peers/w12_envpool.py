"""W12 of the peers: PPO on Hopper-v5 in EnvPool, 64 envs x 64 steps a round, 8 epochs of minibatches of 1,024.

Actor and critic are MLPs of 64-64 tanh; nothing is normalised. sb3 gets the pool as a VecEnv, which resets the envs that are
done; cleanrl is a loop as CleanRL's ppo_atari_envpool and ppo_continuous_action write it.

usage: w12_envpool.py sb3|cleanrl [ENV_STEPS]
"""

from time import perf_counter

import envpool
import numpy as np
import torch
from harness import run
from torch import nn

ENVS, STEPS, EPOCHS, BATCH = 64, 64, 8, 1024
GAMMA, LAMBDA, CLIP, RATE = 0.99, 0.95, 0.2, 3e-4


def hoppers():
    return envpool.make('Hopper-v5', env_type='gymnasium', num_envs=ENVS, num_threads=1, seed=0)


def measured(env_steps: int, start: float) -> dict:
    seconds = perf_counter() - start
    return {'env_steps': env_steps, 'seconds': seconds, 'env_steps_per_s': env_steps / seconds}


def sb3(env_steps: int = 49_152) -> dict:
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecEnv, VecMonitor

    class Pool(VecEnv):
        """A pool of EnvPool, in the interface of SB3."""

        def __init__(self):
            self.pool = hoppers()
            super().__init__(ENVS, self.pool.observation_space, self.pool.action_space)

        def reset(self):
            return self.pool.reset()[0].astype(np.float32)

        def step_async(self, actions):
            self.actions = actions.astype(np.float64)

        def step_wait(self):
            obs, reward, terminated, truncated, _ = self.pool.step(self.actions)
            done, infos = terminated | truncated, [{} for _ in range(ENVS)]
            if done.any():
                over = np.flatnonzero(done).astype(np.int32)
                for env in over:
                    infos[env]['terminal_observation'] = obs[env].astype(np.float32)
                    infos[env]['TimeLimit.truncated'] = bool(truncated[env] and not terminated[env])
                obs[over] = self.pool.reset(over)[0]
            return obs.astype(np.float32), reward.astype(np.float32), done, infos

        def close(self): ...

        def get_attr(self, name, indices=None):
            return [None] * ENVS

        def set_attr(self, name, value, indices=None): ...

        def env_method(self, name, *args, indices=None, **kwargs): ...

        def env_is_wrapped(self, wrapper, indices=None):
            return [False] * ENVS

    model = PPO(
        'MlpPolicy',
        VecMonitor(Pool()),
        n_steps=STEPS,
        batch_size=BATCH,
        n_epochs=EPOCHS,
        learning_rate=RATE,
        device='cpu',
        policy_kwargs={'net_arch': [64, 64]},
    )
    start = perf_counter()
    model.learn(env_steps)
    return measured(env_steps, start)


class Agent(nn.Module):
    """Actor and critic of CleanRL's ppo_continuous_action."""

    def __init__(self, obs_size: int, action_size: int) -> None:
        super().__init__()

        def layers(out: int, gain: float) -> nn.Sequential:
            found = [nn.Linear(obs_size, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out)]
            for layer in found[::2]:
                nn.init.orthogonal_(layer.weight, gain if layer is found[-1] else 2**0.5)
                nn.init.zeros_(layer.bias)
            return nn.Sequential(*found)

        self.critic, self.actor = layers(1, 1.0), layers(action_size, 0.01)
        self.log_std = nn.Parameter(torch.zeros(1, action_size))

    def forward(self, obs: torch.Tensor) -> tuple[torch.distributions.Normal, torch.Tensor]:
        mean = self.actor(obs)
        return torch.distributions.Normal(mean, self.log_std.expand_as(mean).exp()), self.critic(obs)[:, 0]


def cleanrl(env_steps: int = 49_152) -> dict:
    pool = hoppers()
    agent = Agent(pool.observation_space.shape[0], pool.action_space.shape[0])
    adam = torch.optim.Adam(agent.parameters(), RATE, eps=1e-5)
    low, high = pool.action_space.low, pool.action_space.high

    def update(obs, action, log_prob, value, advantage, return_) -> None:
        chosen, new_value = agent(obs)
        log_ratio = chosen.log_prob(action).sum(1) - log_prob
        ratio = log_ratio.exp()
        with torch.no_grad():  # what it logs
            ((ratio - 1) - log_ratio).mean(), ((ratio - 1).abs() > CLIP).float().mean().item()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
        near = value + (new_value - value).clamp(-CLIP, CLIP)
        value_loss = 0.5 * torch.max((new_value - return_).square(), (near - return_).square()).mean()
        loss = policy_loss + 0.5 * value_loss - 0.0 * chosen.entropy().sum(1).mean()
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        adam.step()

    start = perf_counter()
    obs, done = torch.from_numpy(pool.reset()[0]).float(), torch.zeros(ENVS)
    for _ in range(env_steps // (ENVS * STEPS)):
        kept: list[list[torch.Tensor]] = []
        for _ in range(STEPS):
            with torch.no_grad():
                chosen, value = agent(obs)
                action = chosen.sample()
                log_prob = chosen.log_prob(action).sum(1)
            step = pool.step(np.clip(action.double().numpy(), low, high))
            kept.append([obs, action, log_prob, value, torch.from_numpy(step[1]).float(), done])
            obs, done = torch.from_numpy(step[0]).float(), torch.from_numpy(step[2] | step[3]).float()
        all_obs, action, log_prob, value, reward, ended = (
            torch.stack(column) for column in zip(*kept, strict=True)
        )
        with torch.no_grad():
            next_value = agent(obs)[1]
        advantage, running = torch.zeros_like(reward), torch.zeros(ENVS)
        for t in reversed(range(STEPS)):
            goes_on = 1 - (done if t == STEPS - 1 else ended[t + 1])
            following = next_value if t == STEPS - 1 else value[t + 1]
            running = reward[t] + GAMMA * following * goes_on - value[t] + GAMMA * LAMBDA * goes_on * running
            advantage[t] = running
        flat = [x.flatten(0, 1) for x in (all_obs, action, log_prob, value, advantage, advantage + value)]
        for _ in range(EPOCHS):
            for rows in torch.randperm(ENVS * STEPS).split(BATCH):
                update(*(column[rows] for column in flat))
    return measured(env_steps, start)


if __name__ == '__main__':
    run({'sb3': sb3, 'cleanrl': cleanrl})
