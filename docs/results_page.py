"""The text of ``docs/results.md`` and the first lines of the configs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean, median

import numpy as np
from results_rows import Row, Run, number, shown

from rlframe.app.comparison import bootstrap
from rlframe.scores import interquartile_mean

HEAD = """# Results

This page shows what the shipped configs reach. A run trains a config with one seed to its budget of env steps, also past
its goal, and `rlframe eval` then scores its best checkpoint on 100 episodes that training never saw, unless a note gives another number.
All seeds of a row have the same budget.

| column | meaning |
|---|---|
| mean | mean of the seeds' mean returns |
| 95 % interval | of the mean, by bootstrap over the seeds: with three seeds, little more than their range |
| IQM | interquartile mean of the episodes of all seeds |
| published | mean return that others published for the env and the algorithm, mostly of a single run; **bold** if ours is below it, or takes more env steps; without one, what a random policy has, where it is known |
| reached | first evaluation while training whose mean is at least the published one (without one: the stop value of the config) |

CPU seconds cover the whole process, imports and evaluations included, with one torch thread; wall seconds do, too, and other
work on the machine makes them longer. With other versions of torch and numpy, the same seed gives other numbers. Configs of
[parallel mode](parallel.md) ran with `-m parallel`. `python docs/make_results.py` writes this page; with names of configs, or
`--all`, it first measures what is missing, and continues runs that were interrupted. In the pictures, dashed lines are the
published means.
"""
TOTALS = '| config | mean | 95 % interval | IQM | seeds | env steps | CPU seconds | published |\n|---|---|---|---|---|---|---|---|'
RUNS = '| config | seed | return | best evaluation | env steps | updates | CPU seconds | wall seconds | reached |\n|---|---|---|---|---|---|---|---|---|'


def page(runs: Sequence[Run], rows: Mapping[str, Row]) -> str:
    """Returns the text of the page."""
    groups = {name: group for name, group in shown(runs).items() if name in rows}
    parts = [HEAD, TOTALS, *(_total(rows[name], group) for name, group in groups.items()), '']
    stale = [f'`{name}`' for name, group in groups.items() if group[0].get('stale')]
    if stale:
        parts += [
            f'Measured with older settings, or only until the goal was reached: {", ".join(stale)}.',
            '',
        ]
    parts += _shortfalls(groups, rows)
    for env, names in by_env(groups, rows).items():
        picture = f'![Returns of evaluations while training](curves/{slug(env)}.png)'
        parts += [f'\n## {env}\n', f'{picture}\n', RUNS]
        parts += [_one(rows[name], run) for name in names for run in groups[name]]
        notes = [(_note(rows[name], groups[name]), name) for name in names]
        parts += [f'\n`{name}`: {note}.' for note, name in notes if note]
    machines = sorted({run['where'] for group in groups.values() for run in group})
    return '\n'.join([*parts, '\n## Machines\n', *(f'- {machine}' for machine in machines), ''])


def by_env(groups: Mapping[str, Sequence[Run]], rows: Mapping[str, Row]) -> dict[str, list[str]]:
    """Groups the names of measured rows by env."""
    envs: dict[str, list[str]] = {}
    for name in groups:
        envs.setdefault(rows[name].title[1], []).append(name)
    return dict(sorted(envs.items(), key=lambda item: item[0].lower()))


def slug(env: str) -> str:
    """Returns the file name of an env's picture, without its ending."""
    return re.sub(r'\W+', '_', env).strip('_')


def interval(runs: Sequence[Run]) -> tuple[float, float] | None:
    """Returns the 95 % bootstrap interval of the mean over seeds; None for a single seed."""
    if len(runs) < 2:
        return None
    low, high = bootstrap(np.array([run['mean'] for run in runs]))
    return float(low), float(high)


def reached(row: Row, run: Run) -> tuple[int, float] | None:
    """Returns the env steps and seconds at which an evaluation first had the published mean, or the config's stop value."""
    goal = row.published.mean if row.published else row.sections[0]['env'].get('stop_value')
    if goal is None or 'times' not in run:
        return None
    points = zip(run['curve'], run['times'], strict=True)
    return next(((step, seconds) for (step, mean), seconds in points if mean >= goal), None)


def _total(row: Row, runs: Sequence[Run]) -> str:
    mean = fmean(run['mean'] for run in runs)
    ends = interval(runs)
    between = f'{number(ends[0], mean)} to {number(ends[1], mean)}' if ends else ''
    returns = [value for run in runs for value in run.get('returns', ())]
    iqm = number(float(interquartile_mean(np.array(returns))), mean) if returns else ''
    cpu = [run['cpu_seconds'] for run in runs if 'cpu_seconds' in run]
    published = f'{row.published}' if row.published else ''
    if row.random is not None and not published:
        published = f'{number(row.random)} (random)'
    if shortfall(row, mean):
        published = f'**{published}**'
    cells = (
        _link(row),
        number(mean),
        between,
        iqm,
        f'{len(runs)}',
        _steps(row, runs),
        f'{median(cpu):,.0f}' if cpu else '',
        published,
    )
    return f'| {" | ".join(cells)} |'


def _steps(row: Row, runs: Sequence[Run]) -> str:
    """Returns the env steps of a row, and the config's budget if it was not used up."""
    steps = f'{median(run["env_steps"] for run in runs):,.0f}'
    whole = row.sections[0].get('max_env_step')
    is_short = row.env_steps is not None and whole is not None and row.env_steps < whole
    return f'{steps} of {whole:,}' if is_short else steps


