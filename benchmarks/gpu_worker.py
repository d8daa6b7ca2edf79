"""Measures cells of gpu.py in one process, and prints a line of JSON at the begin and at the end of each.

usage: gpu_worker.py DEVICE SECONDS BATCH_SIZE CELL ...

BATCH_SIZE 0 is that of each workload.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import torch
from gpu_workloads import (
    BY_HAND,
    CARTPOLE,
    CARTPOLE_ENVS,
    CARTPOLE_ENVS_OF_CPU,
    CARTPOLE_STEPS,
    LIMIT,
    PEERS,
    SIDES,
    WORKLOADS,
)
from update_cases import settle, update_of

from rlframe.config import compile_config, read_config
from rlframe.errors import ConfigError
from rlframe.pipeline import SerialPipeline
from rlframe.policy.parts.compiled import set_precision
from rlframe.registry import POLICY_REGISTRY

HERE = Path(__file__).resolve().parent
CONFIG = HERE.parent / 'configs' / f'{CARTPOLE}.py'
BLOCKS = 5
"""Blocks of a cell, each with a rate of its own."""
WARM = {'cpu': 10, 'cuda': 220}
"""Updates before the first block, at least; on a GPU, so many that a graph of DQN's hard target updates is recorded."""

Update = Callable[[], int]
"""Does some work and returns how much."""


class SkippedError(Exception):
    """A cell cannot be measured here, and that is no fault."""


def options_of(policy: str, side: str, device: str) -> dict[str, Any]:
    """Returns the options of a side.

    Raises:
        SkippedError: If the policy does not have them, or they need a GPU.
    """
    options, known = SIDES[side], POLICY_REGISTRY.get(policy).default_config()  # type: ignore[attr-defined]
    for name in options:
        if name not in known:
            raise SkippedError(f'this version has no policy.{name}')
    if device == 'cpu' and 'cuda_graph' in options:
        raise SkippedError('policy.cuda_graph needs CUDA')
    return options


@contextmanager
def prepared(cell: str, device: str, batch_size: int) -> Iterator[Update]:
    """Gives the function to measure.

    Raises:
        SkippedError: If there is none.
    """
    name, _, side = cell.partition('/')
    case = WORKLOADS[name].case
    if case is not None:
        case = case._replace(batch_size=batch_size or case.batch_size)
        if side in PEERS:
            yield peer_update(name, side, device, case.batch_size)
            return
    options = options_of('ppo' if case is None else case.policy, side, device)
    try:
        if case is not None:
            update, pipeline = update_of(case, device, batches=4, **options), None
        else:
            pipeline = cartpoles(device, options)
            update = rounds_of(pipeline)
    except ConfigError as error:
        raise SkippedError(f'refused: {error}') from error
    try:
        yield update
    finally:
        if pipeline is not None:
            pipeline.cleanup()


def peer_update(name: str, side: str, device: str, size: int) -> Update:
    """Returns the update of a peer.

    Raises:
        SkippedError: If it is not installed.
    """
    sys.path.append(str(HERE / 'peers'))
    set_precision('fp32', torch.device(device))
    if side == BY_HAND:
        from gpu_updates import UPDATES

        return UPDATES[name](device, size)
    if importlib.util.find_spec('stable_baselines3') is None:
        raise SkippedError('stable_baselines3 is not installed')
    from gpu_sb3 import UPDATES as SB3_UPDATES

    return SB3_UPDATES[name](device, size)


def cartpoles(device: str, options: dict[str, Any]) -> SerialPipeline:
    """Returns the training loop of native torch CartPoles, without evaluations and checkpoints.

    Raises:
        SkippedError: If there is no such config.
    """
    if not CONFIG.exists():
        raise SkippedError(f'this version has no configs/{CONFIG.name}')
    main, create = read_config(CONFIG)
    env_num = CARTPOLE_ENVS if device == 'cuda' else CARTPOLE_ENVS_OF_CPU
    rows = env_num * CARTPOLE_STEPS
    hooks = dict(save_ckpt_after_iter=False, save_ckpt_after_run=False)
    overrides = {
        'max_env_step': 10**12,
        'env.stop_value': 1e9,
        'env.collector_env_num': env_num,
        'env.kwargs': {**main['env'].get('kwargs', {}), 'device': device},
        'policy.device': device,
        'policy.learn.batch_size': rows // 4,
        'policy.learn.learner.hook': hooks,
        'policy.collect.n_sample': rows,
        'policy.eval.evaluator.eval_freq': 10**9,
        **{f'policy.{name}': value for name, value in options.items()},
    }
    pipeline = SerialPipeline(compile_config(main, create, overrides=overrides, seed=0))
    pipeline.evaluator.should_eval = lambda *_: False  # type: ignore[method-assign]
    return pipeline


def rounds_of(pipeline: SerialPipeline) -> Update:
    """Returns a function that does a round, and returns its env steps."""

    def update() -> int:
        before = pipeline.progress.envstep
        pipeline.step()
        return pipeline.progress.envstep - before

    return update


def measured(update: Update, seconds: float, device: str) -> dict[str, float]:
    """Times blocks of calls behind a warm-up."""
    begin = time.perf_counter()
    update()
    settle(device)
    first = time.perf_counter() - begin
    warm, calls, done = time.perf_counter(), 0, 0
    while done < WARM[device] or time.perf_counter() - warm < seconds / 4:
        done += update()
        calls += 1
    settle(device)
    per_block = max(1, round(calls / (time.perf_counter() - warm) * seconds / BLOCKS))
    rates, total = [], 0
    for _ in range(BLOCKS):
        start = time.perf_counter()
        done = sum(update() for _ in range(per_block))
        settle(device)
        rates.append(done / (time.perf_counter() - start))
        total += done
    return {
        'median': statistics.median(rates),
        'low': min(rates),
        'high': max(rates),
        'blocks': BLOCKS,
        'count': total,
        'first_seconds': first,
        'wall_seconds': time.perf_counter() - begin,
    }


def result_of(cell: str, device: str, seconds: float, batch_size: int) -> dict[str, Any]:
    """Returns what was measured of a cell, or why it was not."""
    torch.manual_seed(0)
    try:
        with prepared(cell, device, batch_size) as update:
            return measured(update, seconds, device)
    except SkippedError as reason:
        return {'skipped': str(reason)}
    except Exception as error:
        return {'error': f'{type(error).__name__}: {error}'[:1000]}


def main() -> None:
    device, seconds, batch_size, *cells = sys.argv[1:]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for cell in cells:
            print(json.dumps({'cell': cell}), flush=True)
            signal.alarm(LIMIT)  # without a handler, it ends the process
            with chdir(folder):  # run folders are not to be left behind
                result = result_of(cell, device, float(seconds), int(batch_size))
            signal.alarm(0)
            print(json.dumps({'cell': cell, **result}), flush=True)
            if 'error' in result and device == 'cuda':
                return  # later calls may fail for the same reason
            torch.compiler.reset()
            gc.collect()
            if device == 'cuda':
                torch.cuda.empty_cache()


if __name__ == '__main__':
    main()
