"""All pictures of runs and searches, drawn with matplotlib: which metrics, which title, and which files."""

from __future__ import annotations

import importlib.util
import io
import itertools
import logging
import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.app.comparison import Group, compare_runs, default_metric, grouped, smoothed
from rlframe.app.run_files import Curve, SavedRun, check_one_env, read_runs
from rlframe.errors import ConfigError, ExperimentDirError, MissingDependencyError
from rlframe.registry import nearest
from rlframe.scores import exact_text
from rlframe.utils.files import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

logger = logging.getLogger('rlframe.app')

COLORS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#000000', '#8c6d1f')
"""Colours that colour-blind people can tell apart. Source: Okabe & Ito, Color Universal Design (2008)."""
STYLES = ('-', '--', ':')
"""Line styles, for more groups than colours."""
SUFFIXES = ('.png', '.svg')
NAMES = {'eval/mean_reward': 'evaluation return', 'rollout/ep_rew_mean': 'training return'}
"""Words for metrics on axes."""
AXES = {'envstep': 'env steps', 'train_iter': 'updates'}
"""Words for the counts below curves."""
LETTERS_PER_INCH = 14
"""Of the font of the legend."""
MOST_LINES = 10
"""Runs of a group that are also drawn one by one."""
POINTS = 500
"""Points of a drawn curve, at most; of a longer one, means are drawn."""
INSTALL = 'pip install "rlframe[plot]"'

WIDE_RANGE = 30
"""Ratio of the largest to the smallest number above which an axis is logarithmic."""
LONGEST = 18
"""Letters of a label."""


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec('matplotlib') is not None


def check_drawing() -> None:
    """Checks that matplotlib is installed.

    Raises:
        MissingDependencyError: With the way to install it.
    """
    if not can_draw():
        raise MissingDependencyError('pictures need matplotlib', where='plot', remedy=INSTALL)


def check_picture_name(out: str | None) -> None:
    """Checks the name of a picture.

    Raises:
        ConfigError: If it is neither a PNG nor an SVG file, or its folder does not exist.
    """
    if out is None:
        return
    if Path(out).suffix not in SUFFIXES or os.path.isdir(out):
        raise ConfigError('bad value', where='--out', got=out, expected='a file that ends in .png or .svg')
    if not os.path.isdir(Path(out).absolute().parent):
        raise ConfigError(f'the folder {Path(out).parent} does not exist', where='--out')


def curves_figure(groups: Sequence[Group], tags: Sequence[str], title: str = '', smooth: int = 1) -> Figure:
    """Draws a panel for each metric and a curve for each group, of means of ``smooth`` values."""
    columns = min(3, len(tags))
    width = 7.2 if columns == 1 else 4.6 * columns
    figure, panels = _panels(len(tags), columns, width, 0.9 + 3.4 * math.ceil(len(tags) / columns))
    for axes, tag in zip(panels, tags, strict=True):
        _panel(axes, groups, tag, smooth)
    if title:
        figure.suptitle(_text(title), fontsize=12)
    _legend(figure, panels[0], groups)
    return figure


def _panels(count: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Returns a figure of a size in inches, and its panels, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout='constrained')
    axes = list(figure.subplots(math.ceil(count / columns), columns, squeeze=False).flat)
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, axes[:count]


