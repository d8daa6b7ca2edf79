"""The page ``docs/return_per_hour.md`` and its picture: what return an hour of one core buys."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from results_page import by_env
from results_rows import Row, Run, number, shown

RACES = Path(__file__).parents[1] / 'benchmarks'
sys.path.append(str(RACES))
from return_pairs import pair_of  # noqa: E402

HOUR = 3600.0
SHARES = (1 / 3, 2 / 3, 1.0)
"""Shares of the published return whose time is shown."""
PEER_LINES = {"SB3's PPO": '--', "SB3's SAC": ':'}
"""Lines of SB3's algorithms in the picture."""
DRAWN = ('Hopper', 'Walker2d', 'HalfCheetah', 'Ant')
"""Envs of the picture, whatever their version."""
HEAD = """# Return per CPU-hour

What return an hour of one core buys. Written by `python docs/make_results.py` from the runs of [results](results.md);
`rlframe train -c CONFIG` repeats each of them.

CPU seconds are those of one thread, with imports and evaluations. The columns *s to* give the time of the first evaluation at a third,
two thirds or all of the published return, as the median over the seeds; a dash means that most seeds do not reach it. The last
column is the best evaluation within the first CPU-hour, with the CPU seconds of runs that end sooner. The CPU time at an evaluation
is estimated: the CPU time of the run times the share of its wall time until then.

![Return against CPU seconds, for robots of MuJoCo](curves/return_per_hour.png)

| env | config | published | s to a third | s to two thirds | s to all | env steps to all | within an hour |
| --- | --- | --- | --- | --- | --- | --- | --- |"""
FOOT = """
Rows whose published return is not above 0 are left out, as its thirds mean nothing. The
[time to the published return](time_to_return.md) has some of them, beside SB3.
"""


def page(runs: Sequence[Run], rows: Mapping[str, Row]) -> str:
    """Returns the text of the page."""
    groups = _timed(runs, rows)
    lines = []
    for env, names in by_env(groups, rows).items():
        lines += [_line(env, rows[name], groups[name]) for name in names]
    return '\n'.join([HEAD, *lines, FOOT])


def _timed(runs: Sequence[Run], rows: Mapping[str, Row]) -> dict[str, list[Run]]:
    """Returns the runs of the rows that belong on the page."""
    found = {}
    for name, group in shown(runs).items():
        row = rows.get(name)
        published = row.published if row and not row.is_offline else None
        if published and published.mean > 0 and all('times' in run for run in group):
            found[name] = group
    return found


def cpu_curve(run: Run) -> list[tuple[float, int, float]]:
    """Returns CPU seconds, env steps and return of each evaluation of a run."""
    share = run['cpu_seconds'] / run['seconds']
    return [
        (share * seconds, steps, mean)
        for seconds, (steps, mean) in zip(run['times'], run['curve'], strict=True)
    ]


def first_at(run: Run, goal: float) -> tuple[float, float]:
    """Returns CPU seconds and env steps of the first evaluation at a return; infinity if there is none."""
    reached = [(seconds, float(steps)) for seconds, steps, mean in cpu_curve(run) if mean >= goal]
    return reached[0] if reached else (math.inf, math.inf)


def within_hour(run: Run) -> float:
    """Returns the best evaluation of the first CPU-hour; the first of a run whose first comes later."""
    curve = cpu_curve(run)
    return max(mean for seconds, _, mean in curve if seconds <= max(HOUR, curve[0][0]))


def _line(env: str, row: Row, runs: Sequence[Run]) -> str:
    assert row.published is not None
    published = row.published.mean
    times = [median(first_at(run, share * published)[0] for run in runs) for share in SHARES]
    steps = median(first_at(run, published)[1] for run in runs)
    best = number(median(within_hour(run) for run in runs), like=published)
    seconds = median(run['cpu_seconds'] for run in runs)
    cells = [
        env,
        f'[{row.name}](../configs/{row.file.name})',
        str(row.published),
        *map(_whole, times),
        _whole(steps),
        best if seconds > HOUR else f'{best} ({_whole(seconds)} s)',
    ]
    return f'| {" | ".join(cells)} |'


def _whole(value: float) -> str:
    return '-' if math.isinf(value) else f'{value:,.0f}'


def peers() -> list[tuple[str, str, list[float], list[float]]]:
    """Returns SB3's runs of the race to the published return: algorithm, env, CPU seconds and returns of its looks."""
    found = []
    for run in json.loads((RACES / 'time_to_return.json').read_text(encoding='utf-8')):
        if run['side'] == 'sb3' and run.get('curve'):
            pair = pair_of(run['config'])
            seconds, _, means = zip(*run['curve'], strict=True)
            found.append((f"SB3's {pair.algorithm}", pair.env_id, list(seconds), list(means)))
    return found


def draw(runs: Sequence[Run], rows: Mapping[str, Row], file: Path) -> None:
    """Draws return against CPU seconds: a panel for each robot, a colour for each algorithm, a line for each seed; SB3 is grey."""
    import matplotlib as mpl

    mpl.use('Agg')
    from matplotlib import pyplot as plt

    groups = _timed(runs, rows)
    figure, panels = plt.subplots(1, len(DRAWN), figsize=(12, 3.2), layout='constrained')
    colours: dict[str, str] = {}
    labels: dict[str, Any] = {}
    for robot, axes in zip(DRAWN, panels, strict=True):
        for name, group in groups.items():
            algorithm, env = rows[name].title
            if not env.startswith(robot):
                continue
            colour = colours.setdefault(algorithm, f'C{len(colours)}')
            for run in group:
                seconds, _, means = zip(*cpu_curve(run)[1:], strict=True)
                labels[algorithm] = axes.plot(seconds, means, color=colour, alpha=0.8, linewidth=1.2)[0]
        for algorithm, env, seconds, means in peers():
            if env.startswith(robot):
                style = dict(color='0.45', linestyle=PEER_LINES[algorithm], linewidth=1.2)
                labels[algorithm] = axes.plot(seconds, means, **style)[0]
        axes.set(title=robot, xlabel='CPU seconds', xscale='log')
        axes.grid(alpha=0.3)
    panels[0].set_ylabel('return of an evaluation')
    figure.legend(
        labels.values(), labels.keys(), loc='outside upper center', ncols=len(labels), frameon=False
    )
    figure.savefig(file, dpi=110, metadata={'Software': None})
    plt.close(figure)
