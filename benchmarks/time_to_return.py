"""W8: trains shipped configs beside SB3 until the published return, and writes docs/time_to_return.md.

usage: python benchmarks/time_to_return.py --peer-python PYTHON [--sbx-python PYTHON] [--configs NAME ...] [--seeds 0 1 2]
                                           [--jobs 1]
       python benchmarks/time_to_return.py --report

The peer has stable_baselines3 and sb3_contrib; sbx, those algorithms in JAX, needs an environment of its own. Finished runs are
kept in benchmarks/time_to_return.json and skipped, so an interrupted command goes on where it was; to measure a run again,
remove its record.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from arguments import program
from report import OWN, number
from return_pairs import PAIRS, ZOO, Pair
from run import ONE_THREAD, cpu_model, progress

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGE = ROOT / 'docs' / 'time_to_return.md'
PEER, SBX = 'sb3', 'sbx'
GOAL = 3.0
"""How many times SB3's wall time must be rlframe's."""
HEAD = f"""# Time to the published return

Written by `python benchmarks/time_to_return.py`; do not edit. rlframe trains its shipped config, SB3 uses the hyper-parameters of
[rl-baselines3-zoo]({ZOO}),
until the mean return of 100 episodes of the greedy policy is the one that the zoo publishes. Both sides are judged by the same
rule: at fixed numbers of env steps, ten episodes are played, and a hundred more if these are at the return. The time that this
takes is not counted, nor are imports. Each run is a process with one thread.

A cell is the median over the seeds. A run that spends the env steps of the published result without reaching it, or 900 CPU
seconds on a robot of MuJoCo, has the time until then, marked by `>`. BitFlip of 15 bits, which the zoo has not, is learned with the options of
our config on both sides, by DQN with hindsight replay, until 98 % of the episodes reach their goal.
BitFlip, the robots and sbx were measured beside other runs: trust their CPU seconds, not the wall clock. The goal is a third of SB3's time (a ratio of {GOAL:g}), by
the wall clock and by CPU time, which depends less on what else the machine did.
"""

SBX_HEAD = """## Beside sbx

sbx is SB3 in JAX, with the same hyper-parameters; it has no A2C, QR-DQN or hindsight. Each of its runs has one core, and the time
to compile counts."""
SBX_HEADINGS = ('pair', 'rlframe CPU s', 'reached', 'sbx CPU s', 'env steps', 'reached', 'CPU ratio')

SHARES = (1 / 3, 2 / 3, 1.0)
SHARES_HEAD = """## CPU seconds to a share of the return

Of the first look of ten episodes that is at a third, two thirds or all of the published return, without the time of looks."""
SHARE_HEADINGS = ['pair'] + [
    f'{share}: {what}' for share in ('third', 'two thirds', 'all') for what in ('rlframe', 'SB3', 'ratio')
]

Record = Mapping[str, Any]


class Side(NamedTuple):
    """The medians of one side of a pair."""

    seconds: float
    cpu_seconds: float
    env_steps: int
    is_reached: bool
    """Whether the run in the middle reached the return."""
    reached: int
    """How many runs did."""
    runs: int


def side_of(records: Iterable[Record], config: str, side: str) -> Side | None:
    """Returns the medians of a side; runs that did not reach the return come last. None: nothing measured."""
    runs = [r for r in records if (r['config'], r['side']) == (config, side)]
    if not runs:
        return None
    reached = [r['reached'] is not None for r in runs]
    is_reached = sum(reached) > len(runs) // 2

    def middle(name: str) -> Any:
        ordered = sorted((not r, run[name]) for r, run in zip(reached, runs, strict=True))
        return ordered[len(runs) // 2][1]

    return Side(
        middle('seconds'), middle('cpu_seconds'), middle('env_steps'), is_reached, sum(reached), len(runs)
    )


def ratio_text(own: Side, peer: Side, name: str) -> str:
    """Returns how many times longer the peer took; nothing where rlframe did not reach the return."""
    if not own.is_reached:
        return ''
    ratio = getattr(peer, name) / getattr(own, name)
    return f'{"" if peer.is_reached else "> "}{ratio:.1f}x'


def verdict(own: Side, peer: Side) -> str:
    """Says whether the goal is met, by wall time and by CPU time: one of them may be due to other work on the machine."""
    ratio = min(peer.seconds / own.seconds, peer.cpu_seconds / own.cpu_seconds)
    return 'met' if own.is_reached and ratio >= GOAL else 'missed'


def cells(side: Side) -> list[str]:
    """Returns a side's cells: wall seconds, CPU seconds, env steps, runs that reached the return."""
    mark = '' if side.is_reached else '> '
    values = (number(side.seconds), number(side.cpu_seconds), f'{side.env_steps:,}')
    return [*(mark + value for value in values), f'{side.reached} of {side.runs}']


