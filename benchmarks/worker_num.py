"""Env steps per second by the number of worker processes, for cheap and costly envs, in turns.

usage: python benchmarks/worker_num.py [--env-num 8] [--rounds 5] [--seconds 1]

Steps CartPoles that compute for some microseconds more, without policy or recording, in this process (``base``) and in 1, 2,
4, ... workers (``subprocess``), and in as many as rlframe takes by default. The last column tells how the default compares
with the fastest number: the median over rounds of the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Any

from timed import step_ready

from rlframe.registry import ENV_MANAGER_REGISTRY

sys.path.append(str(Path(__file__).parent / 'peers'))
from busy import Busy

MICROSECONDS = 0, 50, 200, 1000
"""Additional time of an env step."""


def sides(env_num: int) -> dict[str, tuple[str, dict[str, int]]]:
    """Returns the type and the options of each env manager to measure, by the title of its column."""
    counts = [2**i for i in range(env_num.bit_length())]
    fixed = {f'{count}': ('subprocess', {'worker_num': count}) for count in counts}
    return {'base': ('base', {}), 'default': ('subprocess', {})} | fixed


def rate(env: Any, seconds: float) -> float:
    """Returns the env steps per second of an env manager that is stepped for so long."""
    steps, actions, start = 0, cycle((1, 0)), perf_counter()
    while perf_counter() - start < seconds:
        steps += step_ready(env, next(actions))
    return steps / (perf_counter() - start)


def measured(microseconds: int, env_num: int, rounds: int, seconds: float) -> str:
    """Returns the row of one cost of an env step."""
    make = [partial(Busy, microseconds)] * env_num
    with ExitStack() as stack:
        envs = {}
        for name, (manager, options) in sides(env_num).items():
            envs[name] = env = ENV_MANAGER_REGISTRY.get(manager)(make, options)
            stack.callback(env.close)
            env.reset(seed=list(range(env_num)))
            rate(env, seconds / 5)
        rates = [{name: rate(env, seconds) for name, env in envs.items()} for _ in range(rounds)]
    medians = {name: statistics.median(one[name] for one in rates) for name in envs}
    best = max((name for name in envs if name.isdigit()), key=medians.__getitem__)
    ratio = statistics.median(one['default'] / one[best] for one in rates)
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
    names = list(sides(args.env_num))
    print(f'| extra us | {" | ".join(names)} | fastest | default / fastest |')
    print('|---' * (len(names) + 3) + '|')
    for microseconds in MICROSECONDS:
        print(measured(microseconds, args.env_num, args.rounds, args.seconds), flush=True)


if __name__ == '__main__':
    main()
