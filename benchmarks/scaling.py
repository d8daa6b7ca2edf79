"""The scaling laboratory: what more processes bring, beside what the model of docs/scaling.md predicts.

usage: python benchmarks/scaling.py PART [--pairs 5] [--microseconds 200] [--env-steps 20480] [--most 2] [--batch-size 2048]
                                    [--transport flask_fs]
       python benchmarks/scaling.py returns [--configs NAME ...] [--seeds 0 1 2 3 4] [--results FILE]

    overlap     the seconds of a run that collects a round ahead in a child process, over those of a serial run
    ray         the same with a Ray actor in place of the child process
    parallel    the same with parallel mode, over HTTP between processes (flask_fs) or Ray actors (--transport ray)
    impala      env steps/s of IMPALA with Ray actors that do not wait, over those of PPO with as many that do
    actors      seconds of collection in a round with 1, 2, ... Ray actors, measured and predicted
    learners    seconds of an update with 1, 2, ... learners, measured and predicted
    returns     returns of runs that collect a round ahead, beside those of serial runs with the same seeds, and their difference

Each step of CartPole keeps its processor busy, as a simulator does. Runs are compared in pairs, in turns, and timed between their
first and last tenth, without evaluations. In the first three parts the policy is the DQN of W1, with as many updates in a round as
make collection and learning cost the same. Prints one JSON line.

The part ``returns`` trains shipped configs as they are, but to the end of their budget. Finished runs are kept in
benchmarks/overlap_returns.json and skipped, so an interrupted command goes on where it was.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from rlframe.config import compile_config, read_config
from rlframe.parallel.pipeline import ParallelPipeline
from rlframe.pipeline import SerialPipeline

CONFIGS = Path(__file__).parents[1] / 'configs'
MESSAGE = 1.26e-3
"""Fixed cost of a batch of an actor, in seconds: d of docs/scaling.md."""
DQN = {
    'policy.double': False,
    'policy.nstep': 1,
    'policy.model.encoder_hidden_size_list': [128, 128, 64],
    'policy.model.dueling': False,
    'policy.learn.batch_size': 64,
    'policy.learn.target_update_freq': 100,
}
"""The DQN of W1, as overrides of cartpole_dqn."""
RAY = {'collector.backend': 'ray'}
RESULTS = Path(__file__).with_name('overlap_returns.json')
LEARNED = 'cartpole_ppo', 'pendulum_sac', 'lunarlander_dqn'
"""Shipped configs whose returns are compared."""
SERIAL, AHEAD = SIDES = 'serial', 'a round ahead'
"""Values 0 and 1 of collector.overlap."""


class Size(NamedTuple):
    """What a run does."""

    microseconds: int
    """That a step of the env takes in addition."""
    env_steps: int
    n_sample: int
    """Env steps of a round."""


class Measured(NamedTuple):
    """A run, between its first and its last tenth."""

    seconds: float
    collecting: float
    """Seconds of collection in a round."""
    staleness: float
    """Mean number of versions that the data were behind."""
    updating: float
    """Seconds of an update."""


def config(name: str, size: Size, more: dict[str, Any], transport: str = '') -> Any:
    """Returns a shipped config of CartPole, with the busy env and without evaluations; with a transport, of parallel mode."""
    overrides = {
        'env.env_id': 'peers.busy:Busy',
        'env.kwargs.microseconds': size.microseconds,
        'env.collector_env_num': 8,
        'env.evaluator_env_num': 1,
        'env.n_evaluator_episode': 1,
        'env.stop_value': 1e9,
        'policy.collect.n_sample': size.n_sample,
        'policy.eval.evaluator.eval_freq': 10**9,
        'policy.learn.learner.hook.save_ckpt_after_iter': False,
        'policy.learn.learner.hook.save_ckpt_after_run': False,
        **more,
    }
    words = [f'{key}={value!r}' for key, value in overrides.items()]
    main, create = read_config(str(CONFIGS / f'{name}.py'))
    if transport:
        roles = {role: {'type': transport} for role in ('comm_collector', 'comm_learner')}
        create = {**create, 'commander': {'type': 'solo'}, **roles}
        main = {**main, 'parallel': {'collector_num': 1, 'coordinator': {'wait': 0.002}}}
    return compile_config(
        main, create, seed=0, overrides=words, max_env_step=size.env_steps, parallel=bool(transport)
    )


def measured(name: str, size: Size, transport: str = '', **more: Any) -> Measured:
    """Runs a config, and returns what it took."""
    marks: list[tuple[float, int]] = []
    collecting: list[float] = []
    behind: list[float] = []

    def after_step(run: Any) -> bool:
        marks.append((perf_counter(), run.progress.envstep))
        versions = getattr(getattr(run, 'collector', None), 'versions', [])
        behind.extend(run.collector._publisher.version - version for version in versions)
        return False

    kind: Any = ParallelPipeline if transport else SerialPipeline
    with kind(
        config(name, size, {key.replace('__', '.'): value for key, value in more.items()}, transport)
    ) as run:
        if not transport:
            collect = run.collector.collect

            def timed(*args: Any, **kwargs: Any) -> Any:
                begin = perf_counter()
                try:
                    return collect(*args, **kwargs)
                finally:
                    collecting.append(perf_counter() - begin)

            run.collector.collect = timed  # timed, and otherwise the same
        run.run(after_step)
        updating = 0.0 if transport else run.times.seconds()['learn'] / max(run.progress.train_iter, 1)
    seconds, steps = np.array([mark[0] for mark in marks]), np.array([mark[1] for mark in marks], float)
    begin, end = np.interp([0.1 * steps[-1], 0.9 * steps[-1]], steps, seconds)
    collection = statistics.median(collecting or [0.0])
    return Measured(float(end - begin), collection, statistics.fmean(behind or [0.0]), updating)


def balanced(size: Size) -> int:
    """Returns the number of updates in a round that take as long as its collection."""
    few, part = size.n_sample // 16, size._replace(env_steps=size.env_steps // 2)
    less, more = (
        measured('cartpole_dqn', part, **options(DQN | {'policy.learn.update_per_collect': count})).seconds
        for count in (few, 4 * few)
    )
    each = (more - less) / (3 * few)
    return max(1, round((less - few * each) / each))


def options(overrides: dict[str, Any]) -> dict[str, Any]:
    """Returns overrides as keyword arguments."""
    return {key.replace('.', '__'): value for key, value in overrides.items()}


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the seconds of runs whose collection and learning overlap, over those of serial runs."""
    size = Size(args.microseconds, args.env_steps, 256)
    base = DQN | {'policy.learn.update_per_collect': balanced(size)}
    other = {'overlap': {'collector.overlap': 1}, 'ray': {'collector.overlap': 1, **RAY}, 'parallel': {}}[
        args.part
    ]
    pairs = []
    for _ in range(args.pairs):
        alone = measured('cartpole_dqn', size, **options(base)).seconds
        transport = args.transport if args.part == 'parallel' else ''
        both = measured('cartpole_dqn', size, transport, **options(base | other)).seconds
        pairs.append((alone, both))
    ratios = [both / alone for alone, both in pairs]
    updates = base['policy.learn.update_per_collect']
    return {'updates': updates, 'ratio': round(statistics.median(ratios), 2), 'seconds': pairs}


