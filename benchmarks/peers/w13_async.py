"""W13 of the peers: RLlib's asynchronous policy gradients with Ray actors of 8 CartPoles each.

Actors do not wait for the learner, which makes one update of each 512 steps; the first of them are not part of the rate.

usage: w13_async.py rllib_impala|rllib_appo [ACTORS] [MICROSECONDS] [ENV_STEPS]
"""

import os
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from harness import quiet, run

RAY = {'address': 'local', 'num_cpus': 2, 'include_dashboard': False, 'log_to_driver': False}


def rllib(name: str, actors: int = 2, microseconds: int = 0, env_steps: int = 40_000) -> dict:
    """Trains one of RLlib's algorithms, and returns the env steps per second."""
    quiet()
    here = str(Path(__file__).resolve().parent)
    os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, (here, os.environ.get('PYTHONPATH'))))
    import ray
    from ray.rllib.algorithms.appo import APPOConfig
    from ray.rllib.algorithms.impala import IMPALAConfig
    from ray.tune.registry import register_env

    def make(_: Any) -> Any:
        from busy import Busy

        return Busy(microseconds)

    ray.init(**RAY)
    register_env('busy', make)
    kinds: dict[str, Any] = {'impala': IMPALAConfig, 'appo': APPOConfig}
    config = (
        kinds[name]()
        .environment('busy')
        .env_runners(num_env_runners=actors, num_envs_per_env_runner=8, rollout_fragment_length=32)
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=512)
        .reporting(min_time_s_per_iteration=0)
        .rl_module(model_config={'fcnet_hiddens': [64, 64], 'fcnet_activation': 'relu'})
    )
    algorithm = config.build_algo()

    def steps() -> int:
        return int(algorithm.train().get('num_env_steps_sampled_lifetime', 0))

    first = 0
    while not first:
        first = steps()
    start, count = perf_counter(), 0
    while count < env_steps:
        count = steps() - first
    seconds = perf_counter() - start
    algorithm.stop()
    ray.shutdown()
    return {'actors': actors, 'env_steps': count, 'seconds': seconds, 'env_steps_per_s': count / seconds}


if __name__ == '__main__':
    run({f'rllib_{name}': partial(rllib, name) for name in ('impala', 'appo')})