def _legend(figure: Figure, axes: Axes, groups: Sequence[Group]) -> None:
    """Places the legend below the panels, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    several = any(len(group.runs) > 1 for group in groups)
    if len(groups) > 1 or several:
        room = int(figure.get_figwidth() * LETTERS_PER_INCH) // (max(map(len, labels)) + 8)
        columns = max(1, min(len(handles), room))
        style_options: Any = dict(loc='outside lower center', ncols=columns, frameon=False, fontsize=9)
        legend = figure.legend(handles, [_text(label) for label in labels], **style_options)
        if several:
            legend.set_title('mean over seeds with 95 % bootstrap interval')
            legend.get_title().set_fontsize(8)


def _panel(axes: Axes, groups: Sequence[Group], tag: str, smooth: int) -> None:
    looks = itertools.cycle(itertools.product(STYLES, COLORS))
    by = _axis_of(groups)
    ends = []
    for group, (style, color) in zip(groups, looks, strict=False):
        style_options: dict[str, Any] = {'color': color, 'linestyle': style, 'markersize': 4}
        curves = [_thinned(curve) for curve in group.curves(tag, smooth, by)]
        band = group.band(tag, smooth, by)
        ends += [curve.values for curve in curves]
        count = f' ({len(group.runs)} seeds)' if len(group.runs) > 1 else ''
        if band is None or len(curves) <= MOST_LINES:
            alpha, width = (1.0, 1.6) if band is None else (0.35, 0.8)
            for i, curve in enumerate(curves):
                label = _label(group.label) if band is None and i == 0 else None
                marker = 'o' if len(curve.steps) == 1 else None
                axes.plot(*curve, alpha=alpha, linewidth=width, label=label, marker=marker, **style_options)
        if band is not None:
            axes.fill_between(band.steps, band.low, band.high, color=color, alpha=0.18, linewidth=0)
            axes.plot(band.steps, band.mean, linewidth=2, label=_label(group.label + count), **style_options)
        if not curves:
            axes.plot([], [], label=_label(group.label + count), **style_options)
    _decorate(axes, groups, tag, ends)


def _decorate(axes: Axes, groups: Sequence[Group], tag: str, values: Sequence[np.ndarray[Any, Any]]) -> None:
    from matplotlib.ticker import EngFormatter

    goals = {group.runs[0].goal for group in groups}
    goal = goals.pop() if len(goals) == 1 else math.nan
    if tag in NAMES and math.isfinite(goal):
        axes.axhline(goal, color='gray', linestyle=(0, (5, 4)), linewidth=1, zorder=1)
        axes.annotate(
            f'goal\n{exact_text(goal)}', (1, goal), xycoords=('axes fraction', 'data'), xytext=(3, 0), fontsize=8,
            textcoords='offset points', ha='left', va='center', color='gray',
        )  # fmt: skip
    axes.set_xlabel(AXES[_axis_of(groups)])
    if _axis_of(groups) == 'train_iter':
        _mark_online(axes, groups)
    axes.set_ylabel(_text(NAMES.get(tag, tag)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=''))
    axes.locator_params(axis='x', nbins=6)
    axes.margins(x=0.02)
    _plain(axes)
    if not any(len(each) for each in values):
        axes.text(0.5, 0.5, 'no values', transform=axes.transAxes, ha='center', color='gray')


def _axis_of(groups: Sequence[Group]) -> str:
    """Returns the count below the curves: env steps, or updates if all runs began with updates from given data."""
    began = [math.isfinite(run.online_iter) for group in groups for run in group.runs]
    return 'train_iter' if all(began) else 'envstep'


def _mark_online(axes: Axes, groups: Sequence[Group]) -> None:
    """Draws a line where runs took their first env steps."""
    for step in {run.online_iter for group in groups for run in group.runs}:
        axes.axvline(step, color='gray', linestyle=(0, (1, 2)), linewidth=1, zorder=1)
        axes.annotate(
            'online', (step, 1), xycoords=('data', 'axes fraction'), xytext=(3, -3), fontsize=8,
            textcoords='offset points', va='top', color='gray',
        )  # fmt: skip


def _plain(axes: Axes) -> None:
    """Draws a faint grid, and no frame above and to the right."""
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[['top', 'right']].set_visible(False)


def _thinned(curve: Curve) -> Curve:
    """Returns a curve of at most about ``POINTS`` points, each the mean of its value and those before it."""
    count = len(curve.steps)
    window = -(-count // POINTS) or 1
    kept = np.unique(np.append(np.arange(0, count, window), max(count - 1, 0)))[:count]
    return Curve(curve.steps[kept], smoothed(curve.values, window)[kept])


def svg_of(figure: Figure) -> str:
    """Returns a figure as SVG."""
    drawn = io.StringIO()
    _save(figure, drawn, 'svg')
    return drawn.getvalue()


def scatter_panels(
    columns: Mapping[str, Sequence[Any]], scores: Sequence[float], metric: str, title: str
) -> Figure:
    """Draws the trials of a search, the best one first: a panel for each option, with a point for each trial."""
    across = min(3, len(columns))
    height = 0.8 + 3.2 * math.ceil(len(columns) / across)
    figure, panels = _panels(len(columns), across, 1.2 + 4 * across, height)
    for axes, (key, values) in zip(panels, columns.items(), strict=True):
        places = _places(axes, values)
        axes.scatter(places[1:], scores[1:], s=26, alpha=0.6, color=COLORS[0], linewidths=0)
        axes.scatter(places[:1], scores[:1], s=150, marker='*', color=COLORS[1], edgecolors='white', zorder=3)
        axes.set_xlabel('.'.join(key.split('.')[-2:]))
        _plain(axes)
    for axes in panels[::across]:
        axes.set_ylabel(metric)
    figure.suptitle(title, fontsize=10)
    return figure


def _places(axes: Axes, values: Sequence[Any]) -> Sequence[Any]:
    """Prepares the x axis for the values of an option, and returns the values to draw: numbers, or categories."""
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        axes.tick_params(axis='x', labelrotation=35, labelsize=8)
        return [textwrap.shorten(str(value), LONGEST, placeholder='...') for value in values]
    if min(values) > 0 and max(values) / min(values) > WIDE_RANGE:
        axes.set_xscale('log')
    else:
        axes.locator_params(axis='x', nbins=5)
    return values


def _text(text: str) -> str:
    """Returns a text with its dollar signs escaped, because matplotlib reads what is between two of them as a formula."""
    return text.replace('$', r'\$')


def _label(text: str) -> str:
    """Returns a label for matplotlib, which leaves those out of legends that begin with an underscore."""
    return f' {text}' if text.startswith('_') else text


def save_figure(figure: Figure, paths: Sequence[Path], is_named: bool = False) -> None:
    """Writes a figure to PNG and SVG files; links are followed if the user named the files.

    Raises:
        ExperimentDirError: If one cannot be written.
    """
    for path in paths:
        file = path.resolve() if is_named else path
        try:
            with whole_file(file, is_private=False) as draft:
                _save(figure, draft, path.suffix[1:])
        except OSError as error:
            raise ExperimentDirError(f'cannot be written: {error.strerror}', where=str(path)) from error


def _save(figure: Figure, file: Any, kind: str) -> None:
    """Writes a figure as ``png`` or ``svg``; the same figure gives the same bytes."""
    import matplotlib as mpl

    about = {'Software': None} if kind == 'png' else {'Date': None}
    with mpl.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'rlframe'}):
        figure.savefig(file, dpi=120, metadata=about, format=kind)


def plot(
    paths: Sequence[str | Path],
    metrics: Sequence[str] = (),
    out: str | None = None,
    title: str | None = None,
    smooth: int = 1,
) -> list[Path]:
    """Draws the curves of runs.

    Args:
        paths: Run folders, or folders that contain runs.
        metrics: Tags, a panel for each; by default the return of evaluations.
        out: A PNG or SVG file; by default ``plot.png`` and ``plot.svg``, in the folder of a single run, or in the
            working directory.
        title: Title; by default the env, and the policy of a single group.
        smooth: Number of values of which each shown value is the mean.

    Returns:
        The files.

    Raises:
        ExperimentDirError: If a path is no run, runs have different envs, or nothing can be read or written.
        ConfigError: If an argument is invalid, or no run has a metric.
        MissingDependencyError: If matplotlib is not installed.
    """
    check_picture_name(out)
    runs = read_runs(paths)
    figure = figure_of(runs, metrics, title, smooth)
    folder = runs[0].folder if len(runs) == 1 else Path()
    files = [folder / f'plot{suffix}' for suffix in SUFFIXES] if out is None else [Path(out)]
    save_figure(figure, files, is_named=out is not None)
    return files


def figure_of(
    runs: Sequence[SavedRun], metrics: Sequence[str] = (), title: str | None = None, smooth: int = 1
) -> Figure:
    """Draws the curves of runs; the arguments and errors are those of ``plot``."""
    check_drawing()
    if smooth < 1:
        raise ConfigError('bad value', where='--smooth', got=smooth, expected='an int >= 1')
    env = check_one_env(runs)
    groups = grouped(runs)
    tags = checked_metrics(groups, metrics)
    if title is None:
        title = f'{env}, {groups[0].label}' if len(groups) == 1 else env
    return curves_figure(groups, tags, title, smooth)


def compare(paths: Sequence[str | Path], out: str | None = None) -> tuple[dict[str, Any], Path | None]:
    """Compares runs, and draws the score of each group in one picture.

    Args:
        paths: Run folders, or folders that contain runs.
        out: The picture, a PNG or SVG file; None: ``compare.png`` in the working directory, if matplotlib is installed.

    Returns:
        The result of ``compare_runs``, and the picture, if there is one.

    Raises:
        ExperimentDirError: If a path is no run, runs have different envs, or nothing can be read or written.
        ConfigError: If ``out`` is invalid.
        MissingDependencyError: If ``out`` is given and matplotlib is not installed.
    """
    check_picture_name(out)
    if out is not None:
        check_drawing()
    runs = read_runs(paths)
    found = compare_runs(runs)
    if not can_draw():
        logger.warning('no picture, as matplotlib is not installed: %s', INSTALL)
        return found, None
    picture = Path(out or 'compare.png')
    figure = curves_figure(grouped(runs), [found['metric']], found['env'])
    save_figure(figure, [picture], is_named=out is not None)
    return found, picture


def checked_metrics(groups: Sequence[Group], metrics: Sequence[str]) -> list[str]:
    """Returns the metrics to show.

    Raises:
        ConfigError: If no run has one of them; with the nearest tags.
        ExperimentDirError: If a run has no metrics at all.
    """
    runs = [run for group in groups for run in group.runs]
    known = sorted({tag for run in runs for tag in run.metrics.tags})
    for run in runs:
        if not run.metrics.tags:
            raise ExperimentDirError('this run has not written any metrics yet', where=str(run.folder))
    for tag in metrics:
        if tag not in known:
            close = nearest(tag, known) or f' There are: {", ".join(known)}.'
            raise ConfigError(f'no run has the metric {tag!r}', where='--metric', remedy=close.strip())
    tags = list(dict.fromkeys(metrics)) or [default_metric(groups)]
    for tag in tags:
        lacking = [str(run.folder) for run in runs if tag not in run.metrics.tags]
        if lacking:
            logger.warning('without values of %s: %s', tag, ', '.join(lacking))
    return tags