def first_at(record: Record, goal: float) -> float:
    """Returns the CPU seconds of the first look of ten episodes at a return; infinity if there is none."""
    return next((seconds for seconds, _, mean in record['curve'] if mean >= goal), math.inf)


def share_cells(records: Iterable[Record], pair: Pair, share: float) -> list[str]:
    """Returns the medians of the CPU seconds to a share of the published return, of rlframe and of SB3, and their ratio."""
    times, cuts = [], []
    for side in (OWN, PEER):
        runs = [r for r in records if (r['config'], r['side']) == (pair.name, side)]
        times.append(statistics.median_high(first_at(run, share * pair.published) for run in runs))
        cuts.append(statistics.median_high(run['cpu_seconds'] for run in runs))
    texts = [f'> {number(c)}' if math.isinf(t) else number(t) for t, c in zip(times, cuts, strict=True)]
    own, peer = times
    if math.isinf(own):
        return [*texts, '']
    return [*texts, f'> {cuts[1] / own:.1f}x' if math.isinf(peer) else f'{peer / own:.1f}x']


def share_table(records: Sequence[Record]) -> list[list[str]]:
    """Returns the rows of all pairs whose looks were kept: CPU seconds to a third, two thirds and all of the return."""
    rows = []
    for pair in PAIRS:
        kept = [r for r in records if r['config'] == pair.name and 'curve' in r]
        if {r['side'] for r in kept} >= {OWN, PEER}:
            rows.append([pair.name, *(cell for share in SHARES for cell in share_cells(kept, pair, share))])
    return rows


def raced(records: Sequence[Record], side: str) -> Iterator[tuple[Pair, Side, Side]]:
    """Yields the pairs that rlframe and a peer trained, with what either needed."""
    for pair in PAIRS:
        own, peer = side_of(records, pair.name, OWN), side_of(records, pair.name, side)
        if own and peer:
            yield pair, own, peer


def sbx_table(records: Sequence[Record]) -> list[list[str]]:
    """Returns the rows of all pairs that sbx trained."""
    rows = []
    for pair, own, peer in raced(records, SBX):
        (_, spent, _, reached), (_, *theirs) = cells(own), cells(peer)
        rows.append([pair.name, spent, reached, *theirs, ratio_text(own, peer, 'cpu_seconds')])
    return rows


HEADINGS = (
    *('config', 'return', 'rlframe s', 'CPU s', 'env steps', 'reached'),
    *('SB3 s', 'CPU s', 'env steps', 'reached', 'wall ratio', 'CPU ratio', 'goal'),
)


def table(records: Sequence[Record]) -> list[list[str]]:
    """Returns the rows of all pairs of which both sides were measured."""
    rows = []
    for pair, own, peer in raced(records, PEER):
        ratios = [ratio_text(own, peer, name) for name in ('seconds', 'cpu_seconds')]
        name = f'[{pair.name}](../configs/{pair.file})'
        rows.append([name, f'{pair.published:g}', *cells(own), *cells(peer), *ratios, verdict(own, peer)])
    return rows


def line(row: Sequence[str]) -> str:
    """Returns a row of the table for a terminal."""
    name = row[0][1 : row[0].index(']')]
    return f'{name:26} rlframe {row[2]:>7} s, SB3 {row[6]:>7} s: {row[10] or "not reached"}, {row[12]}'


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    lines = [headings, ['---'] * len(headings), *rows]
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)


def page(records: Sequence[Record]) -> str:
    """Returns the text of docs/time_to_return.md."""
    parts = [HEAD.strip(), markdown(HEADINGS, table(records))]
    if beside := sbx_table(records):
        parts += [SBX_HEAD, markdown(SBX_HEADINGS, beside)]
    if shares := share_table(records):
        parts += [SHARES_HEAD, markdown(SHARE_HEADINGS, shares)]
    machines = ', '.join(sorted({r['where'] for r in records}))
    parts.append(f'Machine: {machines}. `benchmarks/time_to_return.json` has every run.')
    return '\n\n'.join(parts) + '\n'


class Results:
    """The finished runs, on disk after each; a report needs some."""

    def __init__(self, path: Path, is_report: bool = False) -> None:
        if is_report and not path.exists():
            sys.exit(f'--results: there is no file {path} to report on')
        self._path, self._lock = path, Lock()
        self.records: list[Record] = json.loads(path.read_text(encoding='utf-8')) if path.exists() else []

    def has(self, config: str, seed: int, side: str) -> bool:
        """Whether a run is finished."""
        return any((r['config'], r['seed'], r['side']) == (config, seed, side) for r in self.records)

    def add(self, record: Record) -> None:
        """Keeps a run, by a rename so that no interruption leaves half a file."""
        with self._lock:
            self.records.append(record)
            text = json.dumps(self.records, indent=1) + '\n'
            beside = self._path.with_suffix('.new')
            beside.write_text(text, encoding='utf-8')
            beside.replace(self._path)


