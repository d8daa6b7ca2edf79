"""The report on a run: one HTML page that loads nothing."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import numpy as np

from rlframe._version import __version__
from rlframe.analysis.chart import chart
from rlframe.analysis.findings import changed_options, films_of, machine_facts, resumed_with, warnings_of
from rlframe.analysis.groups import value_text
from rlframe.analysis.page_style import POLICY, STYLE
from rlframe.analysis.run_files import SCORE, RunFiles, is_run, not_a_run
from rlframe.errors import ExperimentDirError
from rlframe.run.time_split import KINDS
from rlframe.safety.plain_text import printable
from rlframe.safety.private_file import write_private
from rlframe.safety.whole_file import followed, whole_file
from rlframe.scores import digits_text, duration_text, mean_interval

OPEN, MOST_ROWS, MOST_CHARTS = 12, 200, 60
"""Evaluations shown at once and in all; charts of other metrics."""
TIMES = ('time/elapsed', *(f'time/{kind}' for kind in KINDS))
"""Metrics that only grow, which other parts of the page show."""
PARTS = ('mean_reward', 'std_reward', 'min_reward', 'max_reward', 'mean_ep_length', 'episodes')
STATES = {'running': 'running', 'ended': 'ended', 'stopped': 'stopped: its process died'}


def write_report(folder: str | Path, out: str | None = None) -> Path:
    """Writes the report on a run.

    Args:
        folder: The run folder.
        out: The file; by default ``report.html`` in the run folder.

    Raises:
        ExperimentDirError: If the folder is no run, or the file cannot be written.
    """
    folder = Path(folder)
    if not is_run(folder):
        raise not_a_run(folder)
    text = document(report_body(RunFiles(folder)), folder.resolve().name)
    path = folder / 'report.html' if out is None else Path(out)
    try:
        with whole_file(path if out is None else followed(path)) as draft:
            write_private(draft, text)
    except OSError as error:
        raise ExperimentDirError(f'cannot be written: {error.strerror}', where=str(path)) from error
    return path


def document(body: str, title: str) -> str:
    """Returns an HTML document that may load nothing.

    Args:
        body: Its content, as HTML.
        title: Its title, as text.
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{STYLE}</style></head>'
        f'<body><main>{body}</main></body></html>\n'
    )


def report_body(run: RunFiles) -> str:
    """Returns the content of a report, as HTML."""
    parts = [_head(run), _curves(run), _evaluations(run), _times(run), _films(run)]
    parts += [_options(run), _resumed(run), _warnings(run), _others(run), _machine(run), _commands(run)]
    return ''.join(parts)


def _head(run: RunFiles) -> str:
    state, metrics = run.state(), run.metrics
    scores = metrics.curve(run.score_tag).values
    tiles = {
        'last score': digits_text(metrics.last(run.score_tag)),
        'best score': digits_text(float(scores.max())) if len(scores) else '-',
        'goal': digits_text(run.goal),
        'env steps': f'{metrics.envstep:,}',
        'updates': f'{metrics.train_iter:,}',
        'time': duration_text(run.seconds),
    }
    boxes = ''.join(
        f'<div class="tile"><b>{value}</b><span>{name}</span></div>' for name, value in tiles.items()
    )
    solved = (
        ''
        if math.isnan(run.steps_to_goal())
        else f' · goal reached after {run.steps_to_goal():,.0f} env steps'
    )
    note = f'<p class="note">{escape(printable(metrics.note))}</p>' if metrics.note else ''
    return (
        f'<h1>{escape(run.name)}</h1><p class="sub">{escape(run.policy)} on {escape(run.env)}, seed {escape(str(run.seed))}'
        f' · <span class="state {state}">{STATES[state]}</span>{solved}</p>{note}<div class="tiles">{boxes}</div>'
    )


def _curves(run: RunFiles) -> str:
    metrics, tag = run.metrics, run.score_tag
    if tag not in metrics.tags:
        return '<p>No evaluation yet.</p>'
    main, note = metrics.curve(tag), ''
    rows = list(metrics.rows([tag, 'eval/std_reward', 'eval/episodes']))
    spread = np.array([_half_width(std, episodes) for _, _, std, episodes in rows])
    if tag == SCORE and np.isfinite(spread).any():
        note = '<p class="note">band: 95 % interval of the mean over the episodes of an evaluation</p>'
        first = chart('return of evaluations', main, np.nan_to_num(spread), run.goal)
    else:
        first = chart(tag, main, goal=run.goal)
    return f'<h2>Curves</h2><div class="charts wide">{first}</div>{note}'


def _half_width(std: float, episodes: float) -> float:
    """Returns half the width of the 95 % interval of a mean; NaN if there is none."""
    interval = mean_interval(0.0, std, int(episodes)) if math.isfinite(episodes) else None
    return math.nan if interval is None else interval.high


