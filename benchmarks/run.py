"""Measures rlframe against its peers, side by side, and writes docs/benchmarks.md and benchmarks/results.json.

Results of other workloads than the chosen ones are kept.

usage: python benchmarks/run.py [--workloads w1 w2 w3 w4 w5 w6 w7 w9 w10 w11 w12 w13] [--repeats 3] [--peers NAME ...] [--ding-python PATH] [--torchrl-python PATH]
       [--sb3-python PATH] [--quick] [--no-write]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

from arguments import program
from cases import CASES, DISTRIBUTIONS, WORKLOADS, Case
from report import OWN, Record, Run, markdown, rich_table, rows, with_run
from rich.console import Console

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TIMEOUT = 1800
"""Seconds after which a side is given up."""
ONE_THREAD = dict.fromkeys(('OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'OPENBLAS_NUM_THREADS'), '1')

Skipped = dict[str, dict[str, str]]
"""Case to peer to the reason why it did not run."""


class SideError(RuntimeError):
    """A side ended without a result."""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--workloads', nargs='+', choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument('--repeats', type=int, default=3, help='rounds of each case')
    names = sorted({peer for case in CASES for peer in case.peers})
    parser.add_argument('--peers', nargs='+', choices=names, default=names, help='only these')
    parser.add_argument(
        '--ding-python', type=program, help='interpreter that has DI-engine, where this one has not'
    )
    parser.add_argument(
        '--torchrl-python', type=program, help='interpreter that has TorchRL, where this one has not'
    )
    parser.add_argument(
        '--sb3-python', type=program, help='interpreter that has SB3 and sb3-contrib, where this one has not'
    )
    parser.add_argument(
        '--quick', action='store_true', help='tiny sizes, no file written: shows that it runs'
    )
    parser.add_argument('--no-write', action='store_true', help='show the tables, write no file')
    args = parser.parse_args(arguments)
    if args.repeats < 1:
        parser.error(f'--repeats must be >= 1, got {args.repeats}')
    return args


def installed_versions(pythons: Mapping[str, str]) -> dict[str, str]:
    """Returns the version of each peer that is installed, asked of the interpreter that runs it."""
    code = 'import sys; from importlib.metadata import version; print(version(sys.argv[1]))'
    versions = {}
    for peer, distribution in DISTRIBUTIONS.items():
        command = [pythons.get(peer, sys.executable), '-c', code, distribution]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            versions[peer] = f'{distribution} {answer.stdout.strip()}'
    return versions


def run_side(case: Case, side: str, sizes: Sequence[int], python: str) -> dict[str, Any]:
    """Runs one side in a process of its own and returns the JSON line that it printed last.

    Raises:
        SideError: If it fails or takes longer than ``TIMEOUT``; with the last line that it wrote.
    """
    if side == OWN:
        command, path = [python, str(HERE / 'rlframe_side.py'), case.side], {'PYTHONPATH': str(ROOT)}
    else:
        command, path = [python, str(HERE / 'peers' / case.script), side], {}
    try:
        answer = subprocess.run(
            [*command, *map(str, sizes)],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
            env={**os.environ, **ONE_THREAD, **path},
        )
    except subprocess.TimeoutExpired as error:
        raise SideError(f'no result in {TIMEOUT} s') from error
    lines = [line for line in answer.stdout.splitlines() if line.startswith('{"peer"')]
    if answer.returncode or not lines:
        last = (answer.stderr.strip() or answer.stdout.strip() or 'no output').splitlines()[-1]
        raise SideError(f'exit status {answer.returncode}: {last}')
    return dict(json.loads(lines[-1]))


class Measurement:
    """Runs cases, side by side, and keeps what they measured.

    Args:
        repeats: Rounds of each case.
        quick: Whether to take the sizes of a smoke test.
        pythons: Interpreters of peers that need another one.
        absent: Peers that cannot run, and why.
    """

    def __init__(
        self, repeats: int, quick: bool, pythons: Mapping[str, str], absent: Mapping[str, str]
    ) -> None:
        self._repeats, self._quick = repeats, quick
        self._pythons, self._absent = pythons, absent
        self._warm: set[str] = set()
        self.records: list[Record] = []
        """Every run."""
        self.skipped: Skipped = {}
        """Peers that did not run."""

    def measure(self, case: Case, peers: Sequence[str]) -> None:
        """Runs all rounds of a case; a peer that fails once is left out of the rest.

        Raises:
            SideError: If rlframe fails.
        """
        sizes = case.sizes_of(self._quick)
        assert sizes is not None  # main left the others out
        self._warm_up(case, sizes)
        skipped = self.skipped.setdefault(case.name, {p: self._absent[p] for p in peers if p in self._absent})
        for i in range(1, self._repeats + 1):
            for side in (OWN, *peers):
                if side in skipped:
                    continue
                progress(f'{case.name} round {i}/{self._repeats}: {side}')
                try:
                    measured = run_side(case, side, sizes, self._pythons.get(side, sys.executable))
                except SideError as error:
                    if side == OWN:
                        raise
                    skipped[side] = f'failed: {error}'
                    progress(f'{case.name}: {side} {skipped[side]}')
                else:
                    self.records.append(Record(case.name, side, i, measured))

    def _warm_up(self, case: Case, sizes: Sequence[int]) -> None:
        """Compiles and caches what rlframe compiles at first use."""
        if case.side not in self._warm:
            self._warm.add(case.side)
            progress(f'{case.name}: warm-up of {OWN}')
            run_side(case, OWN, case.quick_sizes or sizes, sys.executable)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def cpu_model() -> str:
    """Returns the name of the processor."""
    try:
        lines = Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(':')[2].strip() for line in lines if line.startswith('model name')]
    return names[0] if names else platform.processor()


def machine_facts(versions: Mapping[str, str]) -> dict[str, str]:
    from importlib.metadata import version

    load = ', '.join(f'{value:.1f}' for value in os.getloadavg())
    packages = [f'{name} {version(name)}' for name in ('torch', 'numpy', 'gymnasium', 'numba')]
    return {
        'date': date.today().isoformat(),
        'processor': f'{cpu_model()}, {len(os.sched_getaffinity(0))} cores; load at the start {load}',
        'python': platform.python_version(),
        'packages': ', '.join(packages),
        'peers': ', '.join(dict.fromkeys(versions.values())) or 'hand-written loops only',
    }


def write(
    measurement: Measurement, workloads: Sequence[str], machine: Mapping[str, str], repeats: int
) -> None:
    """Writes the document; what was measured before of other workloads stays in it."""
    words = [
        'PYTHON' if before in ('--ding-python', '--torchrl-python', '--sb3-python') else word
        for before, word in pairwise(['', *sys.argv[1:]])
    ]
    command = shlex.join(['python', 'benchmarks/run.py', *words])
    document, results = ROOT / 'docs' / 'benchmarks.md', HERE / 'results.json'
    known = json.loads(results.read_text(encoding='utf-8')) if results.exists() else []
    new = Run(command, machine, repeats, tuple(workloads), measurement.skipped, measurement.records)
    runs = with_run([Run.from_json(run) for run in known], new)
    document.write_text(markdown(runs), encoding='utf-8')
    results.write_text(json.dumps([run.to_json() for run in runs], indent=1) + '\n', encoding='utf-8')
    progress(f'wrote {document.relative_to(ROOT)} and {results.relative_to(ROOT)}')


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    given = {
        'ding': args.ding_python,
        **dict.fromkeys(('sb3', 'sb3_contrib', 'contrib_crossq', 'contrib_tqc'), args.sb3_python),
        **dict.fromkeys(('torchrl_sync', 'torchrl_async'), args.torchrl_python),
    }
    pythons = {peer: python for peer, python in given.items() if python}
    versions = installed_versions(pythons)
    absent = {
        peer: f'{DISTRIBUTIONS[peer]} is not installed' for peer in DISTRIBUTIONS if peer not in versions
    }
    machine = machine_facts(versions)
    measurement = Measurement(args.repeats, args.quick, pythons, absent)
    chosen = [c for c in CASES if c.workload in args.workloads and c.sizes_of(args.quick) is not None]
    console = Console(width=None if sys.stdout.isatty() else 160)
    for case in chosen:
        try:
            measurement.measure(case, [peer for peer in case.peers if peer in args.peers])
        except SideError as error:
            sys.exit(f'{OWN} failed in {case.name}: {error}')
        lines = rows(measurement.records, case, measurement.skipped[case.name], judged=not args.quick)
        console.print(rich_table(case, lines))
    if not (args.no_write or args.quick):
        write(measurement, args.workloads, machine, args.repeats)


if __name__ == '__main__':
    main()
