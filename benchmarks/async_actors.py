"""Measures the env steps/s of IMPALA with Ray actors that do not wait, beside PPO with as many that do.

usage: async_actors.py [PAIRS] [ENV_STEPS] [MICROSECONDS] [N_SAMPLE]

Both are the shipped configs of CartPole in rounds of N_SAMPLE, with two actors of eight envs whose steps compute for so many
microseconds more. They run in turns; a run is timed between its first and last tenth, without evaluations. Prints one JSON line
with the medians, the ratio of each pair, and how many versions old IMPALA's data were.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from rlframe.config import compile_config, read_config
from rlframe.pipeline import SerialPipeline

ACTORS = 2
CONFIGS = Path(__file__).parents[1] / 'configs'


def config(policy: str, env_steps: int, microseconds: int, n_sample: int) -> Any:
    """Returns the shipped config of a policy with two actors."""
    overrides = {
        'env.env_id': 'peers.busy:Busy',
        'env.kwargs.microseconds': microseconds,
        'env.collector_env_num': 8,
        'env.evaluator_env_num': 1,
        'env.n_evaluator_episode': 1,
        'env.stop_value': 1e9,
        'policy.collect.n_sample': n_sample,
        'policy.eval.evaluator.eval_freq': 10**9,
        'policy.learn.learner.hook.save_ckpt_after_iter': False,
        'policy.learn.learner.hook.save_ckpt_after_run': False,
        'collector.backend': 'ray',
        'collector.num_collectors': ACTORS,
        'collector.sync': policy == 'ppo',
        'collector.max_in_flight': 1 if policy == 'ppo' else 2,  # so that no actor waits for the learner
    }
    words = [f'{key}={value!r}' for key, value in overrides.items()]
    return compile_config(
        *read_config(str(CONFIGS / f'cartpole_{policy}.py')), seed=0, overrides=words, max_env_step=env_steps
    )


def measured(policy: str, *sizes: int) -> tuple[float, float]:
    """Returns the env steps/s of a run, and the mean number of versions that its data were behind."""
    marks: list[tuple[float, int]] = []
    behind: list[float] = []

    def after_step(run: SerialPipeline) -> bool:
        marks.append((perf_counter(), run.progress.envstep))
        newest = run.collector._publisher.version
        behind.extend(newest - version for version in run.collector.versions)
        return False

    with SerialPipeline(config(policy, *sizes)) as pipeline:
        pipeline.run(after_step)
    seconds, steps = np.array([mark[0] for mark in marks]), np.array([mark[1] for mark in marks], float)
    begin, end = np.interp([0.1 * steps[-1], 0.9 * steps[-1]], steps, seconds)
    return float(0.8 * steps[-1] / (end - begin)), statistics.fmean(behind)


def main() -> None:
    """Runs the pairs and prints the figures."""
    given = [int(word) for word in sys.argv[1:]]
    pairs, *sizes = [*given, *(5, 40_960, 200, 512)[len(given) :]]
    os.chdir(tempfile.mkdtemp())
    speeds: dict[str, list[float]] = {'ppo': [], 'impala': []}
    behind: list[float] = []
    for turn in range(pairs):
        for policy in sorted(speeds, reverse=turn % 2 == 0):
            speed, staleness = measured(policy, *sizes)
            speeds[policy].append(speed)
            behind += [staleness] if policy == 'impala' else []
    ratios = [ours / theirs for ours, theirs in zip(speeds['impala'], speeds['ppo'], strict=True)]
    figures = {f'{policy} env steps/s': round(statistics.median(own)) for policy, own in speeds.items()}
    figures |= {'ratio': round(statistics.median(ratios), 2), 'ratios': [round(ratio, 2) for ratio in ratios]}
    sys.stdout.write(
        json.dumps(
            {
                **figures,
                'staleness': round(statistics.median(behind), 2),
                'cores': len(os.sched_getaffinity(0)),
            }
        )
        + '\n'
    )


if __name__ == '__main__':
    main()
