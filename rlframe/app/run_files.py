"""SavedRun: a run folder as data, and the search for run folders."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlframe.config.compile import user_tree
from rlframe.config.reader import read_written
from rlframe.data.timestep import Array
from rlframe.errors import ConfigError, ExperimentDirError
from rlframe.registry import nearest
from rlframe.run.metrics import METRICS, records
from rlframe.run.progress import KINDS, ONLINE
from rlframe.scores import reaches
from rlframe.utils.flat import flat

FACTS = ('envstep', 'train_iter', 'time')
"""Keys of a record that are no metrics."""
TAG_ORDER = {'eval': 0, 'rollout': 1, 'train': 2, 'buffer': 3}

CONFIG = 'config.json'
SCORE, RETURN = 'eval/mean_reward', 'rollout/ep_rew_mean'
UNREACHABLE = 1e9
"""Stop values as large as this only say that the run is not to stop."""
DEPTH = 3
"""Levels of folders in which runs are searched."""


class Curve(NamedTuple):
    """The values of one metric."""

    steps: Array
    """Env steps, or updates, increasing. float64 [K]."""
    values: Array
    """Values; none is NaN. float64 [K]."""


class MetricColumns(Mapping[str, Array]):
    """All records of a run: a column for each name, NaN in records without that number.

    ``metrics['eval/mean_reward']`` is a column, ``metrics.curve('eval/mean_reward')`` its numbers over env steps.

    Args:
        records: The numbers of each record by name; those without ``envstep`` are left out.
    """

    def __init__(self, records: Iterable[Mapping[str, float]]) -> None:
        self._found: dict[str, tuple[array[int], array[float]]] = {}
        self._len = 0
        for record in records:
            if not math.isfinite(record.get('envstep', math.nan)):
                continue
            for name, value in record.items():
                rows, values = self._found.setdefault(name, (array('q'), array('d')))
                if math.isfinite(value):
                    rows.append(self._len)
                    values.append(value)
            self._len += 1

    def __getitem__(self, name: str) -> Array:
        if name not in self._found:
            raise KeyError(f'no metric {name!r}.{nearest(name, self._found)}')
        column = np.full(self._len, math.nan)
        rows, values = self._found[name]
        column[rows] = values
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def tags(self) -> list[str]:
        """Names of the metrics with numbers, metrics of evaluations and episodes first."""
        tags = [name for name, (rows, _) in self._found.items() if rows and name not in FACTS]
        return sorted(tags, key=lambda tag: (TAG_ORDER.get(tag.partition('/')[0], 4), tag))

    def curve(self, name: str, by: str = 'envstep') -> Curve:
        """Returns the env steps and the values of the records that have a number; of several at one env step, the last.

        ``by`` is the count that takes the place of env steps, such as ``'train_iter'``.
        """
        values = self[name]
        has = np.isfinite(values)
        steps, last = np.unique(self[by][has][::-1], return_index=True)
        return Curve(steps, values[has][::-1][last])

    def last(self, name: str) -> float:
        """Returns the last value of a metric; NaN if there is none."""
        values = self._found.get(name, ((), ()))[1]
        return values[-1] if values else math.nan

    def rows(self, tags: Sequence[str]) -> Array:
        """Returns env step and values of tags that are written together; the first tag must exist. float64 [K, 1 + tags]."""
        none = np.full(self._len, math.nan)
        columns: Array = np.stack([self['envstep'], *(self.get(tag, none) for tag in tags)], axis=1)
        return columns.compress(np.isfinite(columns[:, 1]), axis=0)

    def __repr__(self) -> str:
        return f'MetricColumns({self._len} records of {", ".join(self) or "nothing"})'


def read_columns(folder: Path) -> MetricColumns:
    """Returns the metrics of a run folder; lines that are no records, such as a last one that is cut, are skipped.

    Raises:
        ExperimentDirError: If they cannot be read.
    """
    try:
        return MetricColumns(records(folder))
    except OSError as error:
        where = str(folder / METRICS)
        raise ExperimentDirError(f'cannot be read: {error.strerror}', where=where) from error


class SavedRun:
    """A run folder; see ``is_run``.

    Raises:
        ExperimentDirError: If its config or its metrics cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """The folder."""
        self.main, self.create = _read_config(folder / CONFIG)
        """Both parts of its config, as plain data."""
        self.options = flat(user_tree(self.main, self.create)[0])
        """Values by dotted keys, as the command line names them."""
        self.metrics = read_columns(folder)
        """Its metrics."""

    def curve(self, tag: str, by: str = 'envstep') -> Curve:
        """Returns the values of a metric, which are none if the run has no such metric; ``by``: see ``MetricColumns``."""
        return self.metrics.curve(tag, by) if tag in self.metrics else Curve(np.empty(0), np.empty(0))

    @property
    def online_iter(self) -> float:
        """Updates from given data before its first env step; NaN if there were none."""
        return self.metrics.last(ONLINE)

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.resolve().name

    @property
    def env(self) -> str:
        """Name of the env."""
        return str(self.options.get('env.env_id') or self.options.get('env.type') or 'an unknown env')

    @property
    def policy(self) -> str:
        """Type of the policy."""
        return str(self.options.get('policy.type', 'an unknown policy'))

    @property
    def seed(self) -> Any:
        """Seed of the run."""
        return self.options.get('seed')

    @property
    def goal(self) -> float:
        """Score at which it stops; NaN if it has none that can be reached."""
        value = self.options.get('env.stop_value')
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < UNREACHABLE:
            return float(value)
        return math.nan

    @property
    def score_tag(self) -> str:
        """The metric that is the score of the policy."""
        tags = self.metrics.tags
        scores = [tag for tag in tags if tag.startswith('eval/mean')]
        return next((tag for tag in (SCORE, *scores, RETURN) if tag in tags), SCORE)

    @property
    def seconds(self) -> float:
        """Seconds that it took; of a run that recorded none, between its first and its last record."""
        elapsed = self.metrics.last('time/elapsed')
        split = sum(self.time_split().values())
        if math.isnan(elapsed):
            times = self.curve('time').values
            return float(np.ptp(times)) if len(times) else math.nan
        return max(elapsed, split)  # the former does not count the round that recorded it

    def time_split(self) -> dict[str, float]:
        """Returns the seconds of collection, learning and evaluation; empty if the run did not record them."""
        found = {kind: self.metrics.last(f'time/{kind}') for kind in KINDS}
        return found if all(map(math.isfinite, found.values())) else {}

    def steps_to_goal(self) -> float:
        """Returns the env steps at the first evaluation that reached the goal, NaN if none did."""
        steps, scores = self.curve(SCORE)
        reached = steps[[reaches(score, self.goal) for score in scores.tolist()]]
        return float(reached[0]) if len(reached) else math.nan


