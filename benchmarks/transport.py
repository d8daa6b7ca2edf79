"""Measures what a message of parallel mode costs; prints a table, and the same figures as one JSON line.

usage: python benchmarks/transport.py [REPEATS [TRANSPORT ...]]

A worker in this process sends messages to a coordinator, which is a process of its own if the transport allows that. A
payload is a batch of 64 rows, as collectors send them. ``files per sample`` is DI-engine 0.5.3's way in own words: each row
is a file that torch saves, announced by an HTTP request of its own; the other side loads and deletes it. It gets the better
server, waitress, and connections that stay open. Figures are medians over the repeats; rows of one batch are sent at most
for two seconds. CPU time is that of both processes, and of Ray's: unlike the time on the clock, it hardly depends on what else runs.
``weights for 4`` is the time until four workers, each in a thread, have a new version of 10 MB.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from rlframe import __version__
from rlframe.data.timestep import Batch
from rlframe.entry.arguments import count
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import Envelope, Reply
from rlframe.registry import TRANSPORT_REGISTRY

ROWS = 64
SIZES = {'10 KB': 10_000, '1 MB': 1_000_000, '10 MB': 10_000_000}
PEER = 'files per sample'
WORKERS, WEIGHTS_BYTES = 4, 10_000_000
JOIN = m.Join('collector', 'bench', __version__, '', 0, '')
BEAT = m.Beat('', 0)
SECONDS = 2.0
CHILDREN: dict[subprocess.Popen[str], list[int]] = {}
"""Coordinators that run, and the ids of all their processes."""
IDS, LOCK = itertools.count(), threading.Lock()
WEIGHTS: dict[int, Any] = {}
"""The newest weights by version."""


def handle(envelope: Envelope, payload: Any) -> Reply:
    if isinstance(envelope.message, m.Join):
        return Reply(m.Joined(f'worker_{next(IDS)}', 1.0))
    if isinstance(envelope.message, m.AskWeights):
        return newer_weights(envelope.message)
    rows = 0 if payload is None else len(payload)
    return Reply(m.Taken(rows, False, 0, {}))


def newer_weights(message: m.AskWeights) -> Reply:
    """Returns the version after the one that a worker has: one object for all workers."""
    version = message.newer_than + 1
    with LOCK:
        if version not in WEIGHTS:
            WEIGHTS.clear()
            WEIGHTS[version] = {'model': {'w': np.ones(WEIGHTS_BYTES // 4, np.float32)}}
        return Reply(m.Weights(version, version), WEIGHTS[version])


def batch(nbytes: int) -> Batch:
    """Returns 64 rows with as many bytes in all: obs and next_obs, and three short columns."""
    width = max(nbytes // ROWS // 8, 1)
    obs = np.random.default_rng(0).random((2, ROWS, width), np.float32)
    short = {
        'reward': np.ones(ROWS, np.float32),
        'action': np.ones(ROWS, np.int64),
        'done': np.zeros(ROWS, bool),
    }
    return Batch(obs=obs[0], next_obs=obs[1], **short)


@contextmanager
def own(kind: str, folder: str) -> Iterator[tuple[Callable[[], Any], Callable[[Batch], Any]]]:
    """Yields what sends a message without and with a payload, over a transport of rlframe."""
    cls: Any = TRANSPORT_REGISTRY.get(kind)
    if kind == 'in_process':
        server = cls.server_cls()
        server.start(handle)
        transport, stop = server.connect(), server.close
    else:
        child, address = started('serve', kind)
        transport, stop = cls(options_of(kind), address), lambda: ended(child)
    transport.request(JOIN)
    part = m.Collected('task', 0, ROWS, ROWS, 0, 0, {})
    try:
        yield lambda: transport.request(BEAT), lambda payload: transport.request(part, payload)
    finally:
        transport.close()
        stop()


@contextmanager
def weights_for_workers(kind: str) -> Iterator[Callable[[], Any]]:
    """Yields what lets several workers fetch a new version of the weights at the same time."""
    versions = itertools.count()
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(WORKERS))
        cls: Any = TRANSPORT_REGISTRY.get(kind)
        if kind == 'in_process':
            server = cls.server_cls()
            server.start(handle)
            stack.callback(server.close)
            workers = [server.connect() for _ in range(WORKERS)]
        else:
            child, address = started('serve', kind)
            stack.callback(ended, child)
            workers = [cls(options_of(kind), address) for _ in range(WORKERS)]
        for worker in workers:
            stack.callback(worker.close)
            worker.request(JOIN)

        def fetch() -> None:
            message = m.AskWeights('main', next(versions))
            list(pool.map(lambda worker: worker.request(message), workers))

        yield fetch


def options_of(kind: str) -> dict[str, Any]:
    """Returns the options of both ends of a transport."""
    return {} if kind == 'in_process' else {'token': 'a-token-of-the-benchmark'}


def serve(kind: str, folder: str) -> None:
    """Serves in this process until its input is closed."""
    server = TRANSPORT_REGISTRY.get(kind).server_cls(options_of(kind))
    server.start(handle)
    print(server.address, *descendants(), flush=True)
    sys.stdin.read()
    server.close()


def serve_peer(kind: str, folder: str) -> None:
    """Loads and deletes the file of a row that a request names, until its input is closed."""
    import flask
    from waitress.server import create_server

    app = flask.Flask('peer')

    @app.post('/row')
    def row() -> dict[str, int]:
        facts = flask.request.get_json()
        if facts['file']:
            file = Path(folder, facts['file'])
            torch.load(file)
            file.unlink()
        return {'code': 0}

    server = create_server(app, host='127.0.0.1', port=0, threads=4)
    print(f'http://127.0.0.1:{server.effective_port}', flush=True)
    server.run()


@contextmanager
def peer(kind: str, folder: str) -> Iterator[tuple[Callable[[], Any], Callable[[Batch], Any]]]:
    """Yields what sends a message without a payload, and the rows of a batch, in DI-engine's way."""
    child, address = started('serve_peer', PEER, folder)
    connection = HTTPConnection(address.removeprefix('http://'))

    def post(file: str) -> None:
        facts = {
            'file': file,
            'data_id': 'env_0',
            'env_id': 0,
            'policy_iter': 0,
            'priority': 1.0,
            'cur_step': 0,
        }
        connection.request('POST', '/row', json.dumps(facts), {'Content-Type': 'application/json'})
        connection.getresponse().read()

    def send(payload: Batch) -> None:
        for i in range(len(payload)):
            torch.save(
                {name: torch.as_tensor(column[i]).clone() for name, column in payload.items()},
                Path(folder, f'{i}.pth'),
            )
            post(f'{i}.pth')

    try:
        yield lambda: post(''), send
    finally:
        connection.close()
        child.kill()
        ended(child)


