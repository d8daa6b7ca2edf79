"""Collection for another process: a collector with its own envs and policy, and the counts that go with its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rlframe.data.timestep import Batch, FloatArray
from rlframe.run.progress import Progress


class Parts(NamedTuple):
    """A collector with its own envs and policy."""

    collector: Any
    """A serial collector with its envs and its policy."""
    env: Any
    """Its env manager."""
    progress: Progress
    """Its counters."""
    trained: Any
    """Collect face of the policy; its ``load_state_dict`` takes weights."""
    random: Any = None
    """The same, acting at random."""


MakeParts = Callable[[int, int], Parts]
"""Creates the parts of a collector of a rank, in its k-th incarnation: 0 for the first, plus one after each loss."""


class Counts(NamedTuple):
    """Facts about the data of one call of ``collect``."""

    envstep: int
    """Env steps taken."""
    episodes: FloatArray
    """Return, length and success of the ended episodes, [n, 3]."""
    episode_count: int
    discarded: int
    """Env steps discarded since the previous call."""
    carried: int
    """Env steps carried over to the next request."""
    infos: Mapping[str, Any] = {}
    """Sum and count of the numbers in the infos of the ended episodes, by name."""


def collect_counted(parts: Parts, target: int | None, train_iter: int, **options: Any) -> tuple[Any, Counts]:
    """Collects, and returns the collected data and the facts about them.

    ``target`` is the number of training samples or episodes, None for the policy's own number; ``train_iter`` that of the
    weights that act; ``options`` are further arguments of the collector's ``collect``.
    """
    collector = parts.collector
    progress = parts.progress
    envstep, episodes = progress.envstep, progress.episodes
    data = collector.collect(target, train_iter=train_iter, **options)
    discarded = collector.discarded
    collector.discarded = 0  # from now on, it is counted by who called
    return data, Counts(
        progress.envstep - envstep,
        collector.take_episodes(),
        progress.episodes - episodes,
        discarded,
        getattr(collector, 'carried', 0),
        collector.take_infos(),
    )


def numbered(data: Any, parts: Parts, rank: int) -> Any:
    """Returns data whose column ``env_id``, if there is one, is unique over the collectors of all ranks."""
    if not isinstance(data, Batch):
        is_nested = isinstance(data, list | tuple)
        return type(data)(numbered(part, parts, rank) for part in data) if is_nested else data
    if rank == 0 or 'env_id' not in data:
        return data
    first = rank * parts.env.env_num * parts.env.spec.player_num
    return data.replace(env_id=data['env_id'] + data['env_id'].dtype.type(first))
