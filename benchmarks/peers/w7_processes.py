"""W7 of the peers: envs in processes of their own, stepped as fast as they go; no policy, no record.

usage: w7_processes.py subprocess|async_vector|sb3 [ENV_NUM] [MILLISECONDS] [SLOW_MILLISECONDS] [ENV_STEPS]
"""

import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from harness import quiet, run
from sleeping import sleeping_envs

WARM_UP = 50
"""Steps of all envs before the clock starts."""


def measured(env_num: int, env_steps: int, step: Any) -> dict:
    """Times a function that steps all envs once."""
    for _ in range(WARM_UP):
        step()
    rounds = env_steps // env_num
    start = perf_counter()
    for _ in range(rounds):
        step()
    seconds = perf_counter() - start
    count = rounds * env_num
    return {'env_num': env_num, 'env_steps': count, 'seconds': seconds, 'env_steps_per_s': count / seconds}


def async_vector(env_num: int = 4, milliseconds: int = 0, slow: int = 0, env_steps: int = 40_000) -> dict:
    """Gymnasium's AsyncVectorEnv with shared memory, one process an env, SAME_STEP resets."""
    import gymnasium as gym

    mode = gym.vector.AutoresetMode.SAME_STEP
    env = gym.vector.AsyncVectorEnv(sleeping_envs(env_num, milliseconds, slow), autoreset_mode=mode)
    env.reset(seed=0)
    actions = [np.full(env_num, k) for k in (0, 1)]
    turn = iter(range(10**9))
    result = measured(env_num, env_steps, lambda: env.step(actions[next(turn) % 2]))
    env.close()
    return result


def sb3(env_num: int = 4, milliseconds: int = 0, slow: int = 0, env_steps: int = 40_000) -> dict:
    """Stable-Baselines3's SubprocVecEnv, one process an env."""
    from stable_baselines3.common.vec_env import SubprocVecEnv

    quiet()
    env = SubprocVecEnv(sleeping_envs(env_num, milliseconds, slow))
    env.reset()
    actions = [np.full(env_num, k) for k in (0, 1)]
    turn = iter(range(10**9))
    result = measured(env_num, env_steps, lambda: env.step(actions[next(turn) % 2]))
    env.close()
    return result


def subprocess(env_num: int = 4, milliseconds: int = 0, slow: int = 0, env_steps: int = 40_000) -> dict:
    """rlframe's own manager that waits for all envs, one process an env."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from rlframe.envs.async_manager import SubprocessEnvManager

    manager = SubprocessEnvManager(sleeping_envs(env_num, milliseconds, slow), {'worker_num': env_num})
    manager.reset(seed=list(range(env_num)))
    actions = [np.full(env_num, k) for k in (0, 1)]
    turn = iter(range(10**9))

    def step() -> None:
        done = manager.step(actions[next(turn) % 2], manager.ready).done
        if done.any():
            manager.reset(np.flatnonzero(done))

    result = measured(env_num, env_steps, step)
    manager.close()
    return result


if __name__ == '__main__':
    run({'subprocess': subprocess, 'async_vector': async_vector, 'sb3': sb3})
