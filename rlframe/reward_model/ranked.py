"""Ranked episodes, read from recorded data, pairs of their parts, and what a ranking says of their rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlframe.data.episodes import last_rows
from rlframe.data.timestep import Batch, EnvSpec, IntArray
from rlframe.errors import ConfigError
from rlframe.reward_model.demonstrations import demonstrations
from rlframe.utils.lazy import torch


def ranked_episodes(data: Any, spec: EnvSpec, by_order: bool = False) -> list[list[Batch]]:
    """Returns episodes by their rank, the worst ones first; those of one rank are equally good.

    Args:
        data: What ``open_data`` accepts.
        spec: Spec of the env.
        by_order: Whether all episodes of one of several data have its rank; else they are ranked by their return.

    Raises:
        ConfigError: If there are not two ranks.
    """
    if by_order and isinstance(data, Sequence) and not isinstance(data, str):
        ranks = [episodes_of(demonstrations(each, spec)) for each in data]
    else:
        ranks = by_return(episodes_of(demonstrations(data, spec)))
    if len(ranks) < 2:
        raise ConfigError(
            'episodes that are all equally good rank nothing',
            where='data',
            got='1 rank',
            expected="data of episodes with different returns, or several data, the worst first, with ranked_by='order'",
        )
    return ranks


def episodes_of(rows: Batch) -> list[Batch]:
    """Splits rows in order of time at the ends of episodes."""
    behind = np.flatnonzero(last_rows(rows)) + 1
    starts = [0, *behind[:-1].tolist()]
    return [rows[start:stop] for start, stop in zip(starts, behind.tolist(), strict=True)]


def by_return(episodes: Sequence[Batch]) -> list[list[Batch]]:
    """Ranks episodes by the sums of their rewards, the smallest first.

    Raises:
        ConfigError: If they have no rewards.
    """
    if any('reward' not in episode for episode in episodes):
        raise ConfigError(
            'episodes cannot be ranked by their returns: the data have no rewards',
            where='data',
            expected="rewards, or several data, the worst first, with ranked_by='order'",
        )
    returns = [float(np.sum(episode['reward'], dtype=np.float64)) for episode in episodes]
    ranked: dict[float, list[Batch]] = {}
    for place in np.argsort(returns, kind='stable').tolist():
        ranked.setdefault(returns[place], []).append(episodes[place])
    return list(ranked.values())


class Snippets:
    """Pairs of parts of ranked episodes.

    Args:
        ranks: Episodes by their rank, the worst ones first.
        length: Steps of a part, if all episodes have so many.
    """

    def __init__(self, ranks: Sequence[Sequence[Batch]], length: int) -> None:
        episodes = [episode for rank in ranks for episode in rank]
        self.rows = Batch.cat([Batch({'obs': episode['obs']}) for episode in episodes])
        """All rows, episode after episode."""
        sizes = np.array([len(episode) for episode in episodes])
        self.length = min(length, int(sizes.min()))
        """Steps of a part."""
        self._first = np.cumsum(sizes) - sizes
        self._starts = sizes - self.length + 1  # first rows that a part may have
        self._behind = np.cumsum([len(rank) for rank in ranks])  # number of episodes up to each rank

    def pairs(self, count: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Draws parts of better and of worse episodes: their rows, int64 [count, length] each."""
        total = len(self._first)
        better = rng.integers(self._behind[0], total, size=count)
        below = self._behind[np.searchsorted(self._behind, better, 'right') - 1]  # episodes of lower ranks
        worse = rng.integers(0, below)
        return self._part(better, rng), self._part(worse, rng)

    def _part(self, episode: IntArray, rng: np.random.Generator) -> IntArray:
        start = self._first[episode] + rng.integers(0, self._starts[episode])
        rows: IntArray = start[:, None] + np.arange(self.length)
        return rows


def preference_loss(better: torch.Tensor, worse: torch.Tensor) -> torch.Tensor:
    """Returns the mean negative log-likelihood that pairs are ranked as they are.

    ``better`` and ``worse`` are the sums of rewards of the two snippets of each pair, [B].

    Source:
        Brown et al., Extrapolating Beyond Suboptimal Demonstrations via Inverse Reinforcement Learning from Observations
        (2019), section 4: P(worse < better) = exp(better) / (exp(worse) + exp(better)).
    """
    return torch.nn.functional.softplus(worse - better).mean()
