"""What a report says besides curves: changed options, warnings, films, machine."""

from __future__ import annotations

import base64
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlframe.analysis.groups import OF_ONE_RUN
from rlframe.analysis.run_files import RunFiles, flat
from rlframe.checkpoint import open_checkpoint
from rlframe.config.trust import known_options
from rlframe.errors import CheckpointError, RLFrameError
from rlframe.run.run_folder import LOG
from rlframe.safety.plain_text import printable
from rlframe.utils.field import REQUIRED, Field

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
