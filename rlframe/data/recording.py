"""Recording: recorded env steps in time order, in memory or in files, with facts about them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.columns import Columns, StoredColumn, blocks, gathered, row_nbytes
from rlframe.data.data_checks import ENDS, first_bad, no_flags
from rlframe.data.space_json import space_from_json, space_to_json
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec, FloatArray, IntArray
from rlframe.errors import ConfigError
from rlframe.utils.lazy import LazyModule

gymnasium = LazyModule('gymnasium')
STEP = ('obs', 'next_obs', 'action', 'reward', 'terminated', 'truncated')
"""Columns of a whole env step."""
NAMES = {
    'observations': 'obs',
    'observation': 'obs',
    'next_observations': 'next_obs',
    'next_observation': 'next_obs',
    'actions': 'action',
    'rewards': 'reward',
    'terminals': 'terminated',
    'terminations': 'terminated',
    'timeouts': 'truncated',
    'truncations': 'truncated',
    'dones': 'done',
}
"""Names of columns elsewhere (D4RL, Minari, DI-engine), and ours."""
KNOWN = (*STEP, 'done', 'episode')
NO_NUMBERS = 'UScOmM'
"""Kinds of columns that are not read: text, complex numbers, objects and times."""
FACTS = 'rlframe'
"""Name under which a file has its facts, as JSON."""


class Episodes(NamedTuple):
    """The episodes of a recording, in order."""

    start: IntArray
    """Row of the first step, [E]."""
    length: IntArray
    """Env steps, [E]."""
    return_: FloatArray
    """Sum of the rewards, float64 [E]; NaN if one is missing or not finite."""
    terminated: BoolArray
    """Whether the last step ended in a terminal state, [E]."""
    truncated: BoolArray
    """Whether the last step was cut off, [E]."""


@dataclasses.dataclass(frozen=True)
class Recording:
    """Recorded env steps."""

    columns: Columns
    """Columns by name, each row one env step: ``obs`` and ``action``, and as a rule those of ``STEP`` and ``episode``."""
    facts: Mapping[str, Any]
    """JSON values: ``env`` (options of the section), ``spec``, ``behaviour``, ``seed``, ``seeds`` of the episodes."""
    where: str
    """Path, for errors."""
    format: str
    """Name of the format."""

    def __len__(self) -> int:
        return len(self.columns['obs'])

    @property
    def is_in_memory(self) -> bool:
        """Whether all columns are arrays."""
        return all(isinstance(column, np.ndarray) for column in self.columns.values())

    def batch(self) -> Batch:
        """Returns the columns, which are in memory, as a ``Batch``."""
        return Batch(self.columns)

    def spec(self) -> EnvSpec | None:
        """Returns the spec of the env; None if the file does not say."""
        return spec_from_facts(self.facts['spec']) if 'spec' in self.facts else None

    def episodes(self) -> Episodes:
        """Returns the episodes: rows up to an end mark, or with the same number in the column ``episode``."""
        names = [name for name in ('reward', *ENDS, 'episode') if name in self.columns]
        if not {*ENDS, 'episode'} & {*names}:
            return _episodes(np.array([len(self)]), np.array([np.nan]), self.columns)
        ends, totals = [], []  # rows before each end; sum of their rewards, and how many of these are bad
        total: Any = 0.0
        start = 0
        last: int | None = None
        for block in blocks({name: self.columns[name] for name in names}):
            at = _ends(block, last)
            reward = block['reward'].astype(np.float64) if 'reward' in block else np.full(len(block), np.nan)
            is_bad = ~np.isfinite(reward)
            sums = total + np.pad(np.cumsum([np.where(is_bad, 0, reward), is_bad], 1), ((0, 0), (1, 0)))
            ends.append(start + at)
            totals.append(sums[:, at])
            total = sums[:, -1:]
            start += len(block)
            last = int(block['episode'][-1]) if 'episode' in block else None
        if not ends[-1].size or ends[-1][-1] != start:  # the last episode has no mark behind it
            ends.append(np.array([start]))
            totals.append(total)
        return_, bad = np.diff(np.concatenate(totals, axis=1), prepend=0.0)
        return _episodes(np.concatenate(ends), np.where(bad > 0, np.nan, return_), self.columns)

    def digest(self) -> str:
        """Returns the SHA-256 of the arrays: of each column's name, type, shape and bytes."""
        found = hashlib.sha256()
        for name in sorted(self.columns):
            column = self.columns[name]
            found.update(f'{name} {column.dtype.descr} {list(column.shape)}\n'.encode())
            for block in blocks({name: column}):
                found.update(np.ascontiguousarray(block[name]).tobytes())
        return found.hexdigest()


