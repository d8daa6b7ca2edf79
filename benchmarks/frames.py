"""Measures what frames that are kept once cost in memory and time, beside stacks that are copied; one JSON line.

usage: python benchmarks/frames.py [TRANSITIONS [ENV_ID]]

Transitions of random actions in an Atari game, 8 games at a time, each with its stack of 4 frames and the next one. A buffer of
a million transitions gets as many of them as asked for; the other one, of that many, copies them. Times are medians; batches
are drawn from both in turns.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from easydict import EasyDict

from rlframe.data import Batch
from rlframe.entry.arguments import count
from rlframe.registry import ENV_MANAGER_REGISTRY, ENV_REGISTRY
from rlframe.worker.replay_buffer import create_buffer

GAMES, MILLION, DRAWN, DRAWS = 8, 1_000_000, 32, 200


def main() -> None:
    """Prints bytes and seconds."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('transitions', nargs='?', type=count, default=100_000)
    parser.add_argument('env_id', nargs='?', default='ALE/Pong-v5')
    args = parser.parse_args()
    transitions, env_id = args.transitions, args.env_id
    options = {'type': 'naive', 'frame_stack': 4}
    once = create_buffer({**options, 'replay_buffer_size': MILLION, 'frames': 'once'})
    copied = create_buffer({**options, 'replay_buffer_size': transitions, 'frames': 'copied'})
    seconds: dict[str, list[float]] = {'once': [], 'copied': []}
    for block in blocks(env_id, transitions):
        for name, buffer in (('once', once), ('copied', copied)):
            began = perf_counter()
            buffer.push(block, 0)
            seconds[name].append(perf_counter() - began)
    drawn: dict[str, list[float]] = {'once': [], 'copied': []}
    for _ in range(DRAWS):
        for name, buffer in (('once', once), ('copied', copied)):
            drawn[name].append(draw(buffer))
    pool: Any = once._storage._pool  # type: ignore[attr-defined]
    pushed = {name: median(values) / GAMES for name, values in seconds.items()}
    print(
        json.dumps(
            {
                'env': env_id,
                'transitions': once.count(),
                'frames per transition': round(pool.stop / once.count(), 4),
                'bytes of a frame': int(np.prod(pool.shape)),
                'GiB allocated for a million': round(nbytes(once) / 2**30, 2),
                'GiB copied': round(nbytes(copied) / transitions * MILLION / 2**30, 2),
                'push us': {name: round(1e6 * value, 1) for name, value in pushed.items()},
                'sample us': {name: round(1e6 * median(values)) for name, values in drawn.items()},
                'sample ratio': round(median(drawn['once']) / median(drawn['copied']), 2),
            }
        )
    )


def nbytes(buffer: Any) -> int:
    """Returns the bytes that the rows of a buffer occupy, and its frames if it keeps them apart."""
    pool = getattr(buffer._storage, '_pool', None)
    columns: int = sum(column.nbytes for column in buffer._storage._columns.values())
    return columns + (0 if pool is None else pool._frames.nbytes)


def blocks(env_id: str, transitions: int) -> Iterator[Batch]:
    """Yields blocks of one transition of each game."""
    section = EasyDict(type='atari', env_id=env_id)
    factory = ENV_REGISTRY.build(section, section)
    envs = ENV_MANAGER_REGISTRY.get_cls({'type': 'gym_vector'}).from_factory(factory, GAMES)
    envs.reset(seed=list(range(GAMES)))
    rng, every = np.random.default_rng(0), np.arange(GAMES)
    for _ in range(transitions // GAMES):
        obs, action = envs.obs.copy(), rng.integers(0, int(factory.spec.action_space.n), GAMES)  # type: ignore[attr-defined]  # it is Discrete
        step = envs.step(action, every)
        columns = dict(obs=obs, next_obs=step.obs, action=action.astype(np.uint8), reward=step.reward)
        yield Batch(columns, terminated=step.terminated, truncated=step.truncated)
        if step.done.any():
            envs.reset(step.env_id[step.done])
    envs.close()


def draw(buffer: Any) -> float:
    """Returns the seconds of drawing a batch."""
    began = perf_counter()
    buffer.sample(DRAWN, 0)
    return perf_counter() - began


if __name__ == '__main__':
    main()
