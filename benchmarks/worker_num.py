"""Env steps per second by the number of worker processes, for cheap and costly envs, in turns.

usage: python benchmarks/worker_num.py [--env-num 8] [--rounds 5] [--seconds 1]

Steps CartPoles that compute for some microseconds more, without policy or recording, in this process (``base``) and in 1, 2,
4, ... workers (``subprocess``). The last column tells how the default number of workers compares with the fastest one: the
median over rounds of the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from rlframe.registry import ENV_MANAGER_REGISTRY
from rlframe.run.machine import usable_cores

sys.path.append(str(Path(__file__).parent / 'peers'))
from busy import Busy

MICROSECONDS = 0, 50, 200, 1000
"""Additional time of an env step."""


def worker_counts(env_num: int) -> list[int]:
    """Returns the numbers of workers to measure: powers of 2, and the default."""
    return sorted({2**i for i in range(env_num.bit_length())} | {min(usable_cores(), env_num)})


def rate(env: Any, seconds: float) -> float:
    """Returns the env steps per second of an env manager that is stepped for so long."""
    action, steps, start = np.zeros(env.env_num, np.int64), 0, perf_counter()
    while perf_counter() - start < seconds:
        timestep = env.step(action, env.ready)
        steps += len(timestep.env_id)
        if timestep.done.any():
            env.reset(timestep.env_id[timestep.done])
    return steps / (perf_counter() - start)


def measured(microseconds: int, env_num: int, rounds: int, seconds: float) -> str:
    """Returns the row of one cost of an env step."""
    make = [partial(Busy, microseconds)] * env_num
    default, counts = min(usable_cores(), env_num), worker_counts(env_num)
    subprocess = ENV_MANAGER_REGISTRY.get('subprocess')
    envs = {0: ENV_MANAGER_REGISTRY.get('base')(make, {})}
    envs |= {count: subprocess(make, {'worker_num': count}) for count in counts}
    try:
        for env in envs.values():
            env.reset(seed=list(range(env_num)))
            rate(env, seconds / 5)
        spent = [{count: rate(env, seconds) for count, env in envs.items()} for _ in range(rounds)]
    finally:
        for env in envs.values():
            env.close()
    medians = {count: statistics.median(one[count] for one in spent) for count in envs}
    best = max(counts, key=medians.__getitem__)
    ratio = statistics.median(one[default] / one[best] for one in spent)
    return f'| {microseconds:,} | {" | ".join(f"{one:,.0f}" for one in medians.values())} | {best} | {ratio:.2f}x |'


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--env-num', type=int, default=8)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--seconds', type=float, default=1.0, help='of each number of workers in each round')
    args = parser.parse_args()
    counts = worker_counts(args.env_num)
    print(f'| extra us | base | {" | ".join(map(str, counts))} | fastest | default / fastest |')
    print('|---' * (len(counts) + 4) + '|')
    for microseconds in MICROSECONDS:
        print(measured(microseconds, args.env_num, args.rounds, args.seconds), flush=True)


if __name__ == '__main__':
    main()
