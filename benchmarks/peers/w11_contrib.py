"""W11 of the peers: updates of sb3-contrib's CrossQ and TQC from a full replay buffer, in the spaces of HalfCheetah.

Actor and two critics of 256-256 ReLU, batches of 256, 8 updates a call; all else are the defaults of sb3-contrib.

usage: w11_contrib.py contrib_crossq|contrib_tqc [UPDATES]
"""

from time import process_time

import gymnasium
import numpy as np
from harness import run

OBS, ACTION, BATCH, ROWS, CALL = 17, 6, 256, 20_000, 8


class Spaces(gymnasium.Env):
    """An env that is only asked for its spaces."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (ACTION,), np.float32)


def timed(kind: type, updates: int) -> dict:
    from stable_baselines3.common.logger import Logger

    model = kind(
        'MlpPolicy', Spaces(), buffer_size=ROWS, policy_kwargs={'net_arch': [256, 256]}, device='cpu', seed=0
    )
    model.set_logger(Logger(None, []))
    rng = np.random.default_rng(0)
    for _ in range(ROWS):
        obs, next_obs = rng.standard_normal((2, 1, OBS), np.float32)
        action = rng.uniform(-1, 1, (1, ACTION)).astype(np.float32)
        reward, done = rng.standard_normal(1, np.float32), rng.random(1) < 0.01
        model.replay_buffer.add(obs, next_obs, action, reward, done, [{}])
    model.train(3 * CALL, BATCH)
    start = process_time()
    for _ in range(0, updates, CALL):
        model.train(CALL, BATCH)
    seconds = process_time() - start
    count = model._n_updates - 3 * CALL
    return {'us_cycle': seconds / count * 1e6, 'updates': count}


def contrib_crossq(updates: int = 160) -> dict:
    from sb3_contrib import CrossQ

    return timed(CrossQ, updates)


def contrib_tqc(updates: int = 160) -> dict:
    from sb3_contrib import TQC

    return timed(TQC, updates)


if __name__ == '__main__':
    run({'contrib_crossq': contrib_crossq, 'contrib_tqc': contrib_tqc})