def _ends(block: Batch, last: int | None) -> IntArray:
    """Returns how many rows of a block are before each end of an episode, [k]; ``last`` is the episode of the row before it."""
    if 'episode' in block:
        number = block['episode']
        previous = np.concatenate([[number[0] if last is None else last], number[:-1]])
        return np.flatnonzero(number != previous)
    done = np.zeros(len(block), np.bool_)
    for name in ENDS:
        if name in block:
            done |= block[name]
    return np.flatnonzero(done) + 1


def _episodes(behind: IntArray, return_: FloatArray, columns: Columns) -> Episodes:
    """Returns episodes by the number of the row behind each, [E]."""
    start = np.concatenate([[0], behind[:-1]]).astype(np.int64)
    marks = [np.zeros(len(behind), np.bool_) for _ in ENDS]
    for name, mark in zip(ENDS, marks, strict=True):
        if name not in columns:
            continue
        first = 0
        for block in blocks({name: columns[name]}):
            at = behind - 1 - first
            here = (at >= 0) & (at < len(block))
            mark[here] = block[name][at[here]]
            first += len(block)
    return Episodes(start, behind - start, return_, *marks)


def facts_of_spec(spec: EnvSpec) -> dict[str, Any]:
    """Returns the spec of an env of one player as JSON values."""
    return {
        'name': spec.name,
        'observation_space': space_to_json(spec.observation_space),
        'action_space': space_to_json(spec.action_space),
        'reward_threshold': spec.reward_threshold,
        'max_episode_steps': spec.max_episode_steps,
    }


def spec_from_facts(facts: Mapping[str, Any]) -> EnvSpec:
    """Returns the spec of an env from ``facts_of_spec``."""
    from rlframe.data.composite import Composite, by_rows

    action = space_from_json(facts['action_space'])
    rows: Any = by_rows(action) if type(action).__name__ in ('Dict', 'Tuple') else action
    return EnvSpec(
        space_from_json(facts['observation_space']),
        rows if isinstance(rows, Composite) else action,
        name=str(facts.get('name', '')),
        reward_threshold=facts.get('reward_threshold'),
        max_episode_steps=facts.get('max_episode_steps'),
    )


def spec_of_data(recording: Recording) -> EnvSpec:
    """Returns the spec of the env that data are of: the one they say, or spaces that their columns suggest.

    Integers are choices, from the smallest to the largest of the rows; floats are bounded if they lie in [-1, 1].
    """
    own = recording.spec()
    if own is not None:
        return own
    spaces = gymnasium.spaces
    obs, action = recording.columns['obs'], recording.columns['action'][:]
    if action.dtype.kind in 'biu' and action[0].size == 1:
        space: Any = spaces.Discrete(int(action.max()) + 1)
    elif action.dtype.kind in 'biu':
        space = spaces.MultiDiscrete((action.max(0) + 1).astype(np.int64))
    else:
        bound = np.float32(max(1.0, float(np.abs(action).max())))
        space = spaces.Box(-bound, bound, action.shape[1:], np.float32)
    low, high = (-np.inf, np.inf) if obs.dtype.kind not in 'bu' else (0, int(~obs.dtype.type(0)))
    return EnvSpec(spaces.Box(low, high, obs.shape[1:], obs.dtype.type), space, name='the recorded env')


# from the columns of a file to ours


class Found(NamedTuple):
    """What a reader finds in a file."""

    rows: int
    """Number of rows, or more."""
    parts: Iterator[Batch]
    """The rows in order, under the file's names."""
    facts: Mapping[str, Any] = {}
    stored: Mapping[str, StoredColumn] | None = None
    """The columns in the file itself, if they lie there as arrays."""


def recording_of(found: Found, where: str, format_: str, limit: float) -> Recording:
    """Returns the recording in a file: its columns with our names and types, and the end of every episode.

    Args:
        found: Content of the file.
        where: Its path.
        format_: Name of the format.
        limit: Bytes that it may occupy in memory; more is read from files, block by block.

    Raises:
        ConfigError: If a column is missing, or has another form than ours.
    """
    stored = found.stored
    if stored is not None and is_canonical(stored) and row_nbytes(stored) * found.rows > limit:
        return Recording({**stored}, found.facts, where, format_)
    try:
        columns: Columns = gathered(_following(_numbered(_canonical_parts(found.parts))), found.rows, limit)
    except ValueError as error:
        raise ConfigError(f'{where}: {error}', where='data') from error
    return Recording(columns, found.facts, where, format_)


def is_canonical(columns: Columns) -> bool:
    """Whether columns have our names and types, so that nothing is converted."""
    kinds = {'reward': np.dtype(np.float32), 'terminated': np.dtype(bool), 'truncated': np.dtype(bool)}
    has_all = {*STEP, 'episode'} <= columns.keys() or not {'reward', 'next_obs', 'done'} & columns.keys()
    if NAMES.keys() & columns.keys():
        return False
    if any(each.dtype.kind in NO_NUMBERS or not each.dtype.isnative for each in columns.values()):
        return False
    return has_all and all(columns[n].dtype == kinds.get(n, columns[n].dtype) for n in columns)