def _others(run: RunFiles) -> str:
    shown = (run.score_tag, *TIMES)
    tags = [tag for tag in run.metrics.tags if tag not in shown]
    curves = {tag: run.metrics.curve(tag) for tag in tags[:MOST_CHARTS]}
    still = {tag: curve.values[0] for tag, curve in curves.items() if (curve.values == curve.values[0]).all()}
    charts = ''.join(chart(tag, curve) for tag, curve in curves.items() if tag not in still)
    constant = ', '.join(f'{escape(tag)} {digits_text(float(value))}' for tag, value in still.items())
    notes = [f'constant: {constant}'] if constant else []
    if len(tags) > MOST_CHARTS:
        notes.append(f'{len(tags) - MOST_CHARTS} more metrics: rlframe plot')
    text = ''.join(f'<p class="note">{note}</p>' for note in notes)
    return f'<h2>All metrics</h2><div class="charts">{charts}</div>{text}' if tags else ''


def _evaluations(run: RunFiles) -> str:
    if SCORE not in run.metrics.tags:
        return ''
    rows = list(run.metrics.rows([f'eval/{part}' for part in PARTS]))[-MOST_ROWS:]
    lines = [
        [
            f'{step:,.0f}',
            digits_text(score),
            digits_text(_half_width(std, count), 2),
            digits_text(low),
            digits_text(high),
            digits_text(length),
            digits_text(count),
        ]
        for step, score, std, low, high, length, count in reversed(rows)
    ]
    head = ('env steps', 'mean', '±', 'min', 'max', 'length', 'episodes')
    rest = lines[OPEN:]
    more = (
        f'<details id="more"><summary>{len(rest)} earlier</summary>{_numbers(head, rest)}</details>'
        if rest
        else ''
    )
    return f'<h2>Evaluations</h2>{_numbers(head, lines[:OPEN])}{more}'


def _numbers(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    names = ''.join(f'<th class="n">{name}</th>' for name in head)
    rows = ''.join(
        '<tr>' + ''.join(f'<td class="n">{cell}</td>' for cell in line) + '</tr>' for line in lines
    )
    return f'<div class="scroll"><table><tr>{names}</tr>{rows}</table></div>'


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Returns a table of texts that are not HTML yet; dotted keys in its first column may break after a dot."""
    names = ''.join(f'<th>{escape(name)}</th>' for name in head)
    rows = ''.join(
        f'<tr><td>{escape(first).replace(".", ".<wbr>")}</td>'
        + ''.join(f'<td>{escape(cell)}</td>' for cell in others)
        + '</tr>'
        for first, *others in lines
    )
    return f'<div class="scroll"><table><tr>{names}</tr>{rows}</table></div>'


def _times(run: RunFiles) -> str:
    split = run.time_split()
    total = sum(split.values())
    if not total:
        return ''
    bars = ''.join(
        f'<div class="{kind}" style="width:{100 * seconds / total:.2f}%"></div>'
        for kind, seconds in split.items()
    )
    keys = ''.join(
        f'<span><i class="{kind}"></i>{kind} {100 * seconds / total:.0f} % ({duration_text(seconds)})</span>'
        for kind, seconds in split.items()
    )
    return f'<h2>Time</h2><div class="split">{bars}</div><div class="key">{keys}</div>'


def _options(run: RunFiles) -> str:
    changed = changed_options(run)
    lines = [
        (each.key, value_text(each.value), value_text(each.default) if each.has_default else '')
        for each in changed
    ]
    table = _table(('option', 'value', 'default'), lines) if lines else '<p>Everything is at its default.</p>'
    whole = json.dumps({'main_config': run.main, 'create_config': run.create}, indent=2)
    everything = f'<details id="config"><summary>whole config</summary><pre>{escape(whole)}</pre></details>'
    return f'<h2>Options that differ from the defaults</h2>{table}{everything}'


def _resumed(run: RunFiles) -> str:
    found = resumed_with(run.folder)
    return f'<h2>Changed on a resume</h2>{_table(("when", "change"), found)}' if found else ''


def _warnings(run: RunFiles) -> str:
    found = warnings_of(run.folder)
    if not found:
        return '<h2>Warnings</h2><p>None in the log.</p>'
    lines = [(each.first, each.text + (f' ({each.times} times)' if each.times > 1 else '')) for each in found]
    return f'<h2>Warnings</h2>{_table(("first", "warning"), lines)}'


def _films(run: RunFiles) -> str:
    films = films_of(run.folder)
    if not films:
        return ''
    figures = []
    for film in films:
        source = f'data:{film.kind};base64,{film.data}'
        picture = (
            f'<video controls loop muted src="{source}"></video>'
            if film.kind[0] == 'v'
            else f'<img alt="" src="{source}">'
        )
        name = escape(film.name)
        figures.append(
            f'<figure>{picture if film.data else "too large for this page: "}<figcaption>{name}</figcaption></figure>'
        )
    return f'<h2>Films</h2><div class="films">{"".join(figures)}</div>'


def _machine(run: RunFiles) -> str:
    facts = machine_facts(run)
    return f'<h2>Machine and versions</h2>{_table((), facts.items())}' if facts else ''


def _commands(run: RunFiles) -> str:
    name = shlex.quote(printable(str(run.folder)))
    lines = [
        f'rlframe eval {name}',
        f'rlframe train --resume {name}',
        f'rlframe plot {name}',
        f'rlframe export {name}',
    ]
    return (
        f'<h2>Go on</h2><pre>{escape(chr(10).join(lines))}</pre>'
        f'<p class="note">folder {escape(printable(str(run.folder.resolve())))} · report by rlframe {__version__}</p>'
    )
