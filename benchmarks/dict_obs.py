"""Trains PPO in envs with observations of several parts: returns and CPU seconds by what actor and critic share, and those of SB3.

usage: python benchmarks/dict_obs.py [ENV ...] [--seeds 0 1 2] [--peer]

ENV is one of those in ``ENVS``. Each run collects 2,048 env steps in 8 envs and learns from them in 10 epochs of batches of 64, on both sides.
``--peer`` needs stable_baselines3. docs/training.md has the numbers.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import rlframe

EPISODES = 50
"""Episodes behind the training, whose mean return is printed."""


class Parts(gym.ObservationWrapper):
    """Names parts of observations; parts that are no numbers are left out."""

    def __init__(self, env, parts):
        super().__init__(env)
        self._parts = parts
        self.observation_space = spaces.Dict({name: space for name, (space, _) in parts.items()})

    def observation(self, obs):
        return {name: read(obs) for name, (_, read) in self._parts.items()}


def cartpole(**kwargs):
    """CartPole: cart and pole."""
    env = gym.make('CartPole-v1', **kwargs)
    low, high = env.observation_space.low, env.observation_space.high
    halves = {'cart': slice(0, 2), 'pole': slice(2, 4)}
    return Parts(
        env,
        {
            name: (spaces.Box(low[at], high[at], dtype=np.float32), lambda obs, at=at: obs[at])
            for name, at in halves.items()
        },
    )


def _minigrid(env):
    return Parts(
        env,
        {
            name: (env.observation_space[name], lambda obs, name=name: obs[name])
            for name in ('direction', 'image')
        },
    )


def minigrid(**kwargs):
    """MiniGrid: a direction and 7 x 7 cells."""
    import minigrid as _  # noqa: F401  it registers the ids

    return _minigrid(gym.make('MiniGrid-Empty-Random-5x5-v0', **kwargs))


def pixels(**kwargs):
    """MiniGrid: a direction and 42 x 42 pixels."""
    from minigrid.wrappers import RGBImgPartialObsWrapper

    return _minigrid(RGBImgPartialObsWrapper(gym.make('MiniGrid-Empty-5x5-v0', **kwargs), tile_size=6))


CELLS = {'policy.model.conv_layers': None}
ENVS = {
    'cartpole': (cartpole, 20_000, {}),
    'cells': (minigrid, 30_000, CELLS),
    'numbers': (minigrid, 30_000, {}),
    'pixels': (pixels, 30_000, {}),
}
"""Envs, env steps and options: 'cells' are read by convolutions, 'numbers' are the same as one vector."""


def ours(name, seed, share):
    """Returns the mean return and the CPU seconds of a run that shares that."""
    env, steps, options = ENVS[name]
    fixed = {'env.stop_value': 1e9, 'policy.eval.evaluator.eval_freq': 10**9}
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        run = rlframe.train(
            env=env,
            policy='ppo',
            seed=seed,
            max_env_step=steps,
            folder=Path(folder) / 'run',
            progress=False,
            overrides={**fixed, **options, 'policy.model.share_encoder': share},
        )
        seconds = time.process_time() - begun
        return run.evaluate(episodes=EPISODES, which='latest').mean, seconds


def theirs(name, seed):
    """Returns the same of SB3; None where its convolutions do not fit."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    env, steps, options = ENVS[name]
    if options is CELLS:
        return None
    if env is minigrid:  # whole numbers would be an image
        env = float_cells
    begun = time.process_time()
    fixed = {'n_steps': 256, 'batch_size': 64, 'n_epochs': 10, 'learning_rate': 3e-4, 'ent_coef': 0.01}
    model = PPO('MultiInputPolicy', make_vec_env(env, n_envs=8, seed=seed), seed=seed, **fixed)
    model.learn(steps)
    seconds = time.process_time() - begun
    return evaluate_policy(model, make_vec_env(env, seed=100 + seed), n_eval_episodes=EPISODES)[0], seconds


def float_cells(**kwargs):
    """MiniGrid whose cells are numbers from 0 to 1."""
    env = minigrid(**kwargs)
    box = spaces.Box(0, 1, (7, 7, 3), np.float32)
    parts = {
        'direction': (env.observation_space['direction'], lambda obs: obs['direction']),
        'image': (box, lambda obs: obs['image'].astype(np.float32) / 255),
    }
    return Parts(env, parts)


def main():
    """Prints a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('envs', nargs='*', default=list(ENVS), metavar='ENV')
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2])
    parser.add_argument('--peer', action='store_true')
    args = parser.parse_args()
    if unknown := sorted(set(args.envs) - set(ENVS)):
        parser.error(f'no env {unknown[0]!r}; there are {", ".join(ENVS)}')
    for name in args.envs:
        for seed in args.seeds:
            sides = {f'share_encoder={share!r}': ours(name, seed, share) for share in (False, 'images', True)}
            if args.peer and (found := theirs(name, seed)) is not None:
                sides['sb3'] = found
            for side, (score, seconds) in sides.items():
                print(
                    f'{name:9} seed {seed}  {side:24} return {score:8.3f}  {seconds:6.1f} s of CPU',
                    flush=True,
                )


if __name__ == '__main__':
    main()
