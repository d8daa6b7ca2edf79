"""From what was measured to ratios, tables and docs/benchmarks.md. Nothing here runs anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, NamedTuple

from cases import CASES, WORKLOADS, Case, Measure
from rich.table import Table

OWN = 'rlframe'
UNITS: dict[Measure, str] = {
    'seconds': 'seconds',
    'us_cycle': 'us a cycle',
    'env_steps_per_s': 'transitions/s',
}
HEADINGS = (
    'side',
    'median',
    'min to max',
    'rlframe is x times faster',
    'min to max',
    'goal',
    'verdict',
    'work',
)


class Record(NamedTuple):
    """One run of one side."""

    case: str
    side: str
    round: int
    measured: Mapping[str, Any]
    """The JSON line that it printed."""


class Spread(NamedTuple):
    """The middle of some numbers and how far they go."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    side: str
    value: Spread | None
    """In the case's own unit; None where the side did not run."""
    ratio: Spread | None = None
    """How many times faster rlframe is, paired by round; None for rlframe itself."""
    goal: str = ''
    verdict: str = ''
    """``met``, ``missed``, empty where there is no goal or nothing was measured."""
    work: str = ''
    """Counts by which one sees that the sides did the same."""
    note: str = ''
    """Why the side did not run."""


def spread(values: Iterable[float]) -> Spread:
    """Returns median, smallest and largest of some numbers, at least one."""
    numbers = list(values)
    return Spread(median(numbers), min(numbers), max(numbers))


def values(records: Iterable[Record], case: Case, side: str) -> dict[int, float]:
    """Returns what a side measured in each round."""
    return {
        r.round: float(r.measured[case.measure]) for r in records if (r.case, r.side) == (case.name, side)
    }


def ratios(records: Sequence[Record], case: Case, peer: str) -> list[float]:
    """Returns for each round in which both ran how many times faster rlframe was than the peer."""
    own, other = values(records, case, OWN), values(records, case, peer)
    rounds = sorted(own.keys() & other.keys())
    if case.measure == 'env_steps_per_s':
        return [own[i] / other[i] for i in rounds]
    return [other[i] / own[i] for i in rounds]


def rows(records: Sequence[Record], case: Case, skipped: Mapping[str, str], judged: bool = True) -> list[Row]:
    """Returns the lines of a case's table, rlframe first.

    Args:
        records: Of all cases.
        case: Which one.
        skipped: Peers that did not run, and why.
        judged: Whether the goals apply; they do not to a smoke test.
    """
    goals = {goal.peer: goal for goal in case.goals} if judged else {}
    lines = []
    for side in (OWN, *case.peers):
        measured = values(records, case, side)
        if not measured:
            if side in skipped:
                lines.append(Row(side, None, note=skipped[side]))
            continue
        paired = ratios(records, case, side) if side != OWN else []
        ratio = spread(paired) if paired else None
        text = verdict = ''
        if goal := goals.get(side):
            text = f'>= {goal.at_least:g}x'
            verdict = 'met' if ratio and ratio.median >= goal.at_least else 'missed'
        lines.append(
            Row(side, spread(measured.values()), ratio, text, verdict, work_text(records, case, side))
        )
    return lines


def work_text(records: Iterable[Record], case: Case, side: str) -> str:
    """Returns how many env steps and updates a side says it did; ranges where the rounds differ."""
    runs = [r.measured for r in records if (r.case, r.side) == (case.name, side)]
    parts = []
    for name, words in (('env_steps', 'env steps'), ('updates', 'updates')):
        counts = sorted({int(run[name]) for run in runs if name in run})
        if counts:
            parts.append(f'{" to ".join(f"{n:,}" for n in dict.fromkeys((counts[0], counts[-1])))} {words}')
    return ', '.join(parts)


def number(value: float) -> str:
    """Returns a number with three digits, or all before the point."""
    return f'{value:,.0f}' if abs(value) >= 100 else f'{value:.3g}'


def cells(row: Row) -> list[str]:
    """Returns a line as text, one for each of ``HEADINGS``."""
    if row.value is None:
        return [row.side, row.note, '', '', '', '', '', '']
    ratio = row.ratio
    return [
        row.side,
        number(row.value.median),
        f'{number(row.value.low)} to {number(row.value.high)}',
        f'{ratio.median:.2f}x' if ratio else '',
        f'{ratio.low:.2f} to {ratio.high:.2f}' if ratio else '',
        row.goal,
        row.verdict,
        row.work,
    ]


