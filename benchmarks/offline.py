"""CPU time of an update of each offline policy, and of d3rlpy's, in turns on the same arrays, by one thread.

usage: python benchmarks/offline.py PEER_PYTHON [NAME ...] [--rounds 7] [--updates 100]

PEER_PYTHON is the interpreter of an environment with d3rlpy 2.8. An update includes reading its batch from 20,000 recorded
rows of 17 numbers and actions of 6, or one of 6; batches have 256 rows, all networks two layers of 256.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ['OMP_NUM_THREADS'] = '1'  # before torch is imported

import numpy as np
from arguments import program

from rlframe import config
from rlframe.entry.arguments import count
from rlframe.pipeline import SerialPipeline

PEER = Path(__file__).parent / 'peers' / 'w14_offline.py'
WIDTHS = {'encoder_hidden_size_list': [256, 256]}
CASES: dict[str, dict[str, Any]] = {
    'td3_bc': {},
    'iql': {},
    'awac': {},
    'rebrac': {'model': {'norm': None}},
    'cql': {'learn': {'num_actions': 10}},
    'cql_bf16': {'precision': 'bf16', 'learn': {'num_actions': 10}},
    'cql_4': {'learn': {'num_actions': 4}},
    'discrete_cql': {'model': {'dueling': False}},
    'discrete_bcq': {'model': {'dueling': False}},
    'bcq': {},
}
"""Options of each case, whose name begins with the policy."""


def recorded(path: Path, is_discrete: bool, rows: int = 20_000) -> None:
    """Writes random transitions in episodes of 200."""
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((rows + 1, 17), np.float32)
    action = rng.integers(6, size=rows) if is_discrete else rng.uniform(-1, 1, (rows, 6)).astype(np.float32)
    truncated = np.arange(1, rows + 1) % 200 == 0
    np.savez(
        path,
        obs=obs[:-1],
        next_obs=obs[1:],
        action=action,
        reward=rng.standard_normal(rows, np.float32),
        terminated=np.zeros(rows, bool),
        truncated=truncated,
        episode=np.arange(rows) // 200,
    )


def ours(name: str, data: str) -> None:
    """Does as many updates as it is told, and answers with the CPU time they took."""
    policy = name.removesuffix('_4').removesuffix('_bf16')
    options = dict(CASES[name])
    options['model'] = WIDTHS | options.get('model', {})
    options['learn'] = {'batch_size': 256} | options.get('learn', {})
    kwargs = {'action': 'Discrete' if policy.startswith('discrete') else 'Box'}
    main = dict(
        exp_name='side',
        env=dict(env_id='offline:Shapes', kwargs=kwargs, evaluator_env_num=1, n_evaluator_episode=1),
        policy=dict(cuda=False, eval=dict(evaluator=dict(eval_freq=10**9))) | options,
    )
    create = dict(policy=dict(type=policy), collector=dict(type='dataset', data=data))
    with SerialPipeline(config.compile_config(main, create, seed=0)) as pipeline:
        pipeline.step()
        print('ready', flush=True)
        for line in sys.stdin:
            start = time.process_time()
            for _ in range(int(line)):
                pipeline.step()
            print(time.process_time() - start, flush=True)


class Side:
    """A process that waits for numbers of updates."""

    def __init__(self, *words: str, cwd: str) -> None:
        pipe = subprocess.PIPE
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get('PYTHONPATH', '')])
        env = os.environ | {'PYTHONPATH': path}
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, cwd=cwd, env=env)
        while self._line() != 'ready':
            pass

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f'{self.process.args} ended')
        return line.strip()

    def spent(self, updates: int) -> float:
        """Returns the CPU time of an update in ms."""
        assert self.process.stdin is not None
        print(updates, file=self.process.stdin, flush=True)
        return float(self._line()) / updates * 1e3

    def close(self) -> None:
        """Ends the process."""
        self.process.communicate()


def measured(name: str, peer: str, rounds: int, updates: int) -> str:
    """Returns the row of a case."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / 'data.npz'
        recorded(data, name.startswith('discrete'))
        sides = [
            Side(sys.executable, __file__, '--side', name, str(data), cwd=folder),
            Side(peer, str(PEER), name.removesuffix('_bf16'), str(data), cwd=folder),
        ]
        spent: list[list[float]] = [[], []]
        for number in range(rounds + 1):
            for own, side in zip(spent, sides, strict=True):
                ms = side.spent(updates if number else max(updates // 4, 1))
                own += [ms] if number else []  # the first round warms up
        for side in sides:
            side.close()
    ratios = [other / own for own, other in zip(*spent, strict=True)]
    one, other = map(statistics.median, spent)
    ratio = statistics.median(ratios)
    return f'| {name} | {one:.2f} | {other:.2f} | {ratio:.2f}x | {min(ratios):.2f} to {max(ratios):.2f} |'


def main() -> None:
    """Prints a table."""
    if sys.argv[1:2] == ['--side']:
        ours(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('peer', type=program, metavar='PEER_PYTHON')
    parser.add_argument('names', nargs='*', metavar='NAME', help=f'of {", ".join(CASES)}; all by default')
    parser.add_argument('--rounds', type=count, default=7)
    parser.add_argument('--updates', type=count, default=100, help='in each round')
    args = parser.parse_args()
    if unknown := sorted(set(args.names) - set(CASES)):
        parser.error(f'no case {unknown[0]!r}; there are {", ".join(CASES)}')
    print('| policy | rlframe, ms | d3rlpy, ms | ratio | min to max |\n|---|---|---|---|---|')
    for name in args.names or CASES:
        print(measured(name, args.peer, args.rounds, args.updates), flush=True)


if __name__ == '__main__':
    main()
else:
    import gymnasium

    class Shapes(gymnasium.Env[Any, Any]):
        """An env of these shapes, in which nothing happens."""

        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (17,), np.float32)

        def __init__(self, action: str) -> None:
            space = gymnasium.spaces
            self.action_space: Any = (
                space.Discrete(6) if action == 'Discrete' else space.Box(-1, 1, (6,), np.float32)
            )

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.zeros(17, np.float32), {}

        def step(self, action: Any) -> Any:
            return np.zeros(17, np.float32), 0.0, True, False, {}
