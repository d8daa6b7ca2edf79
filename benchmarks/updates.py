"""CPU time of an update of each policy, with and without ``policy.compile``, in turns.

usage: python benchmarks/updates.py [NAME ...] [--rounds 5] [--updates 50]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault('OMP_NUM_THREADS', '1')  # before torch is imported

import numpy as np
import torch
from gymnasium import spaces

from rlframe.data import Batch, EnvSpec
from rlframe.policy import create_policy

VECTOR, IMAGES = (4,), (4, 84, 84)


class Case(NamedTuple):
    """An update to measure."""

    policy: str
    batch_size: int
    hidden: tuple[int, ...]
    obs: tuple[int, ...] = VECTOR
    is_continuous: bool = False

    @property
    def title(self) -> str:
        """What is measured, in words."""
        network = 'Nature CNN' if self.obs == IMAGES else 'MLP ' + '-'.join(map(str, self.hidden))
        return f'{self.policy}, {network}, {self.batch_size} samples'


CASES = {
    'c51': Case('c51', 64, (128, 128)),
    'qrdqn': Case('qrdqn', 64, (128, 128)),
    'dqn': Case('dqn', 64, (128, 128)),
    'dqn_images': Case('dqn', 32, (512,), IMAGES),
    'ppo': Case('ppo', 256, (64, 64)),
    'sac_discrete': Case('sac_discrete', 64, (64, 64)),
    'sac': Case('sac', 64, (64, 64), is_continuous=True),
    'sac_256': Case('sac', 256, (256, 256), is_continuous=True),
    'td3': Case('td3', 256, (256, 256), is_continuous=True),
}


def batch_of(case: Case) -> Batch:
    """Returns random samples."""
    rng, count = np.random.default_rng(0), case.batch_size

    def obs() -> np.ndarray:
        shape = (count, *case.obs)
        if case.obs == IMAGES:
            return rng.integers(0, 256, shape, np.uint8)
        return rng.standard_normal(shape, np.float32)

    if case.is_continuous:
        action = rng.uniform(-1, 1, (count, 2)).astype(np.float32)
    else:
        action = rng.integers(0, 4, count)
    numbers = {name: rng.standard_normal(count, np.float32) for name in ('reward', 'advantage', 'return_')}
    return Batch(
        obs=obs(),
        next_obs=obs(),
        action=action,
        terminated=rng.random(count) < 0.05,
        log_prob=np.full(count, -1.4, np.float32),
        **numbers,
    )


def update_of(case: Case, compiles: bool) -> Callable[[], Any]:
    """Returns a function that updates a new policy once."""
    images = case.obs == IMAGES
    obs = spaces.Box(0, 255, case.obs, np.uint8) if images else spaces.Box(-1, 1, case.obs)
    action = spaces.Box(-1, 1, (2,)) if case.is_continuous else spaces.Discrete(4)
    learn = dict(batch_size=case.batch_size) | (dict(epoch_per_collect=1) if case.policy == 'ppo' else {})
    model = dict(encoder_hidden_size_list=list(case.hidden)) | (dict(encoder='nature') if images else {})
    cfg = dict(type=case.policy, cuda=False, compile=compiles, model=model, learn=learn)
    policy, data = create_policy(cfg, EnvSpec(obs, action), seed=0), batch_of(case)

    def update() -> None:
        result = policy.learn_mode.forward(data)
        if not isinstance(result, dict):
            for one in result:
                one()

    return update


def measured(case: Case, rounds: int, updates: int) -> str:
    """Returns the row of a case."""
    sides = {compiles: update_of(case, compiles) for compiles in (False, True)}
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
