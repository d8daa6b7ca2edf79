"""The report on a run: one HTML page that loads nothing, from the template ``report.html``."""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from rlframe._version import __version__
from rlframe.app.comparison import OF_ONE_RUN, Group, value_text
from rlframe.app.explain import plain
from rlframe.app.figure import INSTALL, can_draw, curves_figure, svg_of
from rlframe.app.run_files import SCORE, SavedRun, is_run, not_a_run
from rlframe.config.trust import known_options
from rlframe.errors import CheckpointError, ExperimentDirError, RLFrameError
from rlframe.run.checkpoint_files import open_regular
from rlframe.run.progress import EPISODES, HIGH, KINDS, LOW, STD
from rlframe.run.read_checkpoint import open_checkpoint
from rlframe.run.run_folder import LOG
from rlframe.scores import Interval, duration_text, mean_interval, number_text
from rlframe.utils.field import REQUIRED, Field
from rlframe.utils.files import whole_file, write_private
from rlframe.utils.flat import flat

TEMPLATE = Path(__file__).with_name('report.html')
MOST_ROWS, MOST_CURVES = 200, 60
"""Evaluations, and curves of other metrics, that a report shows."""
LOG_BYTES = 4 * 2**20
"""Bytes at the end of a log that are read."""
MOST_WARNINGS = 40
"""Warnings that are shown."""
TIMES = ('time/elapsed', *(f'time/{kind}' for kind in KINDS))
"""Metrics that only grow, which other parts of the page show."""
PARTS = ('mean_reward', 'std_reward', 'min_reward', 'max_reward', 'mean_ep_length', 'episodes')
_WARNING = re.compile(r'(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3} (?:WARNING|ERROR|CRITICAL) \S+: (.*)')
_RESUMED = re.compile(r'(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3} INFO rlframe\.pipeline: resumed (at .*)')
logger = logging.getLogger('rlframe.app')


def write_report(folder: str | Path, out: str | None = None) -> Path:
    """Writes the report on a run, ``report.html`` in its folder by default; without curves if matplotlib is not installed.

    Raises:
        ExperimentDirError: If the folder is no run, or the file cannot be written.
    """
    folder = Path(folder)
    if not is_run(folder):
        raise not_a_run(folder)
    if not can_draw():
        logger.warning('no curves, as matplotlib is not installed: %s', INSTALL)
    text = report(SavedRun(folder))
    path = folder / 'report.html' if out is None else Path(out)
    try:
        with whole_file(path if out is None else path.resolve()) as draft:
            write_private(draft, text)
    except OSError as error:
        raise ExperimentDirError(f'cannot be written: {error.strerror}', where=str(path)) from error
    return path


def report(run: SavedRun) -> str:
    """Returns the report on a run, as HTML."""
    # numbers and texts
    metrics = run.metrics
    goal = run.steps_to_goal()
    scores = run.curve(run.score_tag).values
    tiles = {
        'last score': _number(metrics.last(run.score_tag)),
        'best score': _number(float(scores.max())) if len(scores) else '-',
        'goal': _number(run.goal),
        'env steps': f'{np.nan_to_num(metrics.last("envstep")):,.0f}',
        'updates': f'{np.nan_to_num(metrics.last("train_iter")):,.0f}',
        'time': duration_text(run.seconds),
    }
    text = {
        'name': run.name,
        'policy': run.policy,
        'env': run.env,
        'seed': str(run.seed),
        'solved': '' if math.isnan(goal) else f' · goal reached after {goal:,.0f} env steps',
        'config': json.dumps({'main_config': run.main, 'create_config': run.create}, indent=2),
        'folder': shlex.quote(str(run.folder)),
        'where': str(run.folder.resolve()),
        'version': __version__,
    }
    # tables and curves
    parts = {
        'tiles': ''.join(f'<div class="tile"><b>{each}</b>{name}</div>' for name, each in tiles.items()),
        'curve': _score_curve(run),
        'evaluations': _evaluations(run),
        'times': _table(('part', 'share', 'time'), _times(run)),
        'options': _table(('option', 'value', 'default'), changed_options(run)),
        'resumed': _table(('when', 'change'), _in_log(run.folder, _RESUMED)[-MOST_WARNINGS:]),
        'warnings': _table(('first', 'warning'), warnings_of(run.folder)),
        'curves': _other_curves(run),
        'machine': _table((), machine_facts(run).items()),
    }
    shown = {key: escape(value) for key, value in text.items()}
    return Template(TEMPLATE.read_text(encoding='utf-8')).substitute(shown, **parts)


def _number(value: float) -> str:
    """Returns a number, ``-`` if it is not finite."""
    return number_text(value) if math.isfinite(value) else '-'


def _score_curve(run: SavedRun) -> str:
    """Returns the curve of the score, with the interval of each evaluation if that is known."""
    tag = run.score_tag
    if tag not in run.metrics.tags:
        return '<p>No evaluation yet.</p>'
    if not can_draw():
        return f'<p>Curves need matplotlib: {escape(INSTALL)}</p>'
    figure = curves_figure([Group('', (run,))], [tag])
    note = ''
    figure.set_size_inches(9, 3)  # as wide as the page
    rows = run.metrics.rows([tag, STD, EPISODES, LOW, HIGH])
    bands = [_band(*row) for row in rows[:, 1:]]
    if tag == SCORE and any(bands):
        ends = np.array([band or (mean, mean) for band, mean in zip(bands, rows[:, 1], strict=True)])
        figure.axes[0].fill_between(rows[:, 0], *ends.T, alpha=0.18, linewidth=0)
        note = '<p class="soft">band: 95 % interval of the mean over the episodes of an evaluation</p>'
    return _picture('score', svg_of(figure)) + note


