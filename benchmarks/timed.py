"""Times the parts of rlframe that the workloads compare: training, collection, cycles of a replay buffer."""

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from rlframe.config import compile_config
from rlframe.pipeline import SerialPipeline
from rlframe.pipeline.build import collector_backend, make_factory, make_policy


def timed_training(main_config: dict, create_config: dict, env_steps: int) -> dict:
    """Times the training loop alone: envs, networks and the run folder exist before the clock starts."""
    cfg = compile_config(main_config, create_config, seed=0, max_env_step=env_steps)
    with SerialPipeline(cfg) as pipeline:
        pipeline.evaluator.should_eval = lambda *_: False
        start = perf_counter()
        while not pipeline.finished:
            pipeline.step()
        seconds = perf_counter() - start
        done = pipeline.progress
        return {'seconds': seconds, 'env_steps': done.envstep, 'updates': done.train_iter}


def timed_collection(cfg: Any, env_num: int, env_steps: int) -> dict:
    """Times the collector of a config alone, after its first call."""
    factory = make_factory(cfg)
    place = collector_backend(cfg, factory)
    collector = place.make_collector(cfg, make_policy(cfg, factory.spec))
    collect = partial(collector.collect, policy_kwargs={'eps': 0.1})
    collect()
    count, start = 0, perf_counter()
    while count < env_steps:
        count += len(collect())
    seconds = perf_counter() - start
    collector.close()
    return {
        'env_num': env_num,
        'env_steps': count,
        'seconds': seconds,
        'env_steps_per_s': count / seconds,
    }


def step_ready(env: Any, action: int) -> int:
    """Does one action in all envs that are ready, resets those that finished, and returns how many stepped."""
    ready = env.ready
    timestep = env.step(np.full(len(ready), action), ready)
    if timestep.done.any():
        env.reset(timestep.env_id[timestep.done])
    return len(timestep.env_id)


def timed_cycles(push: Callable[[], None], sample_and_update: Callable[[], None], cycles: int) -> dict:
    """Times ``cycles`` rounds, the pushes apart; the same clock as in peers/w3_buffer.py."""
    for _ in range(20):
        push()
        sample_and_update()
    push_seconds, start = 0.0, perf_counter()
    for _ in range(cycles):
        before = perf_counter()
        push()
        push_seconds += perf_counter() - before
        sample_and_update()
    seconds = perf_counter() - start
    return {'us_cycle': seconds / cycles * 1e6, 'us_push': push_seconds / cycles * 1e6}