def impala(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the env steps/s of IMPALA without waiting, over those of PPO with as many actors."""
    size, actors = Size(args.microseconds, args.env_steps, 512), RAY | {'collector.num_collectors': 2}
    found: dict[str, list[Measured]] = {'ppo': [], 'impala': []}
    for turn in range(args.pairs):
        for policy in sorted(found, reverse=turn % 2 == 0):
            waits = (
                {'sync': True, 'max_in_flight': 1} if policy == 'ppo' else {'sync': False, 'max_in_flight': 2}
            )
            given = actors | {f'collector.{name}': value for name, value in waits.items()}
            found[policy].append(measured(f'cartpole_{policy}', size, **options(given)))
    ratios = [slow.seconds / fast.seconds for slow, fast in zip(found['ppo'], found['impala'], strict=True)]
    staleness = statistics.fmean(each.staleness for each in found['impala'])
    return {
        **{
            f'{name} env steps/s': round(
                0.8 * size.env_steps / statistics.median(each.seconds for each in own)
            )
            for name, own in found.items()
        },
        'ratio': round(statistics.median(ratios), 2),
        'ratios': [round(ratio, 2) for ratio in ratios],
        'staleness': round(staleness, 2),
    }


def actors(args: argparse.Namespace) -> dict[str, Any]:
    """Returns seconds of collection in a round of PPO, by the number of Ray actors, and the prediction from one actor."""
    size = Size(args.microseconds, args.env_steps, 1024)
    found = {
        count: statistics.median(
            measured('cartpole_ppo', size, **options(RAY | {'collector.num_collectors': count})).collecting
            for _ in range(args.pairs)
        )
        for count in range(1, args.most + 1)
    }
    return beside(found, lambda count: MESSAGE * (count > 1) + found[1] / count, 'actors')


def learners(args: argparse.Namespace) -> dict[str, Any]:
    """Returns seconds of an update of DQN with wide layers, by the number of learners, and the prediction from one learner.

    The part of an update that depends on the rows is divided; updates of few rows show what is not, messages included.
    """
    wide = DQN | {'policy.model.encoder_hidden_size_list': [512, 512], 'policy.learn.update_per_collect': 5}

    def seconds(count: int, batch_size: int) -> float:
        sizes = {'policy.learn.batch_size': batch_size, 'policy.random_collect_size': batch_size}
        given = wide | sizes | {'policy.learn.num_learners': count}
        size = Size(0, args.env_steps // 20, 64)
        return statistics.median(
            measured('cartpole_dqn', size, **options(given)).updating for _ in range(args.pairs)
        )

    found = {count: seconds(count, args.batch_size) for count in range(1, args.most + 1)}
    few = {count: seconds(count, max(count, 2)) for count in (1, min(2, args.most))}
    fixed, message = few[1], few[max(few)] - few[1]
    rows = found[1] - fixed
    shown = beside(found, lambda count: fixed + rows / count + message * (count > 1), 'learners')
    return {**shown, 'fixed, ms': round(1e3 * fixed, 2), 'message, ms': round(1e3 * message, 2)}


def returns(args: argparse.Namespace) -> dict[str, Any]:
    """Returns, for each config, the return of each seed of both sides, and the mean difference with its bootstrap interval."""
    from time_to_return import Results, where

    from rlframe.app.comparison import bootstrap

    results = Results(args.results)
    for seed, name, side in itertools.product(args.seeds, args.configs, SIDES):
        if not results.has(name, seed, side):
            found = {'config': name, 'seed': seed, 'side': side, **learned(name, seed, SIDES.index(side))}
            results.add({**found, 'where': where()})
    shown: dict[str, Any] = {}
    for name in args.configs:
        serial, ahead = (
            [r['return'] for s in args.seeds for r in results.records if key(r) == (name, s, side)]
            for side in SIDES
        )
        difference = np.subtract(ahead, serial)
        ends = [float(difference.mean()), *map(float, bootstrap(difference))]
        shown[name] = {SERIAL: serial, AHEAD: ahead, 'difference': [round(end, 2) for end in ends]}
    return shown


def key(record: Any) -> tuple[str, int, str]:
    """Returns what a record is of."""
    return record['config'], record['seed'], record['side']


def learned(name: str, seed: int, overlap: int) -> dict[str, Any]:
    """Trains a shipped config to the end of its budget; returns env steps, CPU seconds and the mean of 100 greedy episodes."""
    from whole_runs import play

    began = os.times()
    pair = read_config(str(CONFIGS / f'{name}.py'))
    cfg = compile_config(*pair, seed=seed, overrides={'collector.overlap': overlap, 'cuda': False})
    with tempfile.TemporaryDirectory() as folder, SerialPipeline(cfg, Path(folder)) as pipeline:
        pipeline.evaluator.should_eval = lambda *_: False
        while not pipeline.finished:
            pipeline.step()
        face, steps = pipeline.policy.eval_mode, pipeline.progress.envstep
        mean = play(cfg.env.env_id, lambda obs: face.forward(obs, np.arange(len(obs)))['action'])
    cpu = sum(os.times()[:4]) - sum(began[:4])
    return {'env_steps': steps, 'cpu_seconds': round(cpu, 1), 'return': round(mean, 2)}


def beside(found: dict[int, float], predict: Callable[[int], float], what: str) -> dict[str, Any]:
    """Returns measured seconds beside predicted ones, in milliseconds."""
    rows = {
        count: {'measured': round(1e3 * seconds, 2), 'predicted': round(1e3 * predict(count), 2)}
        for count, seconds in found.items()
    }
    return {f'ms by {what}': rows}


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    **dict.fromkeys(('overlap', 'ray', 'parallel'), compare),
    'impala': impala,
    'actors': actors,
    'learners': learners,
    'returns': returns,
}


def main() -> None:
    """Measures a part, and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('part', choices=PARTS)
    parser.add_argument('--pairs', type=int, default=5)
    parser.add_argument('--microseconds', type=int, default=200)
    parser.add_argument('--env-steps', type=int, default=20_480)
    parser.add_argument('--most', type=int, default=2, help='actors or learners')
    parser.add_argument('--batch-size', type=int, default=2048, help='of the part learners')
    parser.add_argument(
        '--transport', default='flask_fs', choices=('flask_fs', 'ray'), help='of the part parallel'
    )
    parser.add_argument('--configs', nargs='+', default=LEARNED, metavar='NAME', help='of the part returns')
    parser.add_argument('--seeds', nargs='+', type=int, default=range(5), help='of the part returns')
    parser.add_argument('--results', type=Path, default=RESULTS, help='file of records of the part returns')
    args = parser.parse_args()
    args.results = args.results.absolute()
    os.chdir(tempfile.mkdtemp())
    sys.stdout.write(json.dumps({'part': args.part, **PARTS[args.part](args)}) + '\n')


if __name__ == '__main__':
    main()
