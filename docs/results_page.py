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

What the shipped configs reach. A run trains a config with one seed to its budget of env steps, also past its goal;
`rlframe eval` then scores its best checkpoint on 100 episodes that training never saw. Notes name the exceptions.

| column | meaning |
|---|---|
| mean, worst | mean of the seeds' mean returns, and the lowest of them |
| 95 % interval | of the mean, by bootstrap over the seeds: with three seeds, little more than their range |
| IQM | interquartile mean of the episodes of all seeds |
| CPU seconds | of one run, imports and evaluations included, with one torch thread (median) |
| published | mean return that others published for the env and the algorithm, mostly of a single run; **bold** if ours is below it, or takes more env steps; else the return of a random policy, if it is known |

Configs of [recorded data](how_to/recorded_data.md) count updates; `make_results.py` makes their data if they are not there.

With other versions of torch and numpy, the same seed gives other numbers. Configs of [parallel mode](parallel.md) ran with
`-m parallel`. `python docs/make_results.py` writes this page from `results.json`, which has every run and its curve; with
names of configs, or `--all`, it first measures what is missing. [Time to the published return](time_to_return.md) compares
speeds.
"""
TOTALS = '| config | mean | worst | 95 % interval | IQM | seeds | env steps | CPU seconds | published |\n|---|---|---|---|---|---|---|---|---|'


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
    parts += [*_shortfalls(groups, rows), *_notes(groups, rows), '\n## Curves\n']
    parts += [
        'Returns of the evaluations during training, one line per seed; dashed lines are the published means.'
    ]
    parts += [f'\n![{env}](curves/{slug(env)}.png)' for env in by_env(groups, rows)]
    return '\n'.join([*parts, '\n## Machines\n', *_machines(groups), ''])


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
        number(min(run['mean'] for run in runs), mean),
        between,
        iqm,
        f'{len(runs)}',
        _steps(row, runs),
        f'{median(cpu):,.0f}' if cpu else '',
        published,
    )
    return f'| {" | ".join(cells)} |'


def _steps(row: Row, runs: Sequence[Run]) -> str:
    """Returns the env steps of a row, and the config's budget if it was not used up; with data, its updates."""
    if row.is_offline:
        return f'{median(run["updates"] for run in runs):,.0f} updates'
    steps = f'{median(run["env_steps"] for run in runs):,.0f}'
    whole = row.sections[0].get('max_env_step')
    is_short = row.env_steps is not None and whole is not None and row.env_steps < whole
    return f'{steps} of {whole:,}' if is_short else steps


def _shortfalls(groups: Mapping[str, Sequence[Run]], rows: Mapping[str, Row]) -> list[str]:
    """Returns the reasons of rows that are below their published mean, each with its rows."""
    below = [
        rows[name]
        for name, runs in groups.items()
        if shortfall(rows[name], fmean(run['mean'] for run in runs))
    ]
    reasons = [(row.why, row.name) for row in below if row.why]
    return ['## Below published results\n', *_listed(reasons)] if reasons else []


def _notes(groups: Mapping[str, Sequence[Run]], rows: Mapping[str, Row]) -> list[str]:
    """Returns how rows were measured that were not measured as the head of the page says."""
    notes = [(note, name) for name, runs in groups.items() for note in _note(rows[name], runs)]
    return ['\n## Notes\n', *_listed(notes)] if notes else []


def _listed(notes: Sequence[tuple[str, str]]) -> list[str]:
    """Returns one line per note, with the names of all its rows."""
    names: dict[str, list[str]] = {}
    for note, name in notes:
        names.setdefault(note, []).append(f'`{name}`')
    return [f'- {", ".join(of)}: {note.removesuffix(".")}.' for note, of in names.items()]


def _machines(groups: Mapping[str, Sequence[Run]]) -> list[str]:
    """Returns the machines, versions and dates of all runs."""
    places = [run['where'].split('; ') for group in groups.values() for run in group]
    return [f'- {"; ".join(sorted(set(texts)))}' for texts in zip(*places, strict=False)]


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


def _note(row: Row, runs: Sequence[Run]) -> list[str]:
    """Returns how a row was measured, if not as the head of the page says."""
    notes = (
        [f'`{row.config}` with {" ".join(f"`{text}`" for text in row.overrides)}'] if row.overrides else []
    )
    if row.data:
        notes.append(f'from `{row.data}`, whose episodes return {number(row.recorded["return"])}')
    if row.episodes != 100:
        notes.append(f'scored on {row.episodes:,} episodes')
    if row.ends_at_goal:
        notes.append('ended at its goal')
    return [*notes, *sorted({f'a seed {run["note"]}' for run in runs if 'note' in run})]


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
    unit = '' if measured[0][0].is_offline else ' env steps'
    steps = _same_or_range([f'{_steps(*one)}{unit}' for one in measured], budgets, unit)
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