def _band(mean: float, std: float, episodes: float, *ends: float) -> Interval | None:
    """Returns the 95 % interval of the mean of an evaluation; None if there is none."""
    return mean_interval(mean, std, int(episodes), *ends) if math.isfinite(episodes) else None


def _picture(title: str, svg: str) -> str:
    data = base64.b64encode(svg.encode('utf-8', 'replace')).decode()
    return f'<figure><img alt="{title}" src="data:image/svg+xml;base64,{data}"></figure>'


def _other_curves(run: SavedRun) -> str:
    """Returns the curves of all metrics that change, but the score."""
    tags = [tag for tag in run.metrics.tags if tag not in (run.score_tag, *TIMES)]
    moving = [tag for tag in tags[:MOST_CURVES] if np.ptp(run.curve(tag).values)]
    if not moving or not can_draw():
        return '<p>None.</p>'
    return _picture('other metrics', svg_of(curves_figure([Group('', (run,))], moving)))


def _evaluations(run: SavedRun) -> str:
    if SCORE not in run.metrics.tags:
        return ''
    lines = []
    rows = run.metrics.rows([f'eval/{part}' for part in PARTS])[-MOST_ROWS:].tolist()
    for step, mean, std, low, high, length, count in reversed(rows):
        band = str(_band(mean, std, count, low, high) or '-')
        lines.append([f'{step:,.0f}', _number(mean), band, *map(_number, (low, high, length, count))])
    return _table(('env steps', 'mean', '95 % interval', 'min', 'max', 'length', 'episodes'), lines, 'n')


def _table(head: Sequence[str], lines: Iterable[Sequence[str]], kind: str = '') -> str:
    """Returns a table of texts that are not HTML yet; dotted keys in its first column may break after a dot."""
    cells = [[escape(first).replace('.', '.<wbr>'), *map(escape, rest)] for first, *rest in lines]
    rows = [''.join(f'<td>{cell}</td>' for cell in line) for line in cells]
    if not rows:
        return '<p>None.</p>'
    names = ''.join(f'<th>{name}</th>' for name in head)
    return f'<div class="scroll"><table class="{kind}"><tr>{names}</tr><tr>{"</tr><tr>".join(rows)}</tr></table></div>'


def _times(run: SavedRun) -> list[tuple[str, str, str]]:
    split = run.time_split()
    total = sum(split.values()) or 1.0
    return [(kind, f'{100 * each / total:.0f} %', duration_text(each)) for kind, each in split.items()]


def changed_options(run: SavedRun) -> list[tuple[str, str, str]]:
    """Returns key, value and default of the options of a run that differ from the defaults.

    Nothing that the config names is imported; the default of an option that only such code declares is empty.
    """
    try:
        fields = flat(known_options(run.main, run.create))
    except RLFrameError:  # a config that this version does not know
        return []
    defaults: dict[str, Any] = {}
    for key, field in fields.items():
        defaults |= flat({key: field.default if isinstance(field, Field) else REQUIRED})
    found = []
    for key, value in run.options.items():
        default = defaults.get(key, REQUIRED)
        is_empty = _is_empty(value) and (default is REQUIRED or _is_empty(default))
        if key not in OF_ONE_RUN and not is_empty and plain(value) != plain(default):
            found.append((key, value_text(value), '' if default is REQUIRED else value_text(default)))
    return found


def _is_empty(value: Any) -> bool:
    return value is None or value is False or value in ('', [], {})


def machine_facts(run: SavedRun) -> dict[str, str]:
    """Returns machine and versions from the newest checkpoint, empty if there is none."""
    try:
        manifest = open_checkpoint(run.folder).manifest
    except (CheckpointError, OSError):
        return {}
    machine, why = manifest.get('machine'), manifest.get('inexact')
    facts = dict(machine) if isinstance(machine, Mapping) else {}
    facts['rlframe'] = manifest.get('rlframe')
    facts['repeatable'] = 'bit for bit, with the same seed and machine'
    if not manifest.get('exact', True):
        facts['repeatable'] = '; '.join(map(str, why if isinstance(why, list) else ()))
    return {name: str(value) for name, value in facts.items() if value}


def warnings_of(folder: Path) -> list[tuple[str, str]]:
    """Returns the warnings in the log of a run, each once with the time of the first, the last ones of many."""
    found = _in_log(folder, _WARNING)
    counts = Counter(text for _, text in found)
    first = {text: time for time, text in reversed(found)}
    kept = list(dict.fromkeys(text for _, text in found))[-MOST_WARNINGS:]
    return [(first[text], text + (f' ({counts[text]} times)' if counts[text] > 1 else '')) for text in kept]


def _in_log(folder: Path, pattern: re.Pattern[str]) -> list[tuple[str, ...]]:
    """Returns the groups of the lines at the end of a run's log that match."""
    try:
        with open_regular(folder / LOG) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
            text = file.read(LOG_BYTES).decode('utf-8', 'replace')
    except CheckpointError:
        return []
    return [found.groups() for line in text.splitlines() if (found := pattern.match(line))]
