"""Sequences among the rows of a round: where they lie, and minibatches of whole sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from rlframe.data.faces import Metrics
from rlframe.data.observation import mapped
from rlframe.data.timestep import Array, Batch, BoolArray, FloatArray, IntArray

Rows = dict[str, Any]
"""What an update reads: names to tensors [B, ...], or to nested dicts of them."""
OF_ACTING = 'logit', 'state', 'mask'
"""Columns that tell how a policy acted, not what happened."""
MARKS = 'env_id', 'episode_step', 'collect_iter'
"""Columns of rows that are of training samples as well."""


def take(obs: Any, index: Any) -> Any:
    """Returns some rows of an observation tensor, or of a nested dict of such.

    ``index`` is a slice, a mask or integers, as for one tensor.
    """
    return mapped(lambda part: part[index], obs)


def standardised(advantage: Any, ddof: int = 0) -> Any:
    """Gives advantages, a tensor [B], or each column of [B, A], mean 0 and standard deviation 1; a single row stays."""
    if len(advantage) == 1:
        return advantage
    return (advantage - advantage.mean(0)) / (advantage.std(0, correction=ddof) + 1e-8)


def grown(rows: Array, env_id: IntArray) -> Array:
    """Returns rows of envs [N, ...], with zeros for envs that have none yet."""
    missing = int(env_id.max(initial=-1)) + 1 - len(rows)
    if missing <= 0:
        return rows
    return np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)])


def clear(rows: Array, env_id: IntArray | None) -> None:
    """Puts the rows of these envs, or of all, to 0."""
    env_id = np.arange(len(rows)) if env_id is None else np.asarray(env_id)
    rows[env_id[env_id < len(rows)]] = 0


def real_rows(block: Batch) -> BoolArray:
    """Returns which rows of a block are no padding, [T, N]."""
    if 'mask' in block:
        return np.asarray(block['mask'])
    return np.ones(np.shape(block['action'])[:2], bool)


def real_samples(block: Batch, names: Iterable[str], found: Mapping[str, Array] = {}) -> Batch:
    """Returns the rows of a block that are no padding, with those of some columns that it has, and others, [T, N, ...].

    With a column ``begins``, the rows of each env stand one behind the other, in the order of time.
    """
    columns = {name: block[name] for name in (*names, 'collect_iter') if name in block}
    columns |= found
    real = real_rows(block)
    if 'begins' in columns:
        columns = {name: column.swapaxes(0, 1) for name, column in columns.items()}
        real = real.T
    return Batch({name: column[real] for name, column in columns.items()})


def flat(column: Any) -> Any:
    """Maps a column [T, N, ...], an array or a tensor, to [T * N, ...]."""
    return column.reshape(-1, *column.shape[2:])


def apart_rows(block: Any) -> Any:
    """Returns where the next observation of a row is not the observation of the row below, bool [T, N].

    The columns [T, N, ...], arrays or tensors, have ``terminated``, ``truncated`` and, where rows are missing, ``mask``.
    """
    apart = block['terminated'] | block['truncated']
    apart[-1] = True
    if 'mask' in block:
        apart[:-1] |= ~block['mask'][1:]
    return apart


def values_after(value: FloatArray, behind: FloatArray, apart: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Returns the values of the observation of each row and of its next observation, float32 [T, N, ...].

    Given are the values of the observations of all rows, float32 [T * N, ...], and those of the next observations of the rows
    that are ``apart``, float32 [n, ...].
    """
    value = value.reshape(*apart.shape, *value.shape[1:])
    next_value = np.concatenate([value[1:], value[-1:]])
    next_value[apart] = behind
    return value, next_value


def keeping_rows(get_train_sample: Callable[[Batch], Batch], block: Batch) -> Batch:
    """Returns training samples of a block, env by env in the order of time, with the rows that they are made of.

    Each has the marks of its row, ``env_id`` and ``episode_step``, and its row as the env gave it, in the column ``rows``. The
    column ``collect_iter``, which training samples keep, tells which row a sample is made of.
    """
    shape = np.shape(block['collect_iter'])
    index = np.arange(np.prod(shape)).reshape(shape)
    samples = get_train_sample(block.replace(collect_iter=index))
    row = np.asarray(samples['collect_iter'])
    order = np.lexsort((row, row % shape[1]))
    kept = {name: flat(column)[row[order]] for name, column in block.items() if name not in OF_ACTING}
    marks = {name: kept.pop(name) for name in MARKS if name in kept}
    return samples[order].replace(**marks, rows=Batch(kept))


