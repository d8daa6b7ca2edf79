"""Measures how much of serial mode's time remains when collection and learning overlap.

usage: python benchmarks/overlap.py MODE [--pairs 5] [--microseconds 200] [--env-steps 20480] [--n-sample 256]

MODE is ``overlap`` (the option of that name: a round ahead in a child process), ``ray`` (the same with an actor of Ray), or
the transport of parallel mode (``flask_fs``, ``ray_parallel``). Policy and network are those of W1 (DQN, batches of 64);
each step of CartPole keeps its processor busy, as a simulator does, and a round has as many updates as make collection and
learning cost the same. Both runs make the same env steps and updates, and are timed between the first and the last tenth.
Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from time import perf_counter
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from rlframe.config import compile_config
from rlframe.parallel.pipeline import ParallelPipeline
from rlframe.pipeline import SerialPipeline

TYPES = {'policy': {'type': 'dqn'}, 'replay_buffer': {'type': 'naive'}}
TRANSPORTS = {'flask_fs': 'flask_fs', 'ray_parallel': 'ray'}
"""Modes of parallel mode to their transports."""


class Size(NamedTuple):
    """What a run does."""

    microseconds: float
    """That a step of the env takes."""
    env_steps: int
    n_sample: int
    """Env steps of a round."""
    updates: int
    """Updates of a round."""


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


def config(size: Size, mode: str = 'serial') -> Any:
    """The config of a run in a mode."""
    no_saving = {'save_ckpt_after_iter': False, 'save_ckpt_after_run': False}
    learn = {
        'update_per_collect': size.updates,
        'batch_size': 64,
        'learning_rate': 1e-3,
        'target_update_freq': 100,
    }
    collector: dict[str, Any] = {'overlap': int(mode in ('overlap', 'ray'))}
    if mode == 'ray':
        collector['backend'] = 'ray'
    main: dict[str, Any] = {
        'exp_name': 'overlap',
        'seed': 0,
        'max_env_step': size.env_steps,
        'env': {
            'env_id': BusyCartPole,
            'kwargs': {'microseconds': size.microseconds},
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
            'collect': {'n_sample': size.n_sample, 'collector': collector},
            'eval': {'evaluator': {'eval_freq': 10**9}},
            'other': {
                'eps': {'type': 'linear', 'start': 0.95, 'end': 0.1, 'decay': 8500},
                'replay_buffer': {'replay_buffer_size': 20000},
            },
        },
    }
    if mode not in TRANSPORTS:
        return compile_config(main, TYPES)
    main['parallel'] = {'collector_num': 1, 'coordinator': {'wait': 0.002}}
    del collector['overlap']
    transport = {'type': TRANSPORTS[mode]}
    roles = {'commander': {'type': 'solo'}, 'comm_collector': transport, 'comm_learner': transport}
    return compile_config(main, {**TYPES, **roles}, parallel=True)


def seconds_of(size: Size, mode: str = 'serial') -> float:
    """Returns the seconds between the first and the last tenth of a run."""
    marks: list[tuple[float, int]] = []

    def note(run: Any) -> bool:
        marks.append((perf_counter(), run.progress.envstep))
        return False

    kind: Any = ParallelPipeline if mode in TRANSPORTS else SerialPipeline
    with kind(config(size, mode)) as pipeline:
        pipeline.run(note)
    seconds, steps = np.array([mark[0] for mark in marks]), np.array([mark[1] for mark in marks], float)
    begin, end = np.interp([0.1 * steps[-1], 0.9 * steps[-1]], steps, seconds)
    return float(end - begin)


def balanced(size: Size) -> Size:
    """Returns a size with as many updates as take the time of a round's collection."""
    few = size._replace(env_steps=size.env_steps // 2, updates=size.n_sample // 16)
    many = few._replace(updates=4 * few.updates)
    less, more = seconds_of(few), seconds_of(many)
    each = (more - less) / (many.updates - few.updates)
    return size._replace(updates=max(1, round((less - few.updates * each) / each)))


def main() -> None:
    """Runs serial mode and another in turns, and prints the median of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('mode', choices=('overlap', 'ray', *TRANSPORTS))
    parser.add_argument('--pairs', type=int, default=5)
    parser.add_argument('--microseconds', type=float, default=200.0)
    parser.add_argument('--env-steps', type=int, default=20_480)
    parser.add_argument('--n-sample', type=int, default=256)
    args = parser.parse_args()
    os.chdir(tempfile.mkdtemp())
    size = balanced(Size(args.microseconds, args.env_steps, args.n_sample, 1))
    pairs = [(seconds_of(size), seconds_of(size, args.mode)) for _ in range(args.pairs)]
    ratios = [other / alone for alone, other in pairs]
    result = {'mode': args.mode, **size._asdict(), 'ratio': statistics.median(ratios), 'seconds': pairs}
    print(json.dumps(result))


if __name__ == '__main__':
    main()