def started(role: str, kind: str, folder: str = '') -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, __file__, role, kind, folder]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    address, *pids = child.stdout.readline().split()
    CHILDREN[child] = [child.pid, *map(int, pids)]
    return child, address


def ended(child: subprocess.Popen[str]) -> None:
    del CHILDREN[child]
    child.communicate()


def stat_of(pid: int) -> list[str]:
    """Returns the fields of a process from its state on."""
    return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()


def descendants() -> list[int]:
    """Returns the processes that this one started, and theirs: those of Ray."""
    parents = {}
    for entry in Path('/proc').iterdir():
        with suppress(OSError, ValueError):  # it has just ended, or is no process
            parents[int(entry.name)] = int(stat_of(int(entry.name))[1])
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in {os.getpid(), *found}} - found:
        found |= more
    return sorted(found)


def cpu_seconds() -> float:
    """Returns the CPU time of this process and of those that it started and that still run."""
    own = process_time()
    for pid in itertools.chain.from_iterable(CHILDREN.values()):
        fields = stat_of(pid)
        own += (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
    return own


def microseconds(do: Callable[[], Any]) -> tuple[float, float]:
    """Returns the mean time and CPU time of a call, over at least three and about two seconds of calls."""
    do()
    calls, cpu, start = 0, cpu_seconds(), perf_counter()
    while calls < 3 or (perf_counter() - start < SECONDS and calls < 20_000):
        do()
        calls += 1
    seconds = perf_counter() - start
    return 1e6 * seconds / calls, 1e6 * (cpu_seconds() - cpu) / calls


def measured(kind: str) -> dict[str, tuple[float, float]]:
    figures = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        (peer if kind == PEER else own)(kind, folder) as (beat, send),
    ):
        figures['no payload'] = microseconds(beat)
        for name, nbytes in SIZES.items():
            payload = batch(nbytes)
            figures[name] = microseconds(lambda payload=payload: send(payload))
    return figures


def weights_measured(kind: str) -> dict[str, tuple[float, float]]:
    with weights_for_workers(kind) as fetch:
        return {f'weights for {WORKERS}': microseconds(fetch)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('repeats', nargs='?', type=count, default=3)
    known = *TRANSPORT_REGISTRY.names(), PEER
    parser.add_argument(
        'kinds', nargs='*', metavar='TRANSPORT', help=f'of {", ".join(known)}; all by default'
    )
    args = parser.parse_args()
    if unknown := sorted(set(args.kinds) - set(known)):
        parser.error(f'no transport {unknown[0]!r}; there are {", ".join(known)}')
    kinds = args.kinds or known
    rounds = [
        {kind: measured(kind) | (weights_measured(kind) if kind != PEER else {}) for kind in kinds}
        for _ in range(args.repeats)
    ]
    table = Table(
        'transport', 'payload', 'us', 'CPU us', 'messages/s', 'MB/s', title=f'load {os.getloadavg()[0]:.1f}'
    )
    for kind in kinds:
        for size in rounds[0][kind]:
            us, cpu = (median(one[kind][size][i] for one in rounds) for i in range(2))
            speed = f'{SIZES[size] / us:,.1f}' if size in SIZES else ''
            table.add_row(kind, size, f'{us:,.0f}', f'{cpu:,.0f}', f'{1e6 / us:,.1f}', speed)
    Console(width=100).print(table)
    print(json.dumps({'rounds': rounds}))


if __name__ == '__main__':
    if sys.argv[1:2] in (['serve'], ['serve_peer']):
        (serve if sys.argv[1] == 'serve' else serve_peer)(*sys.argv[2:])
    else:
        main()