def _shortfalls(groups: Mapping[str, Sequence[Run]], rows: Mapping[str, Row]) -> list[str]:
    """Returns the rows below their published mean, with the reasons."""
    lines = []
    for name, runs in groups.items():
        row = rows[name]
        if lack := shortfall(row, fmean(run['mean'] for run in runs)):
            lines.append(f'- {_link(row)}: {lack}. {row.why}'.rstrip())
    return ['## Below published results\n', *lines] if lines else []


def shortfall(row: Row, mean: float) -> str:
    """Returns what a row lacks to the published result; empty if nothing."""
    if row.published is None:
        return ''
    lack = []
    digits = len(f'{row.published.mean}'.partition('.')[2])
    if round(mean, digits) < row.published.mean:
        lack.append(f'{number(mean)} against {number(row.published.mean, mean)}')
    if row.published.env_steps and (row.budget or 0) > row.published.env_steps:
        lack.append(f'{row.budget:,} env steps against {row.published.env_steps:,}')
    return ', and '.join(lack)


def _one(row: Row, run: Run) -> str:
    score = f'{number(run["mean"])} +- {number(run["std"], run["mean"])}'
    found = reached(row, run)
    cells = (
        _link(row),
        f'{run["seed"]}',
        score,
        number(run['best']),
        f'{run["env_steps"]:,}',
        f'{run["updates"]:,}',
        f'{run["cpu_seconds"]:,.0f}' if 'cpu_seconds' in run else '',
        f'{run["seconds"]:,.0f}',
        f'{found[0]:,} env steps, {found[1]:,.0f} s' if found else '',
    )
    return f'| {" | ".join(cells)} |'


def _note(row: Row, runs: Sequence[Run]) -> str:
    """Returns what else is to be known about a row."""
    notes = [f'{row.config} with {" ".join(f"`{text}`" for text in row.overrides)}'] if row.overrides else []
    if row.episodes != 100:
        notes.append(f'scored on {row.episodes:,} episodes')
    if row.ends_at_goal:
        notes.append('ended at its goal')
    return '; '.join([*notes, *sorted({run['note'] for run in runs if 'note' in run})])


def _link(row: Row) -> str:
    return f'[{row.name}](../configs/{row.file.name})'


def first_lines(runs: Sequence[Run], rows: Mapping[str, Row]) -> dict[str, str]:
    """Returns the first line of each measured config, by its name."""
    files: dict[str, list[str]] = {}
    for name in shown(runs):
        if name in rows:
            files.setdefault(rows[name].file.stem, []).append(name)
    groups = shown(runs)
    return {stem: first_line([(rows[name], groups[name]) for name in names]) for stem, names in files.items()}


def first_line(measured: Sequence[tuple[Row, Sequence[Run]]]) -> str:
    """Returns the first line of a config, with the results of its rows after the colon."""
    old = measured[0][0].file.read_text(encoding='utf-8').split('\n')[0]
    closing = '"""' if old.endswith('"""') else ''
    seeds = _same_or_range(
        [_seeds(runs) for _, runs in measured], [len(runs) for _, runs in measured], ' seeds'
    )
    budgets = [median(run['env_steps'] for run in runs) for _, runs in measured]
    steps = _same_or_range([f'{_steps(*one)} env steps' for one in measured], budgets, ' env steps')
    means = [run['mean'] for run in measured[0][1]]
    worst = f' (worst {number(min(means))})' if len(means) > 1 == len(measured) else ''
    title = old.removesuffix('"""').removesuffix('.').split(':')[0]
    start = f'{title}: return {_returns(measured)}, {seeds}{worst}'
    return f'{start}, {steps}, {_duration([run for _, runs in measured for run in runs])}.{closing}'


def _seeds(runs: Sequence[Run]) -> str:
    """Returns the seeds of a row in words."""
    seeds = [run['seed'] for run in runs]
    return f'seeds {seeds[0]}-{seeds[-1]}' if len(seeds) > 1 else f'seed {seeds[0]}'


def _same_or_range(texts: Sequence[str], counts: Sequence[float], unit: str) -> str:
    """Returns the text that all rows share, else the range of their counts."""
    return texts[0] if len({*texts}) == 1 else f'{min(counts):,.0f} to {max(counts):,.0f}{unit}'


def _returns(measured: Sequence[tuple[Row, Sequence[Run]]]) -> str:
    """Returns the mean of a config's only row, or that of each row with its env."""
    means = [number(fmean(run['mean'] for run in runs)) for _, runs in measured]
    if len(measured) == 1:
        return means[0]
    envs = [row.title[1] for row, _ in measured]
    return ', '.join(f'{mean} ({env})' for env, mean in zip(envs, means, strict=True))


def _duration(runs: Sequence[Run]) -> str:
    cpu = [run['cpu_seconds'] for run in runs if 'cpu_seconds' in run]
    seconds = median(run['seconds'] for run in runs)
    return f'{median(cpu):,.0f} s of CPU time' if cpu else f'{seconds:,.0f} s'


def write_first_lines(runs: Sequence[Run], rows: Mapping[str, Row]) -> None:
    """Writes the results into the first lines of the configs."""
    files = {row.file.stem: row.file for row in rows.values()}
    for stem, line in first_lines(runs, rows).items():
        _, _, rest = files[stem].read_text(encoding='utf-8').partition('\n')
        files[stem].write_text(f'{line}\n{rest}', encoding='utf-8')
