"""What recording beside training costs: CPU time of the same run with and without it, in turns; one JSON line for each config.

usage: python benchmarks/recording.py [CONFIG ...] [--turns 10]

Two pipelines with one seed advance by some env steps in turns, without evaluations. ``added`` is what the recorded run takes more, in which
other work of the machine shows; ``recorder`` is what its calls of the recorder take, with the writing of the data at the end. Both are
shares of the CPU time of the run without a recorder.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ['OMP_NUM_THREADS'] = '1'  # before torch is imported

from time import process_time

from rlframe import config
from rlframe.config.reader import read_config
from rlframe.entry.arguments import count
from rlframe.pipeline import SerialPipeline

CONFIGS = {'cartpole_dqn': 10_000, 'pendulum_sac': 5_000, 'pendulum_ppo': 20_480}
"""Names, and env steps of a run."""


class Timed:
    """A recorder whose calls are timed."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self.seconds = 0.0

    def add(self, *args: Any) -> None:
        began = process_time()
        self._recorder.add(*args)
        self.seconds += process_time() - began

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorder, name)


def started(name: str, folder: Path, *overrides: str) -> Any:
    """Returns a pipeline that makes no evaluations."""
    main, create = read_config(name)
    cfg = config.compile_config(main, create, seed=0, overrides=overrides, max_env_step=10**9)
    folder.mkdir()
    pipeline = SerialPipeline(cfg, folder)
    pipeline.evaluator.should_eval = lambda *_: False  # type: ignore[method-assign]
    return pipeline


def measured(name: str, env_steps: int, turns: int, folder: Path) -> dict[str, Any]:
    """Returns CPU seconds of both runs, and what recording adds."""
    record = f'policy.collect.record={folder / "data.npz"}'
    runs = [started(name, folder / 'plain'), started(name, folder / 'recorded', record)]
    recorder = runs[1].collector.episode_recorder = Timed(runs[1].collector.episode_recorder)
    spent = [0.0, 0.0]
    for turn in range(turns):
        for i in (0, 1) if turn % 2 else (1, 0):
            began = process_time()
            while runs[i].progress.envstep < env_steps * (turn + 1) // turns:
                runs[i].step()
            spent[i] += process_time() - began
    ends = []
    for run in runs:
        began = process_time()
        run.cleanup()
        ends.append(process_time() - began)
    end = ends[1] - ends[0]
    found = {
        'config': name,
        'env_steps': env_steps,
        'plain': round(spent[0], 2),
        'recorded': round(spent[1], 2),
    }
    shares = {
        'added': (spent[1] + end) / spent[0] - 1,
        'recorder': (recorder.seconds + end) / spent[0],
    }
    return found | {key: f'{share:.1%}' for key, share in shares.items()}


def main() -> None:
    """Prints a line for each config."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('names', nargs='*', metavar='CONFIG', help=f'of {", ".join(CONFIGS)}; all by default')
    parser.add_argument('--turns', type=count, default=10)
    args = parser.parse_args()
    if unknown := sorted(set(args.names) - set(CONFIGS)):
        parser.error(f'no config {unknown[0]!r}; there are {", ".join(CONFIGS)}')
    for name in args.names or CONFIGS:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(name, CONFIGS[name], args.turns, Path(folder))), flush=True)


if __name__ == '__main__':
    main()