def shuffled_batches(columns: Rows, order: Any, size: int) -> Iterator[Rows]:
    """Divides the rows of a round into batches of ``size`` rows; the last one may have fewer.

    ``order`` is that of the rows, a tensor int64 [M].
    """
    shuffled = take(columns, order)
    return (take(shuffled, slice(start, start + size)) for start in range(0, len(order), size))


def epochs_of(policy: Any, columns: Rows, epochs: int) -> Iterator[Callable[[], Metrics]]:
    """Yields the updates of a policy by all rows of a round in batches of ``learn.batch_size``, shuffled for each epoch."""
    count = len(columns['return_'])
    for _ in range(epochs):
        order = policy.tensor(policy.rng.permutation(count))
        for rows in shuffled_batches(columns, order, policy._cfg.learn.batch_size or count):
            yield partial(policy.train_step, rows)


class Sequences:
    """Cuts rows, which are in the order of time, into sequences.

    ``begins`` [M] is True where a row does not continue the episode of the row before it. A sequence has at most
    ``unroll_len`` steps; None: there is no limit.
    """

    def __init__(self, begins: BoolArray, unroll_len: int | None = None) -> None:
        count = len(begins)
        is_first = begins.copy()
        is_first[:1] = True
        start = np.flatnonzero(is_first)
        if unroll_len is not None:
            length = np.diff(start, append=count)
            step = np.arange(count) - np.repeat(start, length)
            start = np.flatnonzero(step % unroll_len == 0)
        self.start: IntArray = start
        """First row of each sequence, [S]."""
        self.length: IntArray = np.diff(start, append=count)
        """Steps of each sequence, [S]."""

    def __len__(self) -> int:
        """Returns the number of sequences, S."""
        return len(self.start)

    def batches(self, order: IntArray, size: int) -> list[IntArray]:
        """Divides sequences into batches of about ``size`` steps each.

        ``order`` are the numbers of all sequences, in the order in which they are used, [S].
        """
        length = self.length[order]
        steps = int(length.sum())
        count = max(round(steps / size), 1)
        middle = np.cumsum(length) - length / 2
        batch = (middle * count / steps).astype(np.int64)
        return np.split(order, np.flatnonzero(np.diff(batch)) + 1)

    def rows(self, chosen: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Lists the rows of some sequences, [n], one sequence behind the other.

        Returns:
            Of each row its number, its step within its sequence, and its sequence, counted among those chosen, [R].
        """
        return listed_rows(self.start[chosen], self.length[chosen])


def listed_rows(start: IntArray, length: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Lists the rows of sequences, one sequence behind the other, by the first row and the steps of each, [S].

    Returns:
        Of each row its number, its step within its sequence, and its sequence, [R].
    """
    first = np.cumsum(length) - length
    step = np.arange(length.sum()) - np.repeat(first, length)
    return np.repeat(start, length) + step, step, np.repeat(np.arange(len(start)), length)


def reward_windows(
    reward: FloatArray, row: IntArray, stop: IntArray, nstep: int, discount_factor: float
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Sums the discounted rewards of up to ``nstep`` steps from each of some rows on.

    ``reward`` are those of all rows, in the order of time, [M]. The window of ``row[k]`` ends before the row ``stop[k]``.

    Returns:
        The sums and the discounts behind the windows, float32 [K], and the last row of each window, int64 [K].

    Source:
        Sutton & Barto, Reinforcement Learning (2018), eq. 7.1.
    """
    length = np.minimum(stop - row, nstep)
    total = reward[row].astype(np.float32)
    for step in range(1, min(nstep, int(length.max(initial=1)))):
        goes_on = step < length
        total[goes_on] += discount_factor**step * reward[row[goes_on] + step]
    return total, (discount_factor**length).astype(np.float32), row + length - 1


def begins_of(done: BoolArray) -> BoolArray:
    """Returns which rows of a block, bool [T, N], do not continue the row above: the first, and those behind an end."""
    return np.concatenate([np.ones_like(done[:1]), done[:-1]])


def steps_of(data: Batch) -> Batch:
    """Returns sequences, [B, T, ...], as they are; transitions, [B, ...], which have no ``mask``, as sequences of one step."""
    if 'mask' in data:
        return data
    return data.map(lambda column: column[:, None]).replace(mask=np.ones((len(data), 1), bool))
