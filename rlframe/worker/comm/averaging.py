"""Divides a round of data among several learners, and makes one result of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.batch import Batch
from rlframe.worker.parallel.extras import AVERAGED

OF_THE_FIRST = ('learner_step', 'train_iter', 'learner_done', 'buffer_id', 'task_id')
"""Entries of a report that are those of the first learner."""


class Share(NamedTuple):
    """What a learner trains on in a round."""

    data: Any
    rows: int
    """Its size, over all batches."""


def batches_of(data: Any, count: int) -> list[Any]:
    """Returns the batches of a payload, which are sent as one if there are several."""
    if isinstance(data, list) or count <= 1:
        return data if isinstance(data, list) and count > 1 else [data]
    return [data[rows] for rows in np.array_split(np.arange(len(data)), count)]


def shares_of(data: Any, count: int, learners: int) -> list[Share]:
    """Divides the rows of each batch evenly: every learner gets as many batches, of fewer rows.

    Args:
        data: A payload of training data, without extras.
        count: Number of batches in it.
        learners: Number of learners. If a batch has fewer rows, as many learners get none.

    Returns:
        The shares of the learners that get one. The share of a single learner is the payload itself.
    """
    batches = batches_of(data, count)
    learners = min(learners, *(len(batch) for batch in batches)) if learners > 1 else 1
    if learners <= 1:
        return [Share(data, sum(len(batch) for batch in batches))]
    return [_share(batches, first, learners) for first in range(learners)]


def _share(batches: Sequence[Any], first: int, step: int) -> Share:
    parts = [_rows(batch, range(first, len(batch), step)) for batch in batches]
    rows = sum(len(part) for part in parts)
    if len(parts) == 1:
        return Share(parts[0], rows)
    return Share(parts if isinstance(parts[0], list) else Batch.cat(parts), rows)


def _rows(batch: Any, places: range) -> Any:
    return [batch[i] for i in places] if isinstance(batch, list) else batch[np.asarray(places)]


def average(trees: Sequence[Any], shares: Sequence[float]) -> Any:
    """Returns the weighted mean of each tensor of floating-point numbers; all else is that of the first tree.

    Args:
        trees: Trees of the same structure; a single one is returned itself.
        shares: Weight of each tree; they add up to 1.

    Source:
        McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data (2017), algorithm 1.
    """
    first = trees[0]
    if len(trees) == 1:
        return first
    if isinstance(first, Mapping):
        return {name: average([tree[name] for tree in trees], shares) for name in first}
    if not (hasattr(first, 'is_floating_point') and first.is_floating_point()):
        return first
    total = sum(share * tree.detach().double() for share, tree in zip(shares, trees, strict=True))
    return total.to(first.dtype)


def merged_info(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the reports of several learners as one: numbers are averaged, lists and arrays are concatenated.

    Counts and names (``OF_THE_FIRST``), flags and texts are those of the first; dicts are merged key by key.
    """
    merged: dict[str, Any] = {}
    for name, first in (infos[0] if infos else {}).items():
        values = [info[name] for info in infos if name in info]
        merged[name] = first if name in OF_THE_FIRST else _merged(values)
    return merged


def _merged(values: Sequence[Any]) -> Any:
    first = values[0]
    if len(values) == 1:
        return first
    if isinstance(first, Mapping):
        return merged_info(values)
    if isinstance(first, list | tuple):
        return [item for value in values for item in value]
    if isinstance(first, np.ndarray) and first.ndim:
        return np.concatenate(values)
    if isinstance(first, bool) or not isinstance(first, int | float | np.number):
        return first
    return float(np.mean(values))


def networks_in(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what learners have in common after a round, of the weights that one of them published."""
    named = weights[AVERAGED].items()
    return {name: weights[name] if network is None else network for name, network in named}


def with_networks(state: Mapping[str, Any], networks: Mapping[str, Any], train_iter: int) -> dict[str, Any]:
    """Returns the state of a learner with the networks and the train iterations of the whole group."""
    progress = {**state['progress'], 'train_iter': train_iter}
    return {**state, 'policy': {**state['policy'], **networks}, 'progress': progress}
