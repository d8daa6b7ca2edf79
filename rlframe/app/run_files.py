"""RunFiles: a run folder as data, and the search for run folders."""

from __future__ import annotations

import errno
import json
import math
import os
import socket
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeGuard

import numpy as np

from rlframe.config.tree import user_tree
from rlframe.errors import ExperimentDirError
from rlframe.registry import nearest
from rlframe.run.metrics import METRICS
from rlframe.run.progress import KINDS
from rlframe.run.run_folder import last_holder
from rlframe.scores import reaches
from rlframe.utils import strict_json
from rlframe.utils.files import LimitExceededError, check_limit, printable, printable_tree, remedy_of

MOST_TAGS = 10_000
"""Tags of one file; more are no metrics."""
LONGEST_LINE = 2**20
"""Bytes of one record."""
LARGEST, MOST_STEPS = 1e100, 2**52
"""Numbers above these count as infinite: sums, squares and differences of them would overflow or be inexact."""
FACTS = ('envstep', 'train_iter', 'time')
"""Keys of a record that are no metrics."""


class Curve(NamedTuple):
    """The values of one tag."""

    steps: np.ndarray[Any, Any]
    """Env steps, increasing. float64 [K]."""
    values: np.ndarray[Any, Any]
    """Values; none is NaN. float64 [K]."""


class MetricFile:
    """The records of a run.

    Args:
        path: The file, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = ''
        """Says that the last line is cut, if it is."""
        self._clear()

    def _clear(self) -> None:
        self._columns: dict[str, tuple[array[float], array[float]]] = {}
        self._offset = self._lines = 0
        self.first_time = self.last_time = math.nan
        """Unix times of the first and the last record."""
        self.envstep = self.train_iter = 0
        """Largest counts of all records."""

    def update(self) -> bool:
        """Reads the records that were added since the last call, or all if a resumed run cut the file.

        Returns:
            Whether anything changed.

        Raises:
            ExperimentDirError: If it is too large, cannot be read, or a line other than the last is no record.
        """
        try:
            if not self.path.exists():
                return False
            if not self.path.is_file():  # a pipe would be waited for
                raise ExperimentDirError('this is not a regular file', where=str(self.path))
            size = self.path.stat().st_size
            check_limit('METRICS_BYTES', size, 'bytes of the file')
            if size < self._offset:
                self._clear()
            if size == self._offset:
                return False
            with open(self.path, 'rb') as file:
                file.seek(self._offset)
                self._read(file, size)
        except LimitExceededError as error:
            raise ExperimentDirError(str(error), where=str(self.path), remedy=remedy_of(error)) from error
        except OSError as error:
            raise ExperimentDirError(f'cannot be read: {error.strerror}', where=str(self.path)) from error
        return True

    def _read(self, file: IO[bytes], size: int) -> None:
        """Reads records up to a size; the last line may be incomplete, as a run writes or was killed."""
        self.note, broken = '', ''
        while self._offset < size and (line := file.readline(LONGEST_LINE)):
            if broken:
                raise ExperimentDirError(broken, where=f'{self.path}:{self._lines}')
            record: Any = None
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                broken = 'this line is no JSON'
            if not broken and not _is_record(record):
                broken = 'this line is no record with an "envstep"'
            if len(line) == LONGEST_LINE:
                broken = f'this line is longer than {LONGEST_LINE:,} bytes'
            elif broken and not line.endswith(b'\n'):
                break  # read again when it is complete
            self._offset, self._lines = self._offset + len(line), self._lines + 1
            if not broken:
                self._add(record)
        if broken:
            self.note = f'{self.path}: the last line is cut and was skipped'

    def _add(self, record: dict[str, Any]) -> None:
        step = float(record['envstep'])
        self.envstep = max(self.envstep, int(step))
        if _is_count(train_iter := record.get('train_iter')):
            self.train_iter = max(self.train_iter, int(train_iter))
        if _is_number(seconds := record.get('time')):
            self.first_time = float(seconds) if math.isnan(self.first_time) else self.first_time
            self.last_time = float(seconds)
        for name, value in record.items():
            if name not in FACTS and _is_number(value):
                tag = printable(name)
                columns = self._columns.get(tag)
                if columns is None:
                    if len(self._columns) >= MOST_TAGS:
                        raise ExperimentDirError(f'more than {MOST_TAGS:,} tags', where=str(self.path))
                    columns = self._columns[tag] = (array('d'), array('d'))
                columns[0].append(step)
                columns[1].append(float(value))

    @property
    def tags(self) -> list[str]:
        """The tags, those of evaluations and episodes first."""
        order = {'eval': 0, 'rollout': 1, 'train': 2, 'buffer': 3}
        return sorted(self._columns, key=lambda tag: (order.get(tag.partition('/')[0], 4), tag))

    def curve(self, tag: str) -> Curve:
        """Returns the values of a tag; of several at one env step, the last."""
        steps, values = (np.array(column, float) for column in self._columns.get(tag, ((), ())))
        order = np.argsort(steps, kind='stable')
        steps, values = steps[order], values[order]
        keep = np.append(steps[1:] != steps[:-1], True)[: len(steps)]
        return Curve(steps[keep], values[keep])

    def last(self, tag: str) -> float:
        """Returns the last value of a tag, NaN if there is none."""
        column = self._columns.get(tag)
        return column[1][-1] if column else math.nan

    def rows(self, tags: list[str]) -> Iterator[tuple[float, ...]]:
        """Yields env step and values of tags that are written together; NaN where one is missing."""
        curves = [self.curve(tag) for tag in tags]
        known = [dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True)) for curve in curves]
        for step in known[0]:
            yield step, *(values.get(step, math.nan) for values in known)


def _is_number(value: Any) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LARGEST  # False for NaN


def _is_count(value: Any) -> TypeGuard[float]:
    return _is_number(value) and abs(value) <= MOST_STEPS


def _is_record(record: Any) -> bool:
    return isinstance(record, dict) and _is_count(record.get('envstep'))


CONFIG = 'config.json'
SCORE, RETURN = 'eval/mean_reward', 'rollout/ep_rew_mean'
UNREACHABLE = 1e9
"""Stop values as large as this only say that the run is not to stop."""
DEPTH = 3
"""Levels of folders in which runs are searched."""
MOST_RUNS = 1_000
"""Runs of one command."""


class RunFiles:
    """A run folder.

    Args:
        folder: The folder; see ``is_run``.

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
        self.metrics = MetricFile(folder / METRICS)
        """Its metrics."""
        self.metrics.update()

    @property
    def name(self) -> str:
        """Name of the folder."""
        return printable(self.folder.resolve().name)

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
        elapsed, split = self.metrics.last('time/elapsed'), sum(self.time_split().values())
        if math.isnan(elapsed):
            return self.metrics.last_time - self.metrics.first_time
        return max(elapsed, split)  # the former does not count the round that recorded it

    def time_split(self) -> dict[str, float]:
        """Returns the seconds of collection, learning and evaluation; empty if the run did not record them."""
        found = {kind: self.metrics.last(f'time/{kind}') for kind in KINDS}
        return found if all(map(math.isfinite, found.values())) else {}

    def steps_to_goal(self) -> float:
        """Returns the env steps at the first evaluation that reached the goal, NaN if none did."""
        steps, scores = self.metrics.curve(SCORE)
        reached = steps[[reaches(score, self.goal) for score in scores.tolist()]]
        return float(reached[0]) if len(reached) else math.nan

    def state(self) -> str:
        """Returns ``running``, ``ended``, or ``stopped`` for a run whose process died."""
        return state_of(self.folder)


