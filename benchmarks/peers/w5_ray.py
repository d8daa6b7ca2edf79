"""W5 of the peers: collection in Ray actors of 8 envs each under one epsilon-greedy MLP 4-128-128-64-2.

Batches of 4,000 transitions for each actor; the first batch, until which everything starts, is not part of the rate.

usage: w5_ray.py in_process|one_actor|torchrl_sync|torchrl_async|rllib [ACTORS] [MICROSECONDS] [ENV_STEPS]
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from harness import q_network, quiet, run

BATCH = 4000
"""Transitions of one actor in a batch."""
RAY = {'address': 'local', 'num_cpus': 2, 'include_dashboard': False, 'log_to_driver': False}


def measured(actors: int, env_steps: int, begin: float, collect: Callable[[], int]) -> dict:
    """Times a function that collects and returns how many transitions it has brought."""
    collect()
    start, count = perf_counter(), 0
    while count < env_steps:
        count += collect()
    seconds = perf_counter() - start
    return {
        'actors': actors,
        'env_steps': count,
        'seconds': seconds,
        'startup_s': start - begin,
        'env_steps_per_s': count / seconds,
    }


def own(actors: int, microseconds: int, env_steps: int) -> dict:
    """Runs rlframe's half with another number of actors."""
    folder = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(folder), str(folder.parent)]
    os.environ['PYTHONPATH'] = str(folder.parent)  # for the actors
    from rlframe_side import w5

    return w5(actors, microseconds, env_steps)


def in_process(actors: int = 1, microseconds: int = 0, env_steps: int = 40_000) -> dict:
    """rlframe's own collector without Ray: 8 envs in one process."""
    return own(0, microseconds, env_steps)


def one_actor(actors: int = 1, microseconds: int = 0, env_steps: int = 40_000) -> dict:
    """rlframe's own collector in a single actor."""
    return own(1, microseconds, env_steps)


def torchrl_sync(actors: int = 1, microseconds: int = 0, env_steps: int = 40_000) -> dict:
    return torchrl(actors, env_steps, sync=True)


def torchrl_async(actors: int = 1, microseconds: int = 0, env_steps: int = 40_000) -> dict:
    return torchrl(actors, env_steps, sync=False)


def torchrl(actors: int, env_steps: int, sync: bool) -> dict:
    from torchrl.collectors import Collector
    from torchrl.collectors.distributed import RayCollector
    from torchrl.envs import GymEnv, SerialEnv
    from torchrl.modules import QValueActor

    quiet()
    begin = perf_counter()

    def cartpole() -> GymEnv:
        return GymEnv('CartPole-v1', categorical_action_encoding=True)

    spec = cartpole().action_spec
    policy = QValueActor(q_network(), in_keys=['observation'], spec=spec, action_space='categorical')
    collector = RayCollector(
        [lambda: SerialEnv(8, cartpole)] * actors,
        policy,
        collector_class=Collector,
        frames_per_batch=BATCH * (actors if sync else 1),
        total_frames=10**9,
        sync=sync,
        ray_init_config=RAY,
        remote_configs={'num_cpus': 1, 'num_gpus': 0},
        num_collectors=actors,
    )
    batches = iter(collector)
    result = measured(actors, env_steps, begin, lambda: next(batches).numel())
    collector.shutdown()
    return result


def rllib(actors: int = 1, microseconds: int = 0, env_steps: int = 40_000) -> dict:
    import ray
    from ray.rllib.algorithms.dqn import DQNConfig
    from ray.rllib.env.env_runner_group import EnvRunnerGroup

    quiet()
    begin = perf_counter()
    ray.init(**RAY)
    config = (
        DQNConfig()
        .environment('CartPole-v1')
        .env_runners(
            num_env_runners=actors, num_envs_per_env_runner=8, rollout_fragment_length=BATCH // 8
        )
        .rl_module(model_config={'fcnet_hiddens': [128, 128, 64], 'fcnet_activation': 'relu'})
    )
    group = EnvRunnerGroup(config=config, local_env_runner=False)

    def count(runner) -> int:
        return sum(len(episode) for episode in runner.sample(num_timesteps=BATCH))

    result = measured(actors, env_steps, begin, lambda: sum(group.foreach_env_runner(count)))
    group.stop()
    ray.shutdown()
    return result


if __name__ == '__main__':
    sides = (in_process, one_actor, torchrl_sync, torchrl_async, rllib)
    run({side.__name__: side for side in sides})