def _canonical_parts(parts: Iterable[Batch]) -> Iterator[Batch]:
    first = 0
    for part in parts:
        yield canonical(part, first)
        first += len(part)


def canonical(part: Batch, first: int = 0) -> Batch:
    """Returns rows with our names and types; columns that are unknown are kept, as a policy may read them.

    ``first`` is the number of the first row.

    Raises:
        ValueError: If a column holds objects, an end mark is not 0 or 1, or there are no observations or actions.
    """
    columns: dict[str, Any] = {NAMES.get(name, name): column for name, column in part.items()}
    for name, column in columns.items():
        if column.dtype.hasobject or column.dtype.kind in NO_NUMBERS:
            raise ValueError(
                f'the column {name} holds {column.dtype}, not real numbers; columns of objects are not read'
            )
        if not column.dtype.isnative:
            columns[name] = column.astype(column.dtype.newbyteorder('='))
    for name in ('reward', 'done', *ENDS, 'episode'):
        if name in columns:
            columns[name] = _one_a_row(columns[name], name, len(part), first)
    if 'done' in columns:  # all that DI-engine's files say
        done = columns.pop('done')
        columns.setdefault('terminated', done & ~columns.get('truncated', np.zeros_like(done)))
    if len(ENDS & columns.keys()) == 1:
        columns |= {name: np.zeros(len(part), np.bool_) for name in ENDS if name not in columns}
    for name in ('obs', 'action'):
        if name not in columns:
            raise ValueError(
                f"there is no column {name}; columns: {sorted(part.keys())}, expected 'obs' and 'action'"
            )
    return Batch(columns)


def _one_a_row(column: Array, name: str, count: int, first: int) -> Array:
    """Returns a column that has one number a row, [n], with our type."""
    if column.size != count:
        raise ValueError(f'the column {name} has the shape {list(column.shape)}, expected one number a row')
    column = column.reshape(-1)
    kind = {'reward': np.float32, 'episode': np.int64}.get(name)
    if kind is not None:
        return column.astype(kind, copy=False)
    bad = no_flags(column)
    if bad.any():
        row = first_bad(bad)
        raise ValueError(f'row {first + row}: {name} is {column[row]}, expected 0 or 1')
    return column.astype(np.bool_, copy=False)


def _following(parts: Iterator[Batch]) -> Iterator[Batch]:
    """Adds ``next_obs`` where it is missing: the observation of the next row of the episode.

    The last row of an episode that was cut off has none, and is left out: the episode is cut a step earlier. After a terminal
    state nobody asks for it.
    """
    held: Batch | None = None  # the last two rows so far
    for part in parts:
        if 'next_obs' in part or 'reward' not in part or 'episode' not in part:
            yield part
            continue
        rows = part if held is None else Batch.cat([held, part])
        yield from _paired(rows, max(len(rows) - 2, 0))
        held = rows[-2:]
    if held is not None:
        yield from _paired(held, len(held))


def _paired(rows: Batch, count: int) -> Iterator[Batch]:
    """Yields the first ``count`` rows with their next observations."""
    later = rows[np.minimum(np.arange(len(rows)) + 1, len(rows) - 1)]
    ends = rows['terminated'] | rows['truncated'] | (rows['episode'] != later['episode'])
    ends[-1] = True
    is_left_out = ends & ~rows['terminated']
    cut = np.append(is_left_out[1:], False)
    next_obs = np.where(_along(rows['terminated'], rows['obs']), rows['obs'], later['obs'])
    pairs = rows.replace(next_obs=next_obs, truncated=(rows['truncated'] | cut) & ~rows['terminated'])
    kept = np.flatnonzero(~is_left_out[:count])
    if len(kept):
        yield pairs[kept]


def _along(flags: BoolArray, column: Array) -> BoolArray:
    """Returns flags of rows, [n], to choose rows of a column, [n, ...]."""
    return flags.reshape(-1, *[1] * (column.ndim - 1))


def _numbered(parts: Iterator[Batch]) -> Iterator[Batch]:
    """Adds the column ``episode`` where end marks tell the episodes apart."""
    count = 0
    for part in parts:
        if 'episode' in part or 'terminated' not in part:
            yield part
            continue
        done = part['terminated'] | part['truncated']
        before = np.cumsum(done) - done  # ends before each row
        yield part.replace(episode=(count + before).astype(np.int64))
        count += int(done.sum())


def read_facts(text: str | bytes | None, where: str) -> dict[str, Any]:
    """Returns the facts in a file; none if there are none.

    Raises:
        ConfigError: If they are not JSON.
    """
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f'{where}: its facts are damaged: {error}', where='data') from error
    return found if isinstance(found, dict) else {}
