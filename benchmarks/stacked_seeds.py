"""CPU time of ten seeds that share a process, against that of one run: what ``--stacked`` saves.

    python benchmarks/stacked_seeds.py [CASE...]

Each command runs in a process of its own with one torch thread, so that its CPU time includes its start.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile

SEEDS = 10
CASES = {
    'dqn': ('cartpole_dqn', 4_000),
    'ppo': ('cartpole_ppo', 20_480),
    'sac': ('pendulum_sac', 1_500),
}
"""Name to config and env steps."""
MANAGERS = 'base', 'env_pool'
"""Envs in Python, and of EnvPool."""
NO_GOAL = 'env.stop_value=1e9'


def seconds(*words: str) -> float:
    """Returns the CPU time of a command line, with that of its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, 'OMP_NUM_THREADS': '1'}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, '-m', 'rlframe', 'train', *words]
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Prints a line for each case and kind of envs."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('cases', nargs='*', metavar='CASE', help=f'of {", ".join(CASES)}; by default, all')
    names = parser.parse_args().cases
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f'no case {unknown[0]!r}; there are {", ".join(CASES)}')
    for name in names or CASES:
        config, steps = CASES[name]
        for manager in MANAGERS:
            words = ['-c', config, '--env-step', str(steps), f'env.manager.type={manager}', NO_GOAL]
            first = seconds(*words, '--seed', '0')
            together = seconds(*words, '--seeds', f'0-{SEEDS - 1}', '--stacked', '--jobs', '1')
            one = (first + seconds(*words, '--seed', '1')) / 2
            print(
                f'{config}, {manager}: one run {one:.1f} s, {SEEDS} seeds together {together:.1f} s: {together / one:.1f} runs,'
                f' {SEEDS * one / together:.1f} times less than one by one'
            )


if __name__ == '__main__':
    main()
