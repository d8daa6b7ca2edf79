"""Charts as HTML and SVG: text keeps its size on any screen, and colours follow the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from rlframe.analysis.metric_file import Curve
from rlframe.scores import digits_text, tick_text

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