def rich_table(case: Case, lines: Sequence[Row]) -> Table:
    """Returns a case's table for the terminal."""
    table = Table(title=f'{case.title} ({UNITS[case.measure]})', title_justify='left')
    for heading in HEADINGS:
        table.add_column(heading, justify='left' if heading in ('side', 'work', 'verdict') else 'right')
    styles = {'met': 'green', 'missed': 'red'}
    for line in lines:
        table.add_row(*cells(line), style=styles.get(line.verdict))
    return table


def markdown_table(tables: Mapping[str, Sequence[Row]]) -> str:
    """Returns the table of a workload for the document.

    Args:
        tables: Titles of its cases to their lines.
    """
    body = [['case', 'side', 'median', 'rlframe is x times as fast', 'goal'], ['---'] * 5]
    for title, lines in tables.items():
        for line in lines:
            text = f'{line.goal} {line.verdict}'.strip()
            measured = within(line.value, number) if line.value else line.note
            ratio = within(line.ratio, '{:.2f}x'.format) if line.ratio else ''
            body.append([title if line is lines[0] else '', line.side, measured, ratio, text])
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in body)


def within(spread: Spread, shown: Callable[[float], str]) -> str:
    """Returns a median with its range."""
    low, high = (shown(value).removesuffix('x') for value in (spread.low, spread.high))
    return f'{shown(spread.median)} ({low}-{high})'


@dataclass(frozen=True)
class Run:
    """What one command measured."""

    command: str
    machine: Mapping[str, str]
    """What it ran on, in words."""
    repeats: int
    """Rounds of each case."""
    workloads: tuple[str, ...]
    skipped: Mapping[str, Mapping[str, str]]
    """Case to peer to the reason why it did not run."""
    records: Sequence[Record]

    @property
    def facts(self) -> str:
        """How often, when and where it measured."""
        return f'{self.repeats} rounds, {self.machine["date"]}, {self.machine["processor"]}.'

    def to_json(self) -> dict[str, Any]:
        """Returns what ``from_json`` takes."""
        return {**vars(self), 'records': [record._asdict() for record in self.records]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Run:
        """Returns what ``to_json`` came from."""
        records = [Record(**record) for record in data['records']]
        return cls(**{**data, 'workloads': tuple(data['workloads']), 'records': records})


def with_run(runs: Sequence[Run], new: Run) -> list[Run]:
    """Returns the runs with a new one, which replaces what earlier ones measured of its workloads."""
    workload_of = {case.name: case.workload for case in CASES}
    kept = []
    for run in runs:
        workloads = tuple(name for name in run.workloads if name not in new.workloads)
        records = [record for record in run.records if workload_of.get(record.case) in workloads]
        if workloads:
            kept.append(replace(run, workloads=workloads, records=records))
    return [*kept, new]


def markdown(runs: Sequence[Run], cases: Sequence[Case] = CASES) -> str:
    """Returns the whole document.

    Args:
        runs: Each workload is in one of them at most.
        cases: All that there are, in order.
    """
    parts = [
        '# Benchmarks',
        'Written by `python benchmarks/run.py` from `benchmarks/results.json`; do not edit. Each system runs in its own process with'
        ' one thread, in turns: rlframe, the first peer, the second, ..., and again. A ratio compares two runs of the same round;'
        ' tables show the median and the range of the rounds. A goal is met if the median reaches it.',
    ]
    facts = dict.fromkeys(run.facts for run in runs)
    if len(facts) == 1:
        parts += facts  # said once
    for workload, description in WORKLOADS.items():
        for run in runs:
            if workload not in run.workloads:
                continue
            tables = {
                f'{case.title.removeprefix(workload.upper()).strip()}, {UNITS[case.measure]}': rows(
                    run.records, case, run.skipped.get(case.name, {})
                )
                for case in cases
                if case.workload == workload
            }
            where = f' {run.facts}' if len(facts) > 1 else ''
            parts += [f'## {workload.upper()}', f'{description}{where}', markdown_table(tables)]
    versions = {
        version: None
        for name in ('python', 'packages', 'peers')
        for run in runs
        for version in f'{"Python " * (name == "python")}{run.machine[name]}'.split(', ')
    }
    return '\n\n'.join([*parts, '## Versions', ', '.join(versions) + '.']) + '\n'
