"""The report on a run: one HTML page that loads nothing."""

from __future__ import annotations

import base64
import json
import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlframe._version import __version__
from rlframe.app.comparison import OF_ONE_RUN, value_text
from rlframe.app.run_files import SCORE, Curve, RunFiles, flat, is_run, not_a_run
from rlframe.config.trust import known_options
from rlframe.errors import CheckpointError, ExperimentDirError, RLFrameError
from rlframe.run.progress import KINDS
from rlframe.run.read_checkpoint import open_checkpoint
from rlframe.run.run_folder import LOG
from rlframe.scores import digits_text, duration_text, mean_interval, tick_text
from rlframe.utils.field import REQUIRED, Field
from rlframe.utils.files import followed, printable, whole_file, write_private

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
"""Content-Security-Policy of a report, which contains all it needs."""
STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--soft:#5f6b76;--line:#dde2e7;--card:#f6f8fa;--main:#0072b2;--band:#0072b233;
--goal:#b35900;--learn:#d55e00;--evaluate:#009e73;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{--bg:#14181c;--fg:#e4e8ec;--soft:#98a4af;--line:#303840;--card:#1c2228;--main:#5ab4ea;
--band:#5ab4ea33;--goal:#f0a050;--learn:#f08a4a;--evaluate:#3cc79b;--bad:#ff8a80}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1080px;margin:0 auto;padding:20px 16px 60px}
h1{font-size:1.5rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:2rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.25rem}
.sub,.note{color:var(--soft);margin:.2rem 0 0}
.note{font-size:.85rem}
.state{display:inline-block;border:1px solid var(--line);border-radius:1em;padding:0 .7em;font-size:.85rem}
.running{color:var(--evaluate)}.stopped{color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:10px;margin:16px 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:8px 12px}
.tile b{display:block;font-size:1.15rem}.tile span{color:var(--soft);font-size:.85rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr));gap:18px}
.wide{grid-template-columns:1fr}.wide .plot{height:280px}
.chart{margin:0;min-width:0}
.chart figcaption{font-size:.85rem;display:flex;justify-content:space-between;gap:1em;margin-bottom:10px;overflow-wrap:anywhere}
.plot{display:grid;grid-template:minmax(0,1fr) 20px/52px minmax(0,1fr);height:180px}
.plot svg{width:100%;height:100%;min-height:0;display:block;overflow:visible;border-left:1px solid var(--line)}
.y,.x{position:relative;font-size:11px;color:var(--soft)}
.y span{position:absolute;right:6px;transform:translateY(-50%)}
.x{grid-column:2}.x span{position:absolute;top:4px;transform:translateX(-50%)}
path{vector-effect:non-scaling-stroke;fill:none}
.grid{stroke:var(--line)}.line{stroke:var(--main);stroke-width:1.8}.band{fill:var(--band)}
.goal{stroke:var(--goal);stroke-dasharray:6 4}
.split{display:flex;height:22px;border-radius:6px;overflow:hidden}
.collect{background:var(--main)}.learn{background:var(--learn)}.evaluate{background:var(--evaluate)}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;margin:.5rem 0 0;font-size:.9rem}
.key i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.4em}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.88rem}
th,td{text-align:left;padding:3px 14px 3px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:break-word}
th{color:var(--soft);font-weight:600}td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
code,pre{font:.85rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 12px;overflow-x:auto;margin:.4rem 0}
details{margin:.6rem 0}summary{cursor:pointer;color:var(--soft)}
video,img{max-width:100%;border-radius:8px;border:1px solid var(--line)}
.x span:last-child{white-space:nowrap}
@media (max-width:640px){.charts:not(.wide){grid-template-columns:1fr 1fr;gap:14px}.wide .plot{height:200px}
.charts:not(.wide) .plot{height:120px;grid-template-columns:40px minmax(0,1fr)}.x span:nth-child(even){display:none}
.charts:not(.wide) figcaption{font-size:.75rem}}
.films{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,260px),1fr));gap:14px}
.films figure{margin:0;font-size:.85rem;color:var(--soft);overflow-wrap:anywhere}
"""


POINTS = 400
"""Points of a drawn curve; of more, means are drawn."""
NARROW, TINY, HUGE = 1e-12, 1e-300, 1e300
"""Relative and absolute width below which values count as equal, and the size above which they are cut off."""
TICKS = 6
"""About how many numbers an axis has."""
Array = np.ndarray[Any, Any]


def chart(title: str, curve: Curve, spread: Array | None = None, goal: float = math.nan) -> str:
    """Returns a chart of one curve over env steps.

    Args:
        title: Its heading.
        curve: The values.
        spread: Half the width of the interval at each value. float64 [K].
        goal: Height of a dashed line; NaN: none.
    """
    curve = Curve(curve.steps, np.clip(curve.values, -HUGE, HUGE))
    lows = highs = curve.values
    if spread is not None:
        lows, highs = curve.values - spread, curve.values + spread
    heights = [float(lows.min()), float(highs.max()), *([goal] if math.isfinite(goal) else [])]
    bottom, top, rows = axis(min(heights), max(heights))
    left, right = float(curve.steps[0]), float(curve.steps[-1])
    right = right if right > left else left + 1
    columns = [tick for tick in axis(left, right)[2] if left <= tick <= right]

    def x(values: Array) -> Array:
        return (values - left) / (right - left) * 100

    def y(values: Array) -> Array:
        return 100 - (values - bottom) / (top - bottom) * 100

    shapes = [f'<path class="grid" d="M0 {y(np.array(row)):.2f}H100"/>' for row in rows]
    if spread is not None:
        steps, low, high = thinned(curve.steps, lows, highs)
        around = [*zip(x(steps), y(high), strict=True), *zip(x(steps)[::-1], y(low)[::-1], strict=True)]
        shapes.append(f'<path class="band" d="{_path(around)}Z"/>')
    if math.isfinite(goal):
        shapes.append(f'<path class="goal" d="M0 {y(np.array(goal)):.2f}H100"/>')
    steps, values = thinned(curve.steps, curve.values)
    points = list(zip(x(steps), y(values), strict=True))
    shapes.append(
        f'<path class="line" d="{_path(points if len(points) > 1 else [*points, (100, points[0][1])])}"/>'
    )
    ys = ''.join(f'<span style="top:{y(np.array(row)):.1f}%">{digits_text(row)}</span>' for row in rows)
    xs = ''.join(f'<span style="left:{x(np.array(tick)):.1f}%">{tick_text(tick)}</span>' for tick in columns)
    return _figure(title, digits_text(float(curve.values[-1])), ''.join(shapes), xs, ys)


def _figure(title: str, last: str, shapes: str, xs: str, ys: str) -> str:
    """Returns a chart from its heading, its last value, its shapes as SVG, and the numbers on its axes as HTML."""
    name = escape(title)
    return (
        f'<figure class="chart"><figcaption>{name}<b>{last}</b></figcaption><div class="plot"><div class="y">{ys}</div>'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label="{name}">{shapes}</svg>'
        f'<div class="x">{xs}</div></div></figure>'
    )


def _path(points: Sequence[tuple[Any, Any]]) -> str:
    return 'M' + 'L'.join(f'{float(px):.2f} {float(py):.2f}' for px, py in points)


def thinned(*columns: Array) -> list[Array]:
    """Returns columns of at most ``POINTS`` values: means of neighbours, except the first and the last."""
    size = len(columns[0])
    if size <= POINTS:
        return list(columns)
    starts = np.linspace(0, size, POINTS - 1).astype(int)[:-1]
    counts = np.diff(np.append(starts, size))
    return [np.r_[c[:1], np.add.reduceat(c, starts) / counts, c[-1:]] for c in columns]


def axis(low: float, high: float) -> tuple[float, float, list[float]]:
    """Returns the ends of an axis and its round numbers."""
    if high - low <= max(NARROW * max(abs(low), abs(high)), TINY):
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / TICKS
    size = 10 ** math.floor(math.log10(rough))
    step = next((size * factor for factor in (1, 2, 5) if size * factor >= rough), size * 10)
    first, last = math.floor(low / step), math.ceil(high / step)
    return first * step, last * step, [i * step for i in range(first, last + 1)]


LOG_BYTES, MOST_WARNINGS = 4 * 2**20, 40
"""Bytes at the end of a log that are read, and warnings that are shown."""
FILM_BYTES, MOST_FILMS = 8 * 2**20, 6
"""Size of the films that a report contains, all together, and their number."""
FILMS = {'.mp4': 'video/mp4', '.webm': 'video/webm', '.gif': 'image/gif'}
_WARNING = re.compile(r'(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3} (WARNING|ERROR|CRITICAL) \S+: (.*)')
_RESUMED = re.compile(r'(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3} INFO rlframe\.pipeline: resumed (at .*)')
Facts = Mapping[str, Any]


class Changed(NamedTuple):
    """An option that is not at its default."""

    key: str
    value: Any
    default: Any
    has_default: bool


class Warned(NamedTuple):
    """A warning in the log of a run."""

    first: str
    """When it was written first."""
    level: str
    text: str
    times: int


class Resumed(NamedTuple):
    """An option that changed when a run was resumed."""

    time: str
    text: str
    """The env steps, the key, and its values before and after."""


class Film(NamedTuple):
    """A film in a run folder."""

    name: str
    """Path in the run folder."""
    kind: str
    """Media type."""
    data: str
    """Content in base64, empty if it is too large for a report."""


def changed_options(run: RunFiles) -> list[Changed]:
    """Returns the options of a run that differ from the defaults; nothing that the config names is imported."""
    try:
        fields = flat(known_options(run.main, run.create))
    except RLFrameError:  # a config that this version does not know
        return []
    defaults: dict[str, Any] = {}
    for key, field in fields.items():
        default = field.default if isinstance(field, Field) else REQUIRED
        defaults |= flat(default, f'{key}.') if isinstance(default, Mapping) and default else {key: default}
    found = []
    for key, value in run.options.items():
        default = defaults.get(key, REQUIRED)
        is_empty = _is_empty(value) and (default is REQUIRED or _is_empty(default))
        if key not in OF_ONE_RUN and not is_empty and _plain(value) != _plain(default):
            found.append(Changed(key, value, default, default is not REQUIRED))
    return found


def _is_empty(value: Any) -> bool:
    return value is None or value is False or value in ('', [], {})


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def machine_facts(run: RunFiles) -> dict[str, str]:
    """Returns machine and versions from the newest checkpoint, empty if there is none."""
    try:
        manifest = open_checkpoint(run.folder).manifest
    except (CheckpointError, OSError):
        return {}
    machine = manifest.get('machine')
    facts = dict(machine) if isinstance(machine, Mapping) else {}
    facts['rlframe'] = str(manifest.get('rlframe', ''))
    exact, why = manifest.get('exact', True), manifest.get('inexact')
    reasons = why if isinstance(why, list) else []
    facts['repeatable'] = (
        'bit for bit, with the same seed and machine' if exact else '; '.join(map(str, reasons))
    )
    return {printable(str(name)): printable(str(value)) for name, value in facts.items() if value}


def warnings_of(folder: Path) -> list[Warned]:
    """Returns the warnings in the log of a run, each once, the last ones of many."""
    matches = _in_log(folder, _WARNING)
    counts = Counter((found[2], found[3]) for found in matches)
    first = {(found[2], found[3]): found[1] for found in reversed(matches)}
    kept = list(dict.fromkeys((found[2], found[3]) for found in matches))[-MOST_WARNINGS:]
    return [Warned(first[each], *each, counts[each]) for each in kept]


def resumed_with(folder: Path) -> list[Resumed]:
    """Returns the options that changed whenever a run was resumed, the last ones of many."""
    return [Resumed(found[1], found[2]) for found in _in_log(folder, _RESUMED)][-MOST_WARNINGS:]


def _in_log(folder: Path, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """Returns the lines at the end of a run's log that match."""
    try:
        if not (folder / LOG).is_file():  # a pipe would be waited for
            return []
        with open(folder / LOG, 'rb') as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
            text = file.read(LOG_BYTES).decode('utf-8', 'replace')
    except OSError:
        return []
    return [found for line in map(printable, text.splitlines()) if (found := pattern.match(line))]


def films_of(folder: Path) -> list[Film]:
    """Returns the newest films in a run folder, not those that links lead to."""
    files = [path for path in folder.rglob('*') if path.suffix in FILMS and _is_inside(path, folder)]
    files.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    room, films = FILM_BYTES, []
    for path in files[:MOST_FILMS]:
        size = path.stat().st_size
        data = base64.b64encode(path.read_bytes()).decode() if size <= room else ''
        room -= size if data else 0
        films.append(Film(printable(str(path.relative_to(folder))), FILMS[path.suffix], data))
    return films


def _is_inside(path: Path, folder: Path) -> bool:
    return path.is_file() and path.resolve().is_relative_to(folder.resolve()) and not path.is_symlink()


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
