"""What the peers' halves share: network, vector env, clock and output. Needs torch and gymnasium only."""

import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

warnings.filterwarnings('ignore')
HIDDEN = [128, 128, 64]


def run(peers: dict[str, Callable[..., dict[str, Any]]]) -> None:
    """Runs the peer named on the command line with the sizes behind it, and prints what it measured as one JSON line."""
    torch.set_num_threads(1)
    name, *sizes = sys.argv[1:]
    start = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # whatever a peer writes is not to be left behind
        measured = peers[name](*map(int, sizes))
        os.chdir(start)
    print(json.dumps({'peer': name, **measured}), flush=True)


def q_network() -> torch.nn.Sequential:
    """The network of W1 and W2: 4-128-128-64-2, ReLU."""
    from torch import nn

    layers: list[nn.Module] = []
    for inner, outer in zip([4, *HIDDEN], HIDDEN, strict=False):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(HIDDEN[-1], 2))


def cartpoles(env_num: int) -> Any:
    """Gymnasium's own vector env, with SAME_STEP resets: no row of it is a mere reset."""
    import gymnasium as gym

    mode = gym.vector.AutoresetMode.SAME_STEP
    return gym.make_vec(
        'CartPole-v1',
        env_num,
        vectorization_mode='sync',
        vector_kwargs={'autoreset_mode': mode},
    )


def quiet() -> None:
    """Silences the log of a library."""
    logging.disable(logging.CRITICAL)


def timed_cycles(
    push: Callable[[], Any], sample_and_update: Callable[[], Any], cycles: int
) -> dict[str, float]:
    """Times ``cycles`` rounds of a replay buffer, the pushes apart."""
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
