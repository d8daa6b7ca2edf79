"""Recorded data for learning: files, torch data sets and loaders, behind one interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.formats import GIB, LIMIT, read_recording
from rlframe.data.observation import check_action_bounds
from rlframe.data.recording import Episodes, Recording
from rlframe.data.sources import BlockSource, DataSource, LoaderSource, MixedSource, RowSource
from rlframe.data.timestep import EnvSpec, IntArray
from rlframe.errors import ConfigError
from rlframe.registry import named_object

COLLECTOR_DATA = 'policy.collect.collector.data'
DATA_FORMS = (
    "path of recorded data (a folder of Minari or its id, .npz, .parquet, .hdf5), 'module:name', a torch Dataset or a"
    ' DataLoader; a list of these is mixed'
)
"""Description of the values that ``open_data`` accepts, for the documentation of options."""


class Selection(NamedTuple):
    """Which of the recorded episodes are read, and how."""

    top: float = 1.0
    """Share of the episodes that are read, those with the highest returns."""
    held_out: float = 0.0
    """Share of the episodes that are kept apart to evaluate on."""
    is_held_out: bool = False
    """Whether those are read, in place of all others."""
    mix: Sequence[float] | None = None
    """Share of a batch that is from each of several data; None: by their rows."""
    memory: float = LIMIT
    """GiB that the data may occupy in memory; more is read from disk, block by block."""

    @property
    def is_of_episodes(self) -> bool:
        """Whether it chooses between episodes."""
        return self.top < 1 or self.held_out > 0


ALL = Selection()


def selection_of(cfg: Mapping[str, Any]) -> Selection:
    """Returns the selection that the options of a collector say."""
    names = ('top', 'held_out', 'mix', 'memory')
    return Selection(**{name: cfg[name] for name in names if name in cfg})


def open_data(data: Any, where: str = COLLECTOR_DATA, selection: Selection = ALL) -> DataSource:
    """Returns a source of data.

    Args:
        data: Path of recorded data, see ``read_recording``; columns by name; a torch ``Dataset``; a ``DataLoader`` or other
            iterable of batches; ``'module:name'`` of one of these, or of a function that creates it; a list of these.
        where: The option that names the data, for errors.
        selection: Which episodes are read.

    Raises:
        ConfigError: If there are no such data, or no episodes are left of them.
    """
    if isinstance(data, DataSource):
        return data
    if (
        isinstance(data, list | tuple)
        and data
        and all(isinstance(each, str | Path | Recording) for each in data)
    ):
        return _mixed(data, where, selection)
    if isinstance(data, str) and ':' in data and not Path(data).exists():
        found = named_object(data, where)
        made = found() if callable(found) and not hasattr(found, '__iter__') else found
        return open_data(made, where, selection)
    _check_one(where, selection)
    if isinstance(data, str | Path):
        return of_recording(read_recording(data, where, selection.memory), where, selection)
    if isinstance(data, Recording):
        return of_recording(data, where, selection)
    if isinstance(data, Mapping):
        return of_recording(Recording(dict(data.items()), {}, 'columns', 'columns'), where, selection)
    if selection.is_of_episodes:
        message = 'episodes are chosen of recorded data in a file, or of columns'
        raise ConfigError(message, where=where, got=type(data).__name__, expected='a path')
    if hasattr(data, '__getitem__') and hasattr(data, '__len__') and not isinstance(data, bytes):
        return RowSource(data, where)
    if hasattr(data, '__iter__') and not isinstance(data, bytes):
        return LoaderSource(data, where)
    raise ConfigError('bad value', where=where, got=data, expected=f'the {DATA_FORMS}')


def _mixed(data: Sequence[Any], where: str, selection: Selection) -> DataSource:
    """Returns several data as one: each batch has rows of all, by their weights."""
    weights = selection.mix
    if weights is not None and (len(weights) != len(data) or min(weights) <= 0):
        raise ConfigError(
            'bad value',
            where=_mix(where),
            got=weights,
            expected=f'{len(data)} numbers above 0, one for each data',
        )
    sources: list[Any] = [open_data(each, where, selection._replace(mix=None)) for each in data]
    return MixedSource(sources, weights, where)


def _check_one(where: str, selection: Selection) -> None:
    if selection.mix is not None:
        message = 'these are shares of several data, and there is one'
        raise ConfigError(message, where=_mix(where), got=selection.mix, expected='None')


def _mix(where: str) -> str:
    """Returns the option beside ``where`` that has the shares of several data."""
    return f'{where.rpartition(".")[0]}.mix'.lstrip('.')


def of_recording(recording: Recording, where: str, selection: Selection = ALL) -> DataSource:
    """Returns the source of a recording: in memory, or read from disk block by block."""
    rows = None
    if selection.is_of_episodes:
        rows = _chosen(recording, where, selection)
    if recording.is_in_memory:
        batch = recording.batch()
        numbers = None
        if rows is not None:
            numbers = np.concatenate([np.arange(start, stop) for start, stop in rows])
            batch = batch[numbers]
        return RowSource(batch, where, recording, numbers)
    rows = np.array([[0, len(recording)]]) if rows is None else rows
    return BlockSource(recording.columns, rows, selection.memory * GIB, where, recording)


def _chosen(recording: Recording, where: str, selection: Selection) -> IntArray:
    """Returns the first row of each chosen episode, and the one behind its last, [E, 2]."""
    if not {'terminated', 'truncated', 'episode'} & recording.columns.keys():
        raise ConfigError(
            'episodes cannot be chosen: the data have no end marks',
            where=where,
            got=sorted(recording.columns),
            expected="'terminated' and 'truncated', or 'episode'",
        )
    episodes = recording.episodes()
    kept = split(episodes, selection.held_out, selection.is_held_out)
    if selection.top < 1 and not selection.is_held_out:
        if np.isnan(episodes.return_).any():
            message = 'episodes cannot be chosen by return: some have rewards that are missing or not finite'
            raise ConfigError(message, where=where, remedy='rlframe data shows the first row.')
        count = int(np.ceil(round(selection.top * len(kept), 6)))
        best = np.argsort(-episodes.return_[kept], kind='stable')[:count]
        kept = np.sort(kept[best])
    if not len(kept):
        raise ConfigError(
            f'no episode is left of {len(episodes.start)}',
            where=where,
            got=f'top={selection.top}, held_out={selection.held_out}',
            expected='shares that leave at least one episode',
            remedy='Without an env a tenth is held out: of few episodes, hold out more, by'
            ' policy.collect.collector.held_out and policy.eval.evaluator.held_out.',
        )
    starts = episodes.start[kept]
    return np.stack([starts, starts + episodes.length[kept]], axis=1)


def split(episodes: Episodes, held_out: float, is_held_out: bool) -> IntArray:
    """Returns the numbers of the episodes that are kept apart, or of the others; the same ones whenever it is asked."""
    count = len(episodes.start)
    order = np.random.default_rng(0).permutation(count)
    apart = round(held_out * count)
    return np.sort(order[:apart] if is_held_out and held_out else order[apart:])


def check_source(source: DataSource, spec: EnvSpec, where: str) -> None:
    """Checks that data match an env: columns at once, other sources row by row while reading; see ``check_batch``."""
    check_action_bounds(spec)
    source.check(spec, where)
