"""W8 of SB3: trains with rl-zoo3's hyper-parameters until the published return, or to the end of the published budget.

usage: w8_return.py CONFIG SEED [ENV_STEPS]
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import torch

warnings.filterwarnings('ignore')
sys.path.append(str(Path(__file__).parents[1]))
import stable_baselines3  # noqa: E402
from return_pairs import Pair, pair_of  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from until_return import UntilReturn  # noqa: E402


class Watch(BaseCallback):
    """Ends training when the return is reached."""

    def __init__(self, watch: UntilReturn) -> None:
        super().__init__()
        self._watch = watch

    def _on_step(self) -> bool:
        return not self._watch.is_reached(self.num_timesteps)


def scheduled(value: Any) -> Any:
    """Returns SB3's schedule for the zoo's 'lin_X', and other values as they are."""
    if not (isinstance(value, str) and value.startswith('lin_')):
        return value
    start = float(value.removeprefix('lin_'))
    return lambda remaining: remaining * start


def make_model(pair: Pair, seed: int) -> Any:
    """Makes model and envs as rl-zoo3 does; the logger writes nothing."""
    options = {name: scheduled(value) for name, value in pair.zoo.items()}
    env = make_vec_env(pair.env_id, options.pop('n_envs', 1), seed=seed)
    if pair.algorithm == 'QRDQN':
        from sb3_contrib import QRDQN as algorithm  # noqa: N811
    else:
        algorithm = getattr(stable_baselines3, pair.algorithm)
    return algorithm('MlpPolicy', env, seed=seed, device='cpu', **options)


def main(config: str, seed: int, env_steps: int | None = None) -> None:
    """Trains once and prints what was measured."""
    torch.set_num_threads(1)
    pair, models = pair_of(config), []
    watch = UntilReturn(
        pair.env_id,
        pair.published,
        pair.every,
        seed,
        lambda obs: models[0].predict(obs, deterministic=True)[0],
    )
    models.append(make_model(pair, seed))
    models[0].learn(env_steps or pair.budget, callback=Watch(watch))
    watch.print_result('sb3', models[0].num_timesteps)


if __name__ == '__main__':
    main(sys.argv[1], *map(int, sys.argv[2:]))
