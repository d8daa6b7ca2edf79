"""Measures the shipped configs, and writes ``docs/results.md``, ``docs/return_per_hour.md``, their pictures and first lines.

usage: python docs/make_results.py                                      # only writes, from docs/results.json
       python docs/make_results.py cartpole_dqn acrobot_ppo --jobs 2    # first measures what is not measured of these rows
       python docs/make_results.py --all --seeds 0-4                    # of all rows
       python docs/make_results.py --all --list                         # what that would measure

Ctrl-C saves and ends the runs; the same command continues them. Finished runs are not repeated, unless their config changed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import make_data
import results_per_hour
from results_page import by_env, page, slug, write_first_lines
from results_queue import Order, Queue, collect, left
from results_rows import HERE, Row, Run, chosen, read_rows, read_runs, shown

from rlframe.app.seeds import parse_seeds
from rlframe.errors import ConfigError

PAGE, PICTURES = HERE / 'results.md', HERE / 'curves'
PER_HOUR = HERE / 'return_per_hour.md'
WORK = HERE.parent / 'results_runs'

WIDE = 5
"""Ratio of the longest to the shortest run of a picture from which on env steps have a logarithmic scale."""


def main(words: Sequence[str] | None = None) -> int:
    """Measures what is asked for, writes the page, the pictures and the first lines, and returns the exit code."""
    args = _parser().parse_args(words)
    try:
        order = _order(args)
    except ConfigError as error:
        sys.stderr.write(f'make_results.py: {error}\n')
        return 2
    if args.list:
        sys.stdout.writelines(f'{place.row.name} seed {place.seed}\n' for place in left(order))
        return 0
    code = 0
    if args.rows or args.all or args.missing:
        for data in sorted({place.row.data for place in left(order)} - {''}):
            make_data.ready(data)
        code = Queue(order).run()
    elif order.work.exists():
        collect(order.work)
    write()
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('rows', nargs='*', metavar='ROW', help='rows of results_rows.json, or configs')
    parser.add_argument('--all', action='store_true', help='all rows, after those that are named')
    parser.add_argument('--missing', action='store_true', help='all rows without any result')
    parser.add_argument('--skip', nargs='+', default=[], metavar='ROW', help='leave out these rows')
    parser.add_argument('--seeds', default='0-2', help='such as 0-4 or 0,3,7 (default: 0-2)')
    parser.add_argument('--jobs', type=int, default=1, help='how many runs at a time (default: 1)')
    parser.add_argument('--minutes', type=float, help='training time after which a run is stopped and scored')
    parser.add_argument(
        '--work', type=Path, default=WORK, help='folder of unfinished runs (default: results_runs)'
    )
    parser.add_argument('--list', action='store_true', help='print what is to be measured')
    return parser


def _order(args: argparse.Namespace) -> Order:
    """Returns what the arguments ask for.

    Raises:
        ConfigError: If they are invalid.
    """
    rows = read_rows()
    chosen(rows, [*args.rows, *args.skip])
    for name, value in (('--jobs', args.jobs), ('--minutes', args.minutes)):
        if value is not None and not value > 0:
            raise ConfigError('bad value', where=name, got=value, expected='a number above 0')

    def names(rows: dict[str, Row]) -> list[str]:
        skipped = {row.name for row in chosen(rows, args.skip)}
        found = [row.name for row in chosen(rows, args.rows)]
        measured = shown(read_runs())
        if args.all or args.missing:
            found += [name for name in rows if args.all or name not in measured]
        return [name for name in dict.fromkeys(found) if name not in skipped]

    return Order(names, parse_seeds(args.seeds), args.work.resolve(), args.jobs, args.minutes)


def write() -> None:
    """Writes the page, the pictures and the first lines of the configs."""
    runs, rows = read_runs(), read_rows()
    write_first_lines(runs, rows)
    PAGE.write_text(page(runs, rows), encoding='utf-8')
    groups = {name: group for name, group in shown(runs).items() if name in rows}
    for env, names in by_env(groups, rows).items():
        draw(env, [(rows[name], groups[name]) for name in names])
    PER_HOUR.write_text(results_per_hour.page(runs, rows), encoding='utf-8')
    results_per_hour.draw(runs, rows, PICTURES / f'{PER_HOUR.stem}.png')


def draw(env: str, measured: Sequence[tuple[Row, Sequence[Run]]]) -> None:
    """Draws the evaluations of all runs in an env, one colour per row and one line per seed; published means are dashed."""
    import matplotlib as mpl

    mpl.use('Agg')
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout='constrained')
    for i, (row, runs) in enumerate(measured):
        for run in runs:
            steps, means = zip(*run['curve'], strict=True)
            label = row.title[0] if run is runs[0] else None
            axes.plot(steps, means, color=f'C{i}', alpha=0.8, linewidth=1.2, label=label)
        if row.published:
            axes.axhline(row.published.mean, color=f'C{i}', linestyle='--', linewidth=0.8)
    unit = 'recorded env steps read' if any(row.is_offline for row, _ in measured) else 'env steps'
    axes.set(title=env, xlabel=unit, ylabel='return of an evaluation')
    lengths = [run['env_steps'] for _, runs in measured for run in runs]
    if max(lengths) > WIDE * min(lengths):
        axes.set_xscale('log', nonpositive='mask')
    axes.xaxis.set_major_formatter('{x:,.0f}')
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(PICTURES / f'{slug(env)}.png', dpi=110, metadata={'Software': None})
    plt.close(figure)


if __name__ == '__main__':
    sys.exit(main())
