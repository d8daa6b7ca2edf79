"""The picture of a search: scores against each option, on the scale of its domain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 6
"""With at most this many different numbers, each has a place and a label of its own."""
WIDE_RANGE = 30
"""Ratio of the largest to the smallest number above which an axis is logarithmic, whatever the domain."""
LONGEST, ROOM = 18, 36
"""Letters of a label, and letters that fit side by side below a panel."""
MOST_LABELS = 16
"""Labels of categories; of more, only some are shown."""
JITTER = 0.12
"""Largest shift of points of one category, so that equal scores can be told apart."""


def scatter_panels(
    columns: Mapping[str, Sequence[Any]],
    scores: Sequence[float],
    metric: str,
    title: str,
    log_keys: Sequence[str] = (),
) -> Figure:
    """Draws a panel for each option, with a point for each trial.

    Args:
        columns: Values of the trials by option, the best trial first.
        scores: Scores of the trials.
        metric: Name of the score.
        title: Title of the picture.
        log_keys: Options whose domains are logarithmic.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(3, len(columns))
    down = math.ceil(len(columns) / across)
    figure = Figure(figsize=(1.2 + 4 * across, 0.8 + 3.2 * down), layout='constrained')
    FigureCanvasAgg(figure)
    panels = figure.subplots(down, across, squeeze=False, sharey=True)
    for axes in panels.flat[len(columns) :]:
        axes.set_visible(False)
    for axes, (key, values) in zip(panels.flat, columns.items(), strict=False):
        _scatter(axes, values, scores, key in log_keys)
        axes.set_xlabel('.'.join(key.split('.')[-2:]))
    for row in panels:
        row[0].set_ylabel(metric)
    figure.suptitle(title, fontsize=10)
    return figure


def _scatter(axes: Axes, values: Sequence[Any], scores: Sequence[float], is_log: bool) -> None:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    is_number = len(numbers) == len(values)
    if is_number and len(set(numbers)) > FEW:
        places = [float(number) for number in numbers]
        if min(places) > 0 and (is_log or max(places) > WIDE_RANGE * min(places)):
            _log_axis(axes, math.log10(max(places) / min(places)))
        else:
            axes.locator_params(axis='x', nbins=5)
    else:
        places = _categories(axes, values)
    axes.scatter(places[1:], scores[1:], s=26, alpha=0.75, color='#0072b2', linewidths=0)
    axes.scatter(places[:1], scores[:1], s=150, marker='*', color='#d55e00', edgecolors='white', zorder=3)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[['top', 'right']].set_visible(False)


def _log_axis(axes: Axes, decades: float) -> None:
    """Makes the x axis logarithmic, with as many labels as there is room for."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale('log')
    steps = (1, 2, 5) if decades < 1.6 else (1, 3) if decades < 2.6 else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f'{value:g}'))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _categories(axes: Axes, values: Sequence[Any]) -> list[float]:
    """Labels the x axis with the different values, evenly spaced, and returns the place of each value."""
    names = list(dict.fromkeys(_text(value) for value in sorted(values, key=_order)))
    place = {name: i for i, name in enumerate(names)}
    every = math.ceil(len(names) / MOST_LABELS)
    shown = [name if len(name) <= LONGEST else f'{name[: LONGEST - 3]}...' for name in names[::every]]
    is_tight = max(map(len, shown)) * len(shown) > ROOM
    axes.set_xticks(range(0, len(names), every), shown)
    if is_tight:
        axes.tick_params(axis='x', labelrotation=35, labelsize=8)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment('right')
            label.set_rotation_mode('anchor')
    axes.set_xlim(-0.6, len(names) - 0.4)
    seen: dict[str, int] = {}
    places = []
    for value in values:
        name = _text(value)
        count = seen[name] = seen.get(name, -1) + 1
        places.append(place[name] + JITTER * ((0, 1, -1, 0.5, -0.5)[count % 5]))
    return places


def _order(value: Any) -> tuple[bool, float, str]:
    """Returns a sort key: numbers first, by size."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return not is_number, float(value) if is_number else 0.0, str(value)


def _text(value: Any) -> str:
    return f'{value:g}' if isinstance(value, float) else str(value)