def is_run(folder: Path) -> bool:
    """Whether a folder is a run folder; the folder of a search has a config as well, but no run."""
    return os.path.isfile(folder / CONFIG) and not os.path.isfile(
        folder / 'search.json'
    )  # False for long names


def find_runs(paths: Sequence[str | Path]) -> list[Path]:
    """Returns the run folders that paths name; a folder that contains runs stands for all of them.

    Raises:
        ExperimentDirError: If a path is no run and contains none; the nearest ones are named.
    """
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        runs = [path] if is_run(path) else list(_below(path, DEPTH))
        if not runs:
            raise not_a_run(path)
        found |= {run.resolve(): run for run in runs}
    return list(found.values())


def not_a_run(path: Path) -> ExperimentDirError:
    """Returns the error for a path that is no run, with the most similar run folder beside it, or some run folders there."""
    what = 'this is no run folder, as it has no config.json' if os.path.isdir(path) else 'no such run folder'
    names = sorted(each.name for each in _entries(path.absolute().parent) if is_run(each))
    end = ', ...' if len(names) > 5 else '.'
    beside = f'Runs next to it: {", ".join(names[:5])}{end}' if names else ''
    return ExperimentDirError(what, where=str(path), remedy=nearest(path.name, names).strip() or beside)


def read_runs(paths: Sequence[str | Path]) -> list[SavedRun]:
    """Reads the runs that paths name; raises like ``find_runs`` and ``SavedRun``."""
    return [SavedRun(folder) for folder in find_runs(paths)]


def check_one_env(runs: Iterable[SavedRun]) -> str:
    """Returns the env of runs.

    Raises:
        ExperimentDirError: If they have different envs.
    """
    first, *others = runs
    for other in others:
        if other.env != first.env:
            raise ExperimentDirError(
                f'runs of different envs cannot be compared: {first.folder} is one of {first.env}, this is one of'
                f' {other.env}',
                where=str(other.folder),
            )
    return first.env


def _below(folder: Path, depth: int) -> Iterable[Path]:
    for entry in _entries(folder):
        if is_run(entry):
            yield entry
        elif depth > 1 and not entry.is_symlink():
            yield from _below(entry, depth - 1)


def _entries(folder: Path) -> list[Path]:
    """Returns the visible folders in a folder."""
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != '.')
    except (OSError, ValueError):
        return []


def _read_config(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        data = read_written(path)
    except ConfigError as error:
        why = ' '.join(error.message.split())
        what = f'this is not the config of a run: {why}'
        raise ExperimentDirError(what, where=str(path), remedy=error.remedy) from error
    main, create = data.get('main_config'), data.get('create_config')
    if not isinstance(main, dict) or not isinstance(create, dict):
        raise ExperimentDirError('this is not the config of a run', where=str(path))
    return main, create
