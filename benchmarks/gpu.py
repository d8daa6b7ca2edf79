"""Measures updates on a GPU, eager, compiled and as CUDA graphs, beside loops written by hand and SB3; writes docs/gpu.md.

usage: python benchmarks/gpu.py [--device cuda] [--seconds 2] [--minutes 10] [--only NAME ...] [--out FOLDER] [--batch-size N]
       python benchmarks/gpu.py --report

Results go to benchmarks/gpu.json after each cell; cells of the same machine that are not measured again are kept. A cell that
fails is recorded with its error. --device cpu shows that the script runs, with --out for its results.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from gpu_page import page, rate_text
from gpu_workloads import LIMIT, WORKLOADS, all_cells

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS, PAGE = HERE / 'gpu.json', ROOT / 'docs' / 'gpu.md'

Result = dict[str, Any]
"""Of a cell: what was measured, or ``skipped`` or ``error`` with the reason."""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--device', choices=('cuda', 'cpu'), default='cuda')
    parser.add_argument(
        '--seconds', type=float, default=2.0, help='that each cell is measured, after its warm-up'
    )
    parser.add_argument(
        '--minutes',
        type=float,
        default=10.0,
        help='after which no further cell begins; --only measures the rest',
    )
    parser.add_argument(
        '--only',
        nargs='+',
        metavar='NAME',
        help=f'workloads ({", ".join(WORKLOADS)}) or cells, such as ppo/eager',
    )
    parser.add_argument(
        '--batch-size',
        type=int,
        default=0,
        help='of all workloads, with --out: a small one shows that it runs',
    )
    parser.add_argument(
        '--out', type=Path, help='folder of gpu.json and gpu.md instead of benchmarks/ and docs/'
    )
    parser.add_argument('--report', action='store_true', help='measure nothing, write the page')
    args = parser.parse_args(arguments)
    known = {*WORKLOADS, *all_cells()}
    if unknown := sorted(set(args.only or ()) - known):
        parser.error(f'no workload or cell {unknown[0]!r}; workloads: {", ".join(WORKLOADS)}')
    if (args.device == 'cpu' or args.batch_size) and args.out is None and not args.report:
        parser.error(
            '--device cpu and --batch-size need --out FOLDER: the page of the repository is about a GPU'
        )
    return args


def chosen(only: Sequence[str] | None) -> list[str]:
    """Returns the cells that names of workloads and cells stand for, in order; all for None."""
    return [cell for cell in all_cells() if only is None or {cell, cell.partition('/')[0]} & set(only)]


def machine(device: str) -> dict[str, str]:
    """Returns the GPU, its driver, the processor and the versions, in words."""
    import torch

    from rlframe.run.machine import machine as facts_of_machine

    facts = dict(facts_of_machine())
    if device == 'cuda':
        facts = {
            'GPU': torch.cuda.get_device_name(),
            'driver': driver(),
            'CUDA': str(torch.version.cuda),
        } | facts
    return facts


def driver() -> str:
    """Returns the version of the GPU's driver."""
    command = ['nvidia-smi', '--query-gpu=driver_version', '--format=csv,noheader']
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 'unknown'
    return (answer.stdout.splitlines() or ['unknown'])[0].strip()


class Files(NamedTuple):
    """Where results go."""

    results: Path
    page: Path

    def read(self) -> dict[str, Any]:
        """Returns what was measured before; nothing if there is no file."""
        return json.loads(self.results.read_text(encoding='utf-8')) if self.results.exists() else {}

    def write(self, data: Mapping[str, Any]) -> None:
        """Writes results and page, by renames so that no interruption leaves half a file."""
        for path, text in ((self.results, json.dumps(data, indent=1) + '\n'), (self.page, page(data))):
            beside = path.with_suffix('.new')
            beside.write_text(text, encoding='utf-8')
            beside.replace(path)


class Clock:
    """The time that a call may take.

    Args:
        minutes: After which no further cell begins.
    """

    def __init__(self, minutes: float) -> None:
        self._start, self._minutes = time.monotonic(), minutes

    @property
    def minutes(self) -> float:
        """Minutes that have passed."""
        return (time.monotonic() - self._start) / 60

    @property
    def is_over(self) -> bool:
        """Whether no further cell is to begin."""
        return self.minutes >= self._minutes


