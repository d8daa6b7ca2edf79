"""The rows of ``docs/results.md``, and the runs that were measured for them.

``results_rows.json`` is written by hand: what other than the defaults a row is measured with, what is published for its env and
algorithm, and why it falls short. ``results.json`` is written by ``make_results.py``: one record per row and seed. A config without an
entry of its own, or of which no other row is made, has a row of its name.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rlframe.config import read_config
from rlframe.errors import ConfigError
from rlframe.registry import nearest

HERE = Path(__file__).parent
CONFIGS = HERE.parent / 'configs'
RECORDS, ROWS = HERE / 'results.json', HERE / 'results_rows.json'
DATA, DATA_TABLE = HERE.parent / 'data', HERE / 'data.json'
"""Folder of the data sets that ``make_data.py`` makes, and what is known about each."""
PROTOCOL = 1
"""Way of measuring; another number makes all records stale."""
ENOUGH = 3
"""Seeds of the present config that take the place of stale ones on the page."""
Run = Mapping[str, Any]


@dataclass(frozen=True)
class Published:
    """A result that others published for the same env and algorithm."""

    mean: float
    source: str
    env_steps: int | None = None

    def __str__(self) -> str:
        steps = f', {self.env_steps:,} env steps' if self.env_steps else ''
        return f'{number(self.mean)} ({self.source}{steps})'


@dataclass(frozen=True)
class Row:
    """One row of the page: a config, possibly with options of its own."""

    name: str
    config: str = ''
    """Name of the config; the row's if empty."""
    env: str = ''
    """Name of the env, if it is not the one in the first line of the config."""
    overrides: Sequence[str] = ()
    """Options that replace those of the config, as ``KEY=VALUE``."""
    data: str = ''
    """Name of the data set of ``data.json`` that it learns from, if any."""
    data_option: str = 'collector.data'
    """The option that names this data set; ``replay_buffer.init_from`` and ``reward_model.data`` name demonstrations."""
    episodes: int = 100
    """Episodes that the best checkpoint is scored on."""
    env_steps: int | None = None
    """Budget of a run in env steps, if it is not the config's."""
    ends_at_goal: bool = False
    """Whether a run ends at the stop value of the config, not at its budget."""
    published: Published | None = None
    random: float | None = None
    """Mean return of a random policy, shown where nothing is published."""
    why: str = ''
    """Why the mean is below the published one, and what was tried."""
    folder: str = str(CONFIGS)
    """Folder of the config."""

    @property
    def is_offline(self) -> bool:
        """Whether it learns from recorded data alone."""
        return bool(self.data) and self.data_option == type(self).data_option

    @property
    def file(self) -> Path:
        """The config file."""
        return Path(self.folder) / f'{self.config or self.name}.py'

    @cached_property
    def sections(self) -> tuple[Any, Any]:
        """The main and the create section of the config."""
        main, create = read_config(str(self.file))
        return main, create

    @property
    def budget(self) -> int | None:
        """Env steps of a run; None if nothing limits them."""
        return self.env_steps or self.sections[0].get('max_env_step')

    @property
    def fingerprint(self) -> str:
        """Hash of everything that a result depends on, apart from the seed and the code."""
        facts = [PROTOCOL, *self.sections, *self.overrides, self.episodes, self.budget, self.ends_at_goal]
        if self.data:
            facts.append(self.recorded.get('sha256'))
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:12]

    @property
    def recorded(self) -> dict[str, Any]:
        """What is known about its data set; empty until it is made."""
        found: dict[str, Any] = json.loads(DATA_TABLE.read_text(encoding='utf-8')).get(self.data, {})
        return found

    @property
    def options(self) -> list[str]:
        """All options that replace those of the config."""
        return [*self.overrides, *([f'{self.data_option}={DATA / self.data}.npz'] if self.data else [])]

    @property
    def title(self) -> tuple[str, str]:
        """The algorithm and the env."""
        first = self.file.read_text(encoding='utf-8').partition('\n')[0].split(':')[0]
        algorithm, _, env = first.strip('"').removesuffix('.').partition(' on ')
        return algorithm, self.env or env


