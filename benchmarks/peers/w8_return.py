"""W8 of SB3, and of sbx, its algorithms in JAX: trains with rl-zoo3's hyper-parameters until the published return, or to the
end of the published budget.

usage: w8_return.py sb3|sbx PAIR SEED [ENV_STEPS]
"""

import importlib
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

warnings.filterwarnings('ignore')
sys.path.append(str(Path(__file__).parents[1]))
import bit_flip_env  # noqa: E402, F401  registers it
import stable_baselines3  # noqa: E402
from return_pairs import Pair, pair_of  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.vec_env import VecNormalize  # noqa: E402
from until_return import UntilReturn  # noqa: E402


LIBRARIES = {'sb3': 'stable_baselines3', 'sbx': 'sbx'}
"""Module of each side."""


class Watch(BaseCallback):
    """Ends training when the return is reached."""

    def __init__(self, watch: UntilReturn) -> None:
        super().__init__()
        self._watch = watch

    def _on_step(self) -> bool:
        return not self._watch.is_over(self.num_timesteps)


def scheduled(value: Any) -> Any:
    """Returns SB3's schedule for the zoo's 'lin_X', and other values as they are."""
    if not (isinstance(value, str) and value.startswith('lin_')):
        return value
    start = float(value.removeprefix('lin_'))
    return lambda remaining: remaining * start


def stacked(rows: list[Any]) -> Any:
    """Returns observations as columns, by name if they have parts."""
    if isinstance(rows[0], dict):
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return np.stack(rows)


def algorithm_of(side: str, name: str) -> Any:
    """Returns the class of an algorithm."""
    module = 'sb3_contrib' if name == 'QRDQN' else LIBRARIES[side]
    return getattr(importlib.import_module(module), name)


def activation_of(side: str, name: str) -> Any:
    """Returns a nonlinearity, by its name in torch."""
    return getattr(torch.nn, name) if side == 'sb3' else getattr(importlib.import_module('jax').nn, name.lower())


def make_model(side: str, algorithm: Any, pair: Pair, seed: int) -> Any:
    """Makes model and envs as rl-zoo3 does; the logger writes nothing."""
    options = {name: scheduled(value) for name, value in pair.zoo.items()}
    env = make_vec_env(pair.env_id, options.pop('n_envs', 1), seed=seed)
    if options.pop('normalize', False):
        env = VecNormalize(env, gamma=options.get('gamma', 0.99))
    networks = options.get('policy_kwargs', {})
    if 'activation_fn' in networks:
        options['policy_kwargs'] = networks | {'activation_fn': activation_of(side, networks['activation_fn'])}
    if 'hindsight' in options:
        options['replay_buffer_class'] = stable_baselines3.HerReplayBuffer
        options['replay_buffer_kwargs'] = options.pop('hindsight')
    policy = 'MultiInputPolicy' if isinstance(env.observation_space, spaces.Dict) else 'MlpPolicy'
    return algorithm(policy, env, seed=seed, device='cpu', **options)


def main(side: str, name: str, seed: int, env_steps: int | None = None) -> None:
    """Trains once and prints what was measured."""
    torch.set_num_threads(1)
    if side == 'sbx':  # XLA has threads of its own
        os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    pair, models = pair_of(name), []
    algorithm = algorithm_of(side, pair.algorithm)  # before the clock starts: imports are not counted

    def act(rows: list[Any]) -> Any:
        obs = stacked(rows)
        normalizer = models[0].get_vec_normalize_env()
        seen = obs if normalizer is None else normalizer.normalize_obs(obs)
        return models[0].predict(seen, deterministic=True)[0]

    watch = UntilReturn(
        pair.env_id,
        pair.published,
        pair.every,
        seed,
        act,
        pair.cpu_seconds,
    )
    models.append(make_model(side, algorithm, pair, seed))
    models[0].learn(env_steps or pair.budget, callback=Watch(watch))
    watch.print_result(side, models[0].num_timesteps)


if __name__ == '__main__':
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