def results_of(cells: Sequence[str], settings: Sequence[str], clock: Clock) -> Iterator[tuple[str, Result]]:
    """Measures cells, those of a workload in a process of their own, and yields each with its result.

    A process that dies fails the cell that it was in; the next one goes on behind it, and so it does behind each error on a
    GPU, which may have spoilt the process.
    """
    for name in WORKLOADS:
        left = [cell for cell in cells if cell.partition('/')[0] == name]
        while left and not clock.is_over:
            for cell, result in worker_results(left, settings, clock):
                left.remove(cell)
                yield cell, result


def worker_results(
    cells: Sequence[str], settings: Sequence[str], clock: Clock
) -> Iterator[tuple[str, Result]]:
    """Starts a process that measures cells, and yields their results until it ends or the time is over."""
    command = [sys.executable, str(HERE / 'gpu_worker.py'), *settings, *cells]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get('PYTHONPATH')])])
    with tempfile.TemporaryFile('w+', encoding='utf-8', errors='replace') as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, 'PYTHONPATH': path}
        )
        assert process.stdout is not None
        running = cells[0]
        try:
            for line in process.stdout:
                if not line.startswith('{"cell"'):
                    continue
                message = json.loads(line)
                running = message.pop('cell')
                if message:
                    yield running, message
                    running = ''
                elif clock.is_over:
                    return
        finally:
            process.kill()
            process.stdout.close()
            status = process.wait()
        if running:
            errors.seek(0)
            last = (errors.read().strip() or 'no output').splitlines()[-1]
            late = status == -signal.SIGALRM
            text = f'no result in {LIMIT} s' if late else f'the process ended with status {status}: {last}'
            yield running, {'error': text}


def told(result: Result) -> str:
    """Returns the result of a cell for the terminal."""
    if 'median' in result:
        return f'{rate_text(result)} in {result["wall_seconds"]:.0f} s'
    return f'skipped: {result["skipped"]}' if 'skipped' in result else f'FAILED: {result["error"]}'


def measure(args: argparse.Namespace, files: Files) -> int:
    """Measures and writes; returns how many cells failed."""
    cells, facts, clock = chosen(args.only), machine(args.device), Clock(args.minutes)
    before = files.read()
    kept = (
        before.get('cells', {})
        if (before.get('device'), before.get('machine')) == (args.device, facts)
        else {}
    )
    data = {
        'device': args.device,
        'machine': facts,
        'date': date.today().isoformat(),
        'command': shlex.join(['python', 'benchmarks/gpu.py', *sys.argv[1:]]),
        'cells': {cell: kept[cell] for cell in all_cells() if cell in kept},
    }
    print('; '.join(f'{name} {value}' for name, value in facts.items()), flush=True)
    found: dict[str, Result] = {}
    settings = [args.device, str(args.seconds), str(args.batch_size)]
    for cell, result in results_of(cells, settings, clock):
        found[cell] = data['cells'][cell] = result
        data['cells'] = {name: data['cells'][name] for name in all_cells() if name in data['cells']}
        files.write(data)
        print(f'[{len(found)}/{len(cells)}] {cell}: {told(result)}', flush=True)
    print(last_line(cells, found, clock, files), flush=True)
    return sum('error' in result for result in found.values())


def last_line(cells: Sequence[str], found: Mapping[str, Result], clock: Clock, files: Files) -> str:
    """Sums up a call."""
    counts = {
        'measured': sum('median' in result for result in found.values()),
        'skipped': sum('skipped' in result for result in found.values()),
        'failed': sum('error' in result for result in found.values()),
        'left for another call': len(cells) - len(found),
    }
    text = ', '.join(f'{count} {name}' for name, count in counts.items() if count or name == 'measured')
    left = [cell for cell in cells if cell not in found]
    rest = f'; the rest: --only {shlex.join(left)}' if left else ''
    return f'done in {clock.minutes:.1f} min: {text}; wrote {files.results} and {files.page}{rest}'


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    files = Files(RESULTS, PAGE) if args.out is None else Files(args.out / 'gpu.json', args.out / 'gpu.md')
    files.results.parent.mkdir(parents=True, exist_ok=True)
    if args.report:
        files.page.write_text(page(files.read()), encoding='utf-8')
        print(f'wrote {files.page}')
        return 0
    import torch

    if args.device == 'cuda' and not torch.cuda.is_available():
        print(
            f'no CUDA device: torch {torch.__version__}, built for CUDA {torch.version.cuda}', file=sys.stderr
        )
        return 2
    return 1 if measure(args, files) else 0


if __name__ == '__main__':
    sys.exit(main())