def state_of(folder: Path) -> str:
    """Returns whether a run is ``running``, has ``ended``, or was ``stopped`` because its process died."""
    holder = last_holder(folder)
    if not holder:
        return 'ended'
    try:
        said = json.loads(holder)
        if said['host'] != socket.gethostname():
            return 'running'
        os.kill(int(said['pid']), 0)
    except (ValueError, LookupError, TypeError, OverflowError):
        return 'running'
    except OSError as error:
        return 'running' if error.errno == errno.EPERM else 'stopped'
    return 'running'


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run; a search of Ray Tune has a config as well, but no run of its own."""
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
    if len(found) > MOST_RUNS:
        raise ExperimentDirError(f'{len(found):,} runs, at most {MOST_RUNS:,} at a time', where=str(paths[0]))
    return list(found.values())


def not_a_run(path: Path) -> ExperimentDirError:
    """Returns the error for a path that is no run, with the nearest run folder next to it."""
    what = 'this is no run folder, as it has no config.json' if os.path.isdir(path) else 'no such run folder'
    return ExperimentDirError(what, where=str(path), remedy=nearest_run(path).strip())


def nearest_run(path: Path) -> str:
    """Returns which run next to a path its user may have meant, as a sentence after a space; empty if there is none."""
    beside = path.absolute().parent
    names = sorted(each.name for each in _entries(beside) if is_run(each))
    if not names or (hint := nearest(path.name, names)):
        return hint if names else ''
    return f' Runs next to it: {", ".join(names[:5])}{", ..." if len(names) > 5 else "."}'


def read_runs(paths: Sequence[str | Path]) -> list[RunFiles]:
    """Reads the runs that paths name; raises like ``find_runs`` and ``RunFiles``."""
    return [RunFiles(folder) for folder in find_runs(paths)]


def check_one_env(runs: Iterable[RunFiles]) -> str:
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


def flat(tree: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
    """Returns the values of a tree by dotted keys; an empty section is a value."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f'{prefix}{name}.')
        else:
            found[f'{prefix}{name}'] = value
    return found


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
        strict_json.check_size(path.stat().st_size, 'CONFIG')
        data = strict_json.loads(path.read_bytes(), 'CONFIG')
        strict_json.from_tagged(data)
        data = printable_tree(data)
        main, create = data['main_config'], data['create_config']
        if not isinstance(main, dict) or not isinstance(create, dict):
            raise TypeError('main_config and create_config are no dicts')
    except OSError as error:
        raise ExperimentDirError(f'cannot be read: {error.strerror}', where=str(path)) from error
    except (ValueError, LookupError, TypeError) as error:
        what = f'this is not the config of a run: {type(error).__name__}: {error}'
        raise ExperimentDirError(what, where=str(path), remedy=remedy_of(error)) from error
    return main, create
