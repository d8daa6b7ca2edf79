"""Measures how much of serial mode's time remains when collection and learning overlap in parallel mode.

usage: overlap.py TRANSPORT [PAIRS] [ENV_STEPS] [N_SAMPLE]

The policy, network and updates are those of W1 (DQN, 5 updates of 64 for each 8 samples), in rounds of 256 samples or as
many as are given. Each
step of CartPole waits busily for as long as makes collection and learning cost the same. One collector and one learner
make the same env steps and updates as the serial run; both are timed between the first and the last tenth of the run.
Prints one JSON line.
"""

import json
import os
import statistics
import sys
import tempfile
from time import perf_counter
from typing import Any

import gymnasium
import numpy as np

from rlframe.config import compile_config
from rlframe.parallel.pipeline import ParallelPipeline
from rlframe.pipeline import SerialPipeline

N_SAMPLE = int(sys.argv[4]) if len(sys.argv) > 4 else 256
UPDATES, ENV_STEPS = N_SAMPLE * 5 // 8, 20_480
TYPES = {'policy': {'type': 'dqn'}, 'replay_buffer': {'type': 'naive'}}


class BusyCartPole(gymnasium.Wrapper):
    """CartPole whose step takes a given time of the processor, as the step of a simulator does."""

    def __init__(self, microseconds: float) -> None:
        super().__init__(gymnasium.make('CartPole-v1'))
        self._seconds = microseconds / 1e6

    def step(self, action: Any) -> Any:
        """Steps the env, then waits busily."""
        end = perf_counter() + self._seconds
        result = super().step(action)
        while perf_counter() < end:
            pass
        return result


def config(microseconds: float, env_steps: int, transport: str = '') -> Any:
    """The serial config, or the same one in parallel mode."""
    no_saving = {'save_ckpt_after_iter': False, 'save_ckpt_after_run': False}
    learn = {
        'update_per_collect': UPDATES,
        'batch_size': 64,
        'learning_rate': 1e-3,
        'target_update_freq': 100,
    }
    main: dict[str, Any] = {
        'exp_name': 'overlap',
        'seed': 0,
        'max_env_step': env_steps,
        'env': {
            'env_id': BusyCartPole,
            'kwargs': {'microseconds': microseconds},
            'collector_env_num': 8,
            'evaluator_env_num': 1,
            'n_evaluator_episode': 1,
            'stop_value': 1e9,
        },
        'policy': {
            'device': 'cpu',
            'double': False,
            'nstep': 1,
            'discount_factor': 0.97,
            'model': {'encoder_hidden_size_list': [128, 128, 64], 'dueling': False},
            'learn': {**learn, 'learner': {'hook': no_saving}},
            'collect': {'n_sample': N_SAMPLE},
            'eval': {'evaluator': {'eval_freq': 10**9}},
            'other': {
                'eps': {'type': 'linear', 'start': 0.95, 'end': 0.1, 'decay': 8500},
                'replay_buffer': {'replay_buffer_size': 20000},
            },
        },
    }
    if not transport:
        return compile_config(main, TYPES)
    main['parallel'] = {'collector_num': 1, 'coordinator': {'wait': 0.002}}
    roles = {
        'commander': {'type': 'solo'},
        'comm_collector': {'type': transport},
        'comm_learner': {'type': transport},
    }
    return compile_config(main, {**TYPES, **roles}, parallel=True)


def middle(marks: list[tuple[float, int]]) -> float:
    """Returns the seconds between the first and the last tenth of a run, from times and env steps."""
    seconds, steps = np.array([mark[0] for mark in marks]), np.array([mark[1] for mark in marks], float)
    begin, end = np.interp([0.1 * steps[-1], 0.9 * steps[-1]], steps, seconds)
    return float(end - begin)


def serial(microseconds: float, env_steps: int) -> tuple[float, float]:
    """Returns the seconds of a serial run, and the share of them that collection takes."""
    marks, collecting = [], [0.0]
    with SerialPipeline(config(microseconds, env_steps)) as pipeline:
        collect = pipeline.collector.collect

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = perf_counter()
            try:
                return collect(*args, **kwargs)
            finally:
                collecting[0] += perf_counter() - begin

        def after_step(run: SerialPipeline) -> bool:
            marks.append((perf_counter(), run.progress.envstep))
            return False

        pipeline.collector.collect = timed  # type: ignore[method-assign]  # timed, and otherwise the same
        begin = perf_counter()
        pipeline.run(after_step)
        return middle(marks), collecting[0] / (perf_counter() - begin)


def parallel(microseconds: float, env_steps: int, transport: str) -> dict[str, float]:
    """Returns the seconds of a parallel run, its updates, and how many updates old the weights were that acted."""
    marks, behind = [], []
    with ParallelPipeline(config(microseconds, env_steps, transport)) as pipeline:

        def after_tick(run: ParallelPipeline) -> bool:
            marks.append((perf_counter(), run.progress.envstep))
            behind.append(run.record.take_staleness())
            return False

        pipeline.run(after_tick)
        updates = pipeline.progress.train_iter
    return {
        'seconds': middle(marks),
        'updates': updates,
        'staleness': statistics.mean([b for b in behind if b] or [0.0]),
    }


def balanced(env_steps: int) -> float:
    """Returns the microseconds per env step with which collection takes half of a serial run."""
    wait = 0.0
    for _ in range(4):
        seconds, share = serial(wait, env_steps)
        wait = max(wait + (1 - 2 * share) * seconds / (0.8 * env_steps) * 1e6, 0.0)
    return wait


def main() -> None:
    """Runs serial and parallel mode in turn, and prints the medians of their ratios."""
    transport = sys.argv[1]
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    env_steps = int(sys.argv[3]) if len(sys.argv) > 3 else ENV_STEPS
    os.chdir(tempfile.mkdtemp())
    wait = balanced(env_steps // 4)
    ratios, runs = [], []
    for _ in range(pairs):
        alone, share = serial(wait, env_steps)
        together = parallel(wait, env_steps, transport)
        ratios.append(together['seconds'] / alone)
        runs.append({'serial': alone, 'collection': share, **together})
    result = {'transport': transport, 'microseconds': wait, 'ratio': statistics.median(ratios), 'runs': runs}
    print(json.dumps(result))


if __name__ == '__main__':
    main()
