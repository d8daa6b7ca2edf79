"""Measures what a trial of Ray Tune costs beside the run that it is; prints one JSON line for each round.

usage: python benchmarks/tune_costs.py [ROUNDS]

The run is W1's: DQN on CartPole-v1, 8 envs, 20,000 env steps, here with an evaluation, and so a result and a checkpoint of
Tune, each 1,000 updates. Plain runs and trials take turns. A trial's time is that between its first and its last result as the
driver gets them, so what Tune does between steps counts; the same part of the plain run is what it is compared to.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import ray
from ray.tune import Callback

from rlframe.config import compile_config
from rlframe.entry.arguments import count
from rlframe.pipeline import SerialPipeline
from rlframe.tune import make_tuner

STEPS = 20_000
MAIN = {
    'exp_name': 'w1',
    'max_env_step': STEPS,
    'env': {
        'env_id': 'CartPole-v1',
        'collector_env_num': 8,
        'evaluator_env_num': 4,
        'n_evaluator_episode': 4,
    },
    'policy': {
        'cuda': False,
        'model': {'encoder_hidden_size_list': [128, 128, 64], 'dueling': False},
        'learn': {'update_per_collect': 5, 'batch_size': 64, 'learning_rate': 1e-3},
        'collect': {'n_sample': 8},
        'eval': {'evaluator': {'eval_freq': 1000, 'stop_value': 1e9}},
        'other': {'replay_buffer': {'replay_buffer_size': STEPS}},
    },
}
CREATE = {'policy': {'type': 'dqn'}, 'replay_buffer': {'type': 'naive'}}


def plain(folder: Path) -> float:
    """Returns the seconds from the first evaluation to the end, of a run without Tune."""
    ends: list[float] = []

    def after_step(pipeline: SerialPipeline) -> bool:
        if pipeline.evaluations and not ends:
            ends.append(perf_counter())
        return False

    (folder / 'plain').mkdir()
    with SerialPipeline(compile_config(MAIN, CREATE), folder / 'plain') as pipeline:
        pipeline.run(after_step)
    return perf_counter() - ends[0]


class Clock(Callback):  # type: ignore[misc]  # Ray is untyped
    """Notes when results came."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_trial_result(self, *args: Any, **info: Any) -> None:
        """Notes one."""
        self.times.append(perf_counter())


def trial(folder: Path) -> float:
    """Returns the seconds from the first result of a trial to its last."""
    clock = Clock()
    make_tuner((MAIN, CREATE), {}, folder=folder / 'trial', callbacks=[clock]).fit()
    return clock.times[-1] - clock.times[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('rounds', nargs='?', type=count, default=3)
    rounds = parser.parse_args().rounds
    ray.init(
        address='local', num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
    )
    ratios = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as place:
            alone, under_tune = plain(Path(place)), trial(Path(place))
        ratios.append(under_tune / alone)
        print(json.dumps({'plain_s': round(alone, 2), 'trial_s': round(under_tune, 2)}), flush=True)
    print(json.dumps({'median_ratio': round(median(ratios), 3)}))


if __name__ == '__main__':
    main()
