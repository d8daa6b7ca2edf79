"""The rows of a replay buffer in a checkpoint, in separate files of blocks, so that old blocks are not rewritten."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

SEGMENT_BYTES = 64 * 2**20
"""Maximum size of a file of rows, unless a single row is larger; also the extra memory that saving needs."""
MAX_SMALL = 50
"""Maximum number of files smaller than half of that in an incremental checkpoint; more are merged."""
NAME = re.compile(r'(replay_buffer|replay_frames)-(\d{1,18})-(\d{1,18})\.safetensors')


class Rows(NamedTuple):
    """Columns of rows with permanent numbers and contents, which a checkpoint saves in blocks."""

    first: int
    """Number of the oldest row."""
    stop: int
    """Number after the newest row."""
    nbytes: int
    """Size of a row in bytes, over all columns."""
    read: Callable[[int, int], Mapping[str, Any]]
    """Returns the columns of the rows between two numbers; views or copies."""
    segments: dict[str, str]
    """Names and SHA-256 of the files that already hold some of these rows; saving adds those that it writes."""
    name: str = 'replay_buffer'
    """What their files begin with: 'replay_buffer' or 'replay_frames'."""


class SavedRows(dict[str, Any]):
    """Columns that were read from a checkpoint.

    Args:
        columns: The columns.
        segments: Names and SHA-256 of the files they were read from.
    """

    def __init__(self, columns: Mapping[str, Any], segments: Mapping[str, str]) -> None:
        super().__init__(columns)
        self.segments = dict(segments)


class Segment(NamedTuple):
    """A file of rows."""

    name: str
    first: int
    stop: int
    rows: str
    """Name of the rows."""


def segment(first: int, stop: int, rows: str = 'replay_buffer') -> Segment:
    """Returns the segment of the rows between two numbers."""
    return Segment(f'{rows}-{first}-{stop}.safetensors', first, stop, rows)


def parse_segment(name: str) -> Segment | None:
    """Parses the file name of a segment; returns ``None`` if it is not one."""
    match = NAME.fullmatch(name)
    return Segment(name, int(match[2]), int(match[3]), match[1]) if match else None


def plan_segments(rows: Rows, saved: Mapping[str, int]) -> tuple[list[Segment], list[Segment]]:
    """Decides which files of an earlier checkpoint are reused and which rows are written.

    Args:
        rows: The rows to save.
        saved: Sizes in bytes of the files that hold some of these rows, by name.

    Returns:
        The files to reuse and those to write; together they cover all rows, in order and without a gap.
    """
    kept: list[Segment] = []
    known = [one for one in map(parse_segment, saved) if one is not None and one.rows == rows.name]
    for one in sorted(known, key=lambda s: s.first):
        if one.stop > rows.stop or one.stop <= max(rows.first, one.first):
            continue
        if one.first == kept[-1].stop if kept else one.first <= rows.first:
            kept.append(one)
    small = [i for i, one in enumerate(kept) if saved[one.name] < SEGMENT_BYTES // 2]
    if len(small) >= MAX_SMALL:
        kept = kept[: small[0]]
    start = kept[-1].stop if kept else rows.first
    step = max(SEGMENT_BYTES // max(rows.nbytes, 1), 1)
    new = [segment(first, min(first + step, rows.stop), rows.name) for first in range(start, rows.stop, step)]
    return kept, new if kept or new else [segment(start, start, rows.name)]


def join_segments(
    first: int, stop: int, parts: Sequence[Segment], read: Callable[[str], dict[str, Any]], limit: int
) -> dict[str, Any]:
    """Joins the arrays of segments and cuts off the rows before the first.

    Args:
        first: Number of the first row wanted.
        stop: Number after the last row.
        parts: The segments, in order.
        read: Returns the arrays of a file by name.
        limit: Size of all files in bytes: nothing larger is allocated.

    Raises:
        ValueError: If they do not fit together or do not match the numbers.
    """
    _check_cover(first, stop, parts)
    joined: dict[str, Any] = {}
    for (_, start, end, _), arrays in _read_parts(parts, read):
        skip = max(first - start, 0)
        if not joined and start + skip == first and end == stop:
            return {name: array[skip:] for name, array in arrays.items()}
        if not joined:
            rows = stop - first
            if rows * sum(a.itemsize * math.prod(a.shape[1:]) for a in arrays.values()) > limit:
                raise ValueError(f'{rows} rows do not fit into {limit} bytes')
            joined = {n: np.empty((rows, *array.shape[1:]), array.dtype) for n, array in arrays.items()}
        if joined.keys() != arrays.keys():
            raise ValueError(f'the columns {sorted(joined)} and {sorted(arrays)} differ')
        for name, array in arrays.items():
            target = joined[name]
            if (array.dtype, array.shape[1:]) != (target.dtype, target.shape[1:]):
                raise ValueError(f'the column {name} changes from {target.dtype} to {array.dtype}')
            target[start + skip - first : end - first] = array[skip:]
    return joined


def _check_cover(first: int, stop: int, parts: Sequence[Segment]) -> None:
    starts, stops = [part.first for part in parts], [part.stop for part in parts]
    if not parts or starts[0] > first or starts[1:] != stops[:-1] or stops[-1] != stop or not first <= stop:
        raise ValueError(f'the files do not hold the rows {first} to {stop}')


def _read_parts(
    parts: Sequence[Segment], read: Callable[[str], dict[str, Any]]
) -> Iterator[tuple[Segment, dict[str, Any]]]:
    for part in parts:
        arrays = read(part.name)
        for name, array in arrays.items():
            if not array.ndim or len(array) != part.stop - part.first:
                raise ValueError(f'{part.name} does not hold {part.stop - part.first} rows of {name}')
        yield part, arrays