def run_side(pair: Pair, seed: int, side: str, python: str, env_steps: int | None) -> dict[str, Any]:
    """Trains one side in a process of its own.

    Raises:
        RuntimeError: If it fails, with the last line that it wrote.
    """
    script = [HERE / 'return_side.py'] if side == OWN else [HERE / 'peers' / 'w8_return.py', side]
    command = [python, *map(str, [*script, pair.name, seed]), *([str(env_steps)] if env_steps else [])]
    path = {'PYTHONPATH': str(ROOT)} if side == OWN else {}
    measured = answer_of(command, path, f'{pair.name} seed {seed}, {side}')
    return {'config': pair.name, 'seed': seed, 'side': side, **measured, 'where': where()}


def answer_of(
    command: Sequence[str], variables: Mapping[str, str], what: str, folder: str | None = None
) -> dict[str, Any]:
    """Returns what a command measured with one thread: the JSON that begins with its ``peer``, without that.

    Args:
        command: The command.
        variables: Further environment variables.
        what: The run, in words.
        folder: Its working directory; by default that of this process.

    Raises:
        RuntimeError: If it fails, with the last line that it wrote.
    """
    env = {**os.environ, **ONE_THREAD, **variables}
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=folder)
    lines = [line for line in answer.stdout.splitlines() if line.startswith('{"peer"')]
    if answer.returncode or not lines:
        last = (answer.stderr.strip() or answer.stdout.strip() or 'no output').splitlines()[-1]
        raise RuntimeError(f'{what}: exit status {answer.returncode}: {last}')
    measured: dict[str, Any] = json.loads(lines[-1])
    del measured['peer']
    return measured


def where() -> str:
    """Returns the machine, in words."""
    return f'{cpu_model()}, {len(os.sched_getaffinity(0))} cores'


def measure(results: Results, pairs: Sequence[Pair], args: argparse.Namespace) -> None:
    """Runs what is missing: for each seed of each pair rlframe, then its peers; with two jobs two at the same time."""
    pythons = {OWN: sys.executable, PEER: args.peer_python, SBX: args.sbx_python}

    def one(job: tuple[Pair, int, str]) -> None:
        pair, seed, side = job
        progress(f'{pair.name} seed {seed}: {side}')
        record = run_side(pair, seed, side, pythons[side], args.env_step)
        results.add(record)
        progress(f'{pair.name} seed {seed}: {side} {record["seconds"]} s, reached: {record["reached"]}')

    jobs = [
        (pair, seed, side)
        for pair in pairs
        for seed in args.seeds
        for side, python in pythons.items()
        if python and (side != SBX or pair.in_sbx) and not results.has(pair.name, seed, side)
    ]
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(one, jobs))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    names = [pair.name for pair in PAIRS]
    parser.add_argument(
        '--configs', nargs='+', choices=names, default=names, metavar='NAME', help='only these'
    )
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2])
    parser.add_argument('--jobs', type=int, default=1, choices=(1, 2), help='runs at the same time')
    parser.add_argument(
        '--peer-python', type=program, default=sys.executable, help='interpreter that has SB3'
    )
    parser.add_argument(
        '--sbx-python', type=program, help='interpreter that has sbx; by default, it is left out'
    )
    parser.add_argument('--results', type=Path, default=HERE / 'time_to_return.json', help='file of records')
    parser.add_argument('--page', type=Path, default=PAGE, help='file of the report')
    parser.add_argument('--env-step', type=int, help='smaller budget for all runs: shows that it runs')
    parser.add_argument('--report', action='store_true', help='train nothing, write the report')
    args = parser.parse_args(arguments)
    if args.env_step and any(getattr(args, name) == parser.get_default(name) for name in ('results', 'page')):
        parser.error('--env-step cuts runs short; name files for them: --results FILE --page FILE')
    return args


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    results = Results(args.results, args.report)
    if not args.report:
        try:
            measure(results, [pair for pair in PAIRS if pair.name in args.configs], args)
        except RuntimeError as error:
            sys.exit(str(error))
    for row in table(results.records):
        progress(line(row))
    args.page.write_text(page(results.records), encoding='utf-8')
    progress(f'wrote {args.page}')


if __name__ == '__main__':
    main()