def read_rows() -> dict[str, Row]:
    """Returns all rows by name."""
    rows = {}
    for name, facts in json.loads(ROWS.read_text(encoding='utf-8')).items():
        published = Published(*facts.pop('published')) if 'published' in facts else None
        rows[name] = Row(name, published=published, folder=str(CONFIGS), **facts)
    taken = {row.file.stem for row in rows.values()}
    names = [file.stem for file in CONFIGS.glob('*.py') if file.stem not in taken]
    return dict(sorted({**rows, **{name: Row(name, folder=str(CONFIGS)) for name in names}}.items()))


def chosen(rows: Mapping[str, Row], names: Sequence[str]) -> list[Row]:
    """Returns the named rows; the name or file of a config stands for all its rows.

    Raises:
        ConfigError: If there is no such row.
    """
    found: dict[str, Row] = {}
    for name in names:
        stem = Path(name).stem
        named = [row for row in rows.values() if stem in (row.name, row.file.stem)]
        if not named:
            raise ConfigError(f'no row or config has this name.{nearest(stem, rows)}', got=name)
        found |= {row.name: row for row in named}
    return list(found.values())


def read_runs(file: Path | None = None) -> list[Run]:
    """Returns the records, sorted by row and seed."""
    runs: list[Run] = json.loads((file or RECORDS).read_text(encoding='utf-8'))['runs']
    return runs


def name_of(run: Run) -> str:
    """Returns the name of the row that a record belongs to."""
    return str(run.get('row', run['config']))


def is_current(run: Run, rows: Mapping[str, Row]) -> bool:
    """Whether a run was measured with the config as it is."""
    row = rows.get(name_of(run))
    return row is not None and run.get('fingerprint') == row.fingerprint


def record(runs: Sequence[Run], rows: Mapping[str, Row], file: Path | None = None) -> None:
    """Adds runs to the records, marks stale ones, and removes those that enough current ones replace."""
    file = file or RECORDS
    with _locked(file):
        old = read_runs(file)
        new = {(name_of(run), run['seed'], run.get('fingerprint')): run for run in [*old, *runs]}
        kept = [_marked(run, is_current(run, rows)) for run in new.values()]
        current = Counter(name_of(run) for run in kept if not run.get('stale'))
        kept = [run for run in kept if not run.get('stale') or current[name_of(run)] < ENOUGH]
        kept.sort(key=lambda run: (name_of(run), run['seed'], bool(run.get('stale'))))
        text = json.dumps({'runs': kept}, indent=1, ensure_ascii=False)
        text = re.sub(r'\[([\s\d.,e+-]*)\]', lambda found: f'[{" ".join(found[1].split())}]', text)
        replace_file(file, text + '\n')


def _marked(run: Run, current: bool) -> Run:
    return {**{key: run[key] for key in run if key != 'stale'}, **({} if current else {'stale': True})}


def shown(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Groups runs by row: stale ones as long as the config as it is has too few."""
    groups: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (name_of(run), run['seed'])):
        groups.setdefault(name_of(run), []).append(run)
    for name, group in groups.items():
        stale = [run for run in group if run.get('stale')]
        current = [run for run in group if not run.get('stale')]
        groups[name] = current if len(current) >= ENOUGH or not stale else stale
    return groups


def replace_file(file: Path, text: str) -> None:
    """Replaces a file atomically."""
    new = file.with_name(f'{file.name}.{os.getpid()}')
    new.write_text(text, encoding='utf-8')
    os.replace(new, file)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Keeps other processes from changing a file at the same time."""
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def number(value: float, like: float | None = None) -> str:
    """Formats a number with digits that suit its size, or the size of another number."""
    return f'{value:.3f}' if abs(value if like is None else like) < 2 else f'{value:.1f}'
