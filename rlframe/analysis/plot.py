"""Plots runs: which metrics, which title, and which files."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from rlframe.analysis.comparison import Comparison, compare_runs
from rlframe.analysis.figure import (
    SUFFIXES,
    can_draw,
    check_drawing,
    check_picture_name,
    curves_figure,
    save_figure,
)
from rlframe.analysis.groups import Group, default_metric, grouped, has_metric
from rlframe.analysis.run_files import RunFiles, check_one_env, read_runs
from rlframe.errors import ConfigError, ExperimentDirError
from rlframe.registry import nearest

logger = logging.getLogger('rlframe.analysis')


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
    check_drawing()
    check_picture_name(out)
    if smooth < 1:
        raise ConfigError('bad value', where='--smooth', got=smooth, expected='an int >= 1')
    runs = read_runs(paths)
    env, groups = check_one_env(runs), grouped(runs)
    tags = checked_metrics(groups, metrics)
    if title is None:
        title = f'{env}, {groups[0].label}' if len(groups) == 1 else env
    figure = curves_figure(groups, tags, title, smooth)
    files = picture_files(runs, out, 'plot')
    save_figure(figure, files, is_named=out is not None)
    return files


def compare(
    paths: Sequence[str | Path], out: str | None = None, needs_picture: bool = True
) -> tuple[Comparison, Path | None]:
    """Compares runs, and draws the score of each group in one picture.

    Args:
        paths: Run folders, or folders that contain runs.
        out: The picture, a PNG or SVG file; by default ``compare.png`` in the working directory.
        needs_picture: Whether it is an error if matplotlib is not installed.

    Returns:
        The comparison, and the picture; None if matplotlib is not installed and the picture is not needed.

    Raises:
        ExperimentDirError: If a path is no run, runs have different envs, or nothing can be read or written.
        ConfigError: If ``out`` is invalid.
        MissingDependencyError: If matplotlib is not installed.
    """
    check_picture_name(out)
    if needs_picture:
        check_drawing()
    comparison = compare_runs(read_runs(paths))
    if not can_draw():
        logger.warning('no picture, as matplotlib is not installed: pip install "rlframe[plot]"')
        return comparison, None
    picture = Path(out or 'compare.png')
    groups = [row.group for row in comparison.rows]
    figure = curves_figure(groups, [comparison.metric], comparison.env)
    save_figure(figure, [picture], is_named=out is not None)
    return comparison, picture


def picture_files(runs: Sequence[RunFiles], out: str | None, name: str) -> list[Path]:
    """Returns the files that a picture is written to."""
    if out is not None:
        return [Path(out)]
    folder = runs[0].folder if len(runs) == 1 else Path()
    return [folder / f'{name}{suffix}' for suffix in SUFFIXES]


def checked_metrics(groups: Sequence[Group], metrics: Sequence[str]) -> list[str]:
    """Returns the metrics to show.

    Raises:
        ConfigError: If no run has one of them; with the nearest tags.
        ExperimentDirError: If a run has no metrics at all.
    """
    runs = [run for group in groups for run in group.runs]
    known = sorted({tag for run in runs for tag in run.metrics.tags})
    for run in runs:
        if run.metrics.note:
            logger.warning('%s', run.metrics.note)
        if not run.metrics.tags:
            raise ExperimentDirError('this run has not written any metrics yet', where=str(run.folder))
    for tag in metrics:
        if tag not in known:
            close = nearest(tag, known) or f' There are: {", ".join(known)}.'
            raise ConfigError(f'no run has the metric {tag!r}', where='--metric', remedy=close.strip())
    tags = list(dict.fromkeys(metrics)) or [default_metric(groups)]
    for tag in tags:
        lacking = [str(run.folder) for run in runs if not has_metric(run, tag)]
        if lacking:
            logger.warning('without values of %s: %s', tag, ', '.join(lacking))
    return tags
