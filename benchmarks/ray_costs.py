"""Measures what the model in docs/scaling.md is made of; prints one JSON line for each figure.

usage: python benchmarks/ray_costs.py calls|data|weights|driver|nodes|replay|inference

    calls    a small call of an actor, and the start of Ray and of an actor
    data     arrays of an actor in this process, as they are and copied into rows that exist
    weights  one version of the weights in the modules of two actors, once all of the store has been written to
    driver   what a batch costs the driver beside its data, and a wait for many answers
    nodes    an object of another node, over the network of this machine
    replay   an update's batch of 128 from prioritized replay in this process and in two shards, and its new priorities
    inference  an env step of 2 and 4 collectors with 8 or 64 envs each, whose network is in each of them or in one place: CPU time of
             all processes, and time; of CartPole, and of stacks of images that cost nothing with the CNN of Atari
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import gymnasium
import numpy as np
import ray
import torch
from torch import nn

from rlframe.remote.weights import flatten, unflatten

MB = 1_000_000
RAY = {'include_dashboard': False, 'log_to_driver': False, 'logging_level': logging.ERROR}


def show(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


def milliseconds(do: Callable[[], Any], repeats: int) -> float:
    """Returns the median time of a call, after one that does not count."""
    do()
    times = []
    for _ in range(repeats):
        start = perf_counter()
        do()
        times.append(perf_counter() - start)
    return round(median(times) * 1e3, 3)


def wide_network(millions: int) -> nn.Module:
    """Returns a network of so many million parameters, in layers of a quarter of a million."""
    return nn.Sequential(*(nn.Linear(500, 499) for _ in range(4 * millions)))


@ray.remote(num_cpus=1)
class Actor:
    """What a collector does beside collecting."""

    def ping(self) -> None: ...

    def arrays(self, size: int) -> dict[str, np.ndarray]:
        """Returns columns of so many bytes, as a batch has them."""
        return {name: np.ones(size // 8 // 4, np.float32) for name in 'abcdefgh'}

    def batch(self, weights: Any) -> tuple[dict[str, int], dict[str, np.ndarray]]:
        """Returns what is told of a batch, and a small batch."""
        return {'version': 1, 'envstep': 64}, self.arrays(4096)

    def make_network(self, millions: int) -> None:
        torch.set_num_threads(1)
        self.network = wide_network(millions)

    def load(self, weights: Any) -> None:
        self.network.load_state_dict(unflatten(weights)['model'])


def started(actors: int) -> list[Any]:
    handles = [Actor.remote() for _ in range(actors)]
    ray.get([actor.ping.remote() for actor in handles])
    return handles


def calls() -> None:
    start = perf_counter()
    ray.init(address='local', num_cpus=2, **RAY)
    show(init_s=round(perf_counter() - start, 2))
    for which in ('first', 'second'):
        start = perf_counter()
        (actor,) = started(1)
        show(actor=which, start_s=round(perf_counter() - start, 2))
    show(call_ms=milliseconds(lambda: ray.get(actor.ping.remote()), 500))


def data() -> None:
    ray.init(address='local', num_cpus=2, **RAY)
    (actor,) = started(1)
    for size in (1, 10, 100):
        rows = actor.arrays.remote(size * MB)
        target = {name: column.copy() for name, column in ray.get(rows).items()}

        def into_rows(size: int = size, target: dict[str, np.ndarray] = target) -> None:
            for name, column in ray.get(actor.arrays.remote(size * MB)).items():
                target[name][:] = column

        ref = actor.arrays.remote(size * MB)
        ray.wait([ref], fetch_local=True)
        get = milliseconds(lambda ref=ref: ray.get(ref), 20)
        show(mb=size, get_ms=get, from_actor_into_rows_ms=milliseconds(into_rows, 5))


def weights() -> None:
    ray.init(address='local', num_cpus=2, object_store_memory=1000 * MB, **RAY)
    actors = started(2)
    for millions in (1, 25):
        network = wide_network(millions)
        ray.get([actor.make_network.remote(millions) for actor in actors])

        def flat(network: nn.Module = network) -> Any:
            return flatten({'model': network.state_dict()})

        def broadcast(flat: Callable[[], Any] = flat) -> None:
            ref = ray.put(flat())
            ray.get([actor.load.remote(ref) for actor in actors])

        show(
            million_parameters=millions,
            flatten_ms=milliseconds(flat, 40),
            put_ms=milliseconds(lambda flat=flat: ray.put(flat()), 40),
            into_modules_of_two_actors_ms=milliseconds(broadcast, 40),
        )


def driver() -> None:
    ray.init(address='local', num_cpus=2, **RAY)
    actors = started(2)
    version = ray.put(np.zeros(1000, np.float32))
    ask = [actor.batch.options(num_returns=2) for actor in actors]
    under_way = {refs[0]: (i, refs[1]) for i in (0, 1) for refs in [ask[i].remote(version)]}
    count, start = 0, perf_counter()
    while count < 2000:
        (ready,), _ = ray.wait(list(under_way), num_returns=1)
        i, columns = under_way.pop(ready)
        ray.get(ready), ray.get(columns)
        told, columns = ask[i].remote(version)
        under_way[told] = (i, columns)
        count += 1
    show(batch_ms=round((perf_counter() - start) / count * 1e3, 3))
    for waiting in (10, 100, 1000):
        refs = [ray.put(i) for i in range(waiting)]
        show(refs=waiting, wait_ms=milliseconds(lambda refs=refs: ray.wait(refs, num_returns=1), 200))


def nodes() -> None:
    from ray.cluster_utils import Cluster

    node = {'num_cpus': 1, 'object_store_memory': 500 * MB, 'include_dashboard': False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(num_cpus=1, object_store_memory=500 * MB, resources={'there': 1})
    ray.init(address=cluster.address, **RAY)
    there = Actor.options(resources={'there': 1}).remote()
    ray.get(there.ping.remote())
    for size in (1, 10, 100):

        def fetch(size: int = size) -> None:
            ray.get(there.arrays.remote(size * MB))

        show(mb=size, from_other_node_ms=milliseconds(fetch, 5))
    network = wide_network(25)
    ray.get(there.make_network.remote(25))
    block = flatten({'model': network.state_dict()})
    show(
        million_parameters=25,
        to_other_node_ms=milliseconds(lambda: ray.get(there.load.remote(ray.put(block))), 3),
    )
    ray.shutdown()
    cluster.shutdown()


def replay() -> None:
    from rlframe.backend.base import LocalBackend
    from rlframe.backend.ray.backend import RayBackend
    from rlframe.config import compile_config
    from rlframe.config.reader import read_config
    from rlframe.data import Batch

    ray.init(address='local', num_cpus=2, **RAY)
    numbers = np.random.default_rng(0)
    rows = Batch({name: numbers.random((5000, 8), np.float32) for name in ('obs', 'next_obs')})
    for backend, *more in (('local',), ('ray', 0), ('ray', 2), ('ray', 16)):
        words = [f'replay_buffer.backend={backend}', *(f'replay_buffer.prefetch={number}' for number in more)]
        cfg = compile_config(*read_config('configs/lunarlander_apex.py'), overrides=words)
        place = (LocalBackend if backend == 'local' else RayBackend)(None)  # type: ignore[arg-type]  # a buffer has no envs
        place.open_buffer(cfg)
        buffer = place.make_buffer(cfg)
        buffer.push(rows, 0)
        for is_warm in (False, True):
            start, used = perf_counter(), process_time()
            for _ in range(10):
                buffer.push(rows[:64], 0)
                for batch in buffer.batches(32, 128, 0):
                    ids = {name: batch[name] for name in ('replay_unique_id', 'replay_buffer_idx')}
                    buffer.update({**ids, 'priority': np.ones(128)})
            if is_warm:
                wall, cpu = (
                    (now - then) / 320 * 1e3
                    for now, then in ((perf_counter(), start), (process_time(), used))
                )
                show(backend=backend, prefetch=more, update_ms=round(wall, 3), cpu_ms=round(cpu, 3))
        place.close()


class Images(gymnasium.Env[Any, Any]):
    """Stacks of four images of 84 x 84 that are there already."""

    observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(6)

    def __init__(self) -> None:
        self._stacks = np.random.default_rng(0).integers(0, 256, (16, 4, 84, 84), np.uint8)
        self._count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._stacks[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._count += 1
        return self._stacks[self._count % 16], 0.0, self._count % 1000 == 0, False, {}


def cpu_seconds(pids: Iterable[int]) -> float:
    """Returns the CPU time of processes so far."""
    found = (Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[11:13] for pid in pids)
    return sum(int(ticks) for pair in found for ticks in pair) / os.sysconf('SC_CLK_TCK')


def inference() -> None:
    from rlframe.config import compile_config
    from rlframe.pipeline import SerialPipeline

    ray.init(address='local', num_cpus=8, **RAY)
    os.chdir(tempfile.mkdtemp())
    cases = ('CartPole-v1', 8, 20_480), ('CartPole-v1', 64, 81_920), (Images, 8, 2048)
    given = ((*case, count, where) for case in cases for count in (2, 4) for where in ('local', 'central'))
    for env, env_num, steps, count, where in given:
        main = {
            'env': {'env_id': env, 'collector_env_num': env_num, 'stop_value': 1e9},
            'policy': {
                'cuda': False,
                'model': {} if isinstance(env, str) else {'encoder': 'nature'},
                'collect': {'n_sample': steps // 4, 'inference': where},
                'other': {'replay_buffer': {'replay_buffer_size': 100}},
            },
        }
        collector = {'type': 'sample', 'backend': 'ray', 'num_collectors': count}
        cfg = compile_config(main, {'policy': {'type': 'dqn'}, 'collector': collector})
        with SerialPipeline(cfg) as run:
            pool: Any = run.collector._pool  # type: ignore[attr-defined]
            pools = [pool, *([pool.server] if where == 'central' else [])]
            pids = [os.getpid(), *(slot.facts.pid for own in pools for slot in own.slots.values())]
            for _ in ('warm', 'measured'):
                start, used = perf_counter(), cpu_seconds(pids)
                for _ in range(4):
                    run.collector.collect(policy_kwargs={'eps': 0.1})
                wall, cpu = (perf_counter() - start) / steps, (cpu_seconds(pids) - used) / steps
            name = env if isinstance(env, str) else env.__name__
            show(
                env=name,
                env_num=env_num,
                collectors=count,
                inference=where,
                cpu_us=round(1e6 * cpu),
                us=round(1e6 * wall),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parts = {f.__name__: f for f in (calls, data, weights, driver, nodes, replay, inference)}
    parser.add_argument('part', choices=parts)
    part = parser.parse_args().part
    torch.set_num_threads(1)
    parts[part]()


if __name__ == '__main__':
    main()
