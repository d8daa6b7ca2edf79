"""Batches of recorded data from disk against those from memory: rates, and the memory that reading takes.

    python benchmarks/data_reading.py --rows 1e7 --memory 0.25

Rows are of the size of HalfCheetah's. Each way of reading has a process of its own, whose memory is what it has more than
before the data were opened.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

from rlframe.data.columns import ColumnFiles
from rlframe.data.dataset import Selection, open_data
from rlframe.data.formats import write_recording
from rlframe.data.recording import Recording
from rlframe.data.timestep import Batch

OBS, ACTION, LENGTH, PART = 17, 6, 1000, 100_000


def parts(rows: int) -> Iterator[Batch]:
    """Yields random rows of episodes of 1,000 env steps."""
    rng = np.random.default_rng(0)
    for start in range(0, rows, PART):
        number = np.arange(start, min(start + PART, rows))
        obs = rng.standard_normal((len(number) + 1, OBS), np.float32)
        yield Batch(
            obs=obs[:-1],
            next_obs=obs[1:],
            action=rng.uniform(-1, 1, (len(number), ACTION)).astype(np.float32),
            reward=rng.standard_normal(len(number), np.float32),
            terminated=np.zeros(len(number), bool),
            truncated=number % LENGTH == LENGTH - 1,
            episode=number // LENGTH,
        )


def make(path: Path, rows: int) -> None:
    """Writes the data."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        files = ColumnFiles(Path(folder))
        for part in parts(rows):
            files.append(part)
        write_recording(Recording(files.columns(), {}, '', ''), path)
        files.close()


def measure(path: str, memory: float, size: int, most: int) -> dict[str, float]:
    """Reads batches, and returns the rate and the memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = perf_counter()
    source = open_data(path, 'benchmark', Selection(memory=memory))
    opened = perf_counter() - start
    count = 0
    total = 0.0
    start = perf_counter()
    for batch in source.batches(size, np.random.default_rng(0)):
        total += float(batch['reward'][0])
        count += 1
        if count == most:
            break
    rate = count / (perf_counter() - start)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {'batches/s': rate, 'GiB': (after - before) / 2**20, 'open, s': opened}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--rows', type=float, default=1e7)
    parser.add_argument('--memory', type=float, nargs='+', default=[0.25], help='GiB')
    parser.add_argument('--size', type=int, default=256)
    parser.add_argument('--most', type=int, default=40_000, help='batches that are read')
    parser.add_argument('--read', nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        sys.stdout.write(json.dumps(measure(args.read[0], float(args.read[1]), args.size, args.most)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'data.npz'
        make(path, int(args.rows))
        sys.stdout.write(f'{args.rows:,.0f} rows, {path.stat().st_size / 2**30:.2f} GiB\n')
        for memory in (1e3, *args.memory):
            words = [sys.executable, __file__, '--read', str(path), str(memory)]
            words += ['--size', str(args.size), '--most', str(args.most)]
            found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
            name = 'in memory' if memory == 1e3 else f'at most {memory} GiB'
            sys.stdout.write(f'{name}: {", ".join(f"{key} {value:.2f}" for key, value in found.items())}\n')
            sys.stdout.flush()


if __name__ == '__main__':
    main()
