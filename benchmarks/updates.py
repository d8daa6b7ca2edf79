"""CPU time of an update of each policy, with and without ``policy.compile``, in turns.

usage: python benchmarks/updates.py [NAME ...] [--rounds 5] [--updates 50]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault('OMP_NUM_THREADS', '1')  # before torch is imported

import torch
from update_cases import IMAGES, Case, update_of

CASES = {
    'c51': Case('c51', 64, (128, 128)),
    'qrdqn': Case('qrdqn', 64, (128, 128)),
    'dqn': Case('dqn', 64, (128, 128)),
    'dqn_images': Case('dqn', 32, (512,), IMAGES),
    'ppo': Case('ppo', 256, (64, 64)),
    'sac_discrete': Case('sac_discrete', 64, (64, 64)),
    'sac': Case('sac', 64, (64, 64), actions=2),
    'sac_256': Case('sac', 256, (256, 256), actions=2),
    'td3': Case('td3', 256, (256, 256), actions=2),
}


def measured(case: Case, rounds: int, updates: int) -> str:
    """Returns the row of a case."""
    sides = {compiles: update_of(case, compile=compiles) for compiles in (False, True)}
    sides[False]()
    start = time.perf_counter()
    sides[True]()
    first = time.perf_counter() - start
    spent: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for compiles, update in sides.items():
            start = time.process_time()
            for _ in range(updates):
                update()
            spent[compiles].append((time.process_time() - start) / updates * 1e6)
    eager, fast = (statistics.median(spent[compiles]) for compiles in (False, True))
    ratios = [one / other for one, other in zip(spent[False], spent[True], strict=True)]
    cells = f'{eager:,.0f} | {fast:,.0f} | {eager / fast:.2f}x | {min(ratios):.2f} to {max(ratios):.2f}'
    return f'| {case.title} | {cells} | {first:.0f} |'


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('names', nargs='*', metavar='NAME', help=f'of {", ".join(CASES)}; all by default')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--updates', type=int, default=50, help='in each round')
    args = parser.parse_args()
    if unknown := sorted(set(args.names) - set(CASES)):
        parser.error(f'no case {unknown[0]!r}; there are {", ".join(CASES)}')
    torch.set_num_threads(1)
    print(
        '| update | eager, us | compiled, us | ratio | min to max | first update, s |\n|---|---|---|---|---|---|'
    )
    for name in args.names or CASES:
        print(measured(CASES[name], args.rounds, args.updates), flush=True)


if __name__ == '__main__':
    main()
