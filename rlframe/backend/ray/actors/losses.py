"""Losses of actors: counted in a window of time, and the end of a run that has too many of them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rlframe.errors import ActorLostError, RLFrameError

MOST_LATE_STARTS = 3
"""Number of consecutive slow starts of a rank that ends the run: they are too rare to exceed the limit in the
window."""


class Losses:
    """Counts losses, and raises an error if there are too many.

    Args:
        cfg: Options of ``RAY_OPTIONS``.
        section: Config key of the options.
    """

    def __init__(self, cfg: Mapping[str, Any], section: str) -> None:
        self._cfg, self._prefix = cfg, f'{section}.' if section else ''
        self._recent: deque[tuple[float, int, str]] = deque()
        self.is_over = False
        """Whether the run cannot continue, so nothing is waited for any more."""

    def __len__(self) -> int:
        return len(self._recent)

    def count(self, rank: int, text: str) -> None:
        """Counts a loss.

        Args:
            rank: Rank of the lost actor.
            text: Description of the loss, with its cause.

        Raises:
            ActorLostError: If there were too many; with all causes.
        """
        now = time.monotonic()
        self._recent.append((now, rank, text))
        while now - self._recent[0][0] > self._cfg['restart_window']:
            self._recent.popleft()
        if len(self._recent) > self._cfg['max_actor_restarts']:
            self.is_over = True
            raise self._too_many()

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Marks the run as broken if an error is raised in this block."""
        try:
            yield
        except RLFrameError:
            self.is_over = True
            raise

    def check_starts(self, rank: int, late_starts: int) -> None:
        """Raises an error if an actor keeps failing to start in time, instead of waiting forever.

        Args:
            rank: Rank of the actor.
            late_starts: Number of consecutive starts that took too long.

        Raises:
            ActorLostError: If there were too many.
        """
        if late_starts >= MOST_LATE_STARTS:
            raise ActorLostError(
                f'Ray actor {rank} did not start within {self._cfg["start_timeout"]:g} s, {late_starts} times in a row',
                where=f'{self._prefix}start_timeout',
                remedy='Raise it if the envs start slowly. Otherwise no node has the resources that remote_configs requests.',
            )

    def _too_many(self) -> ActorLostError:
        limit, window = self._cfg['max_actor_restarts'], self._cfg['restart_window']
        listed = '\n'.join(f'  {cause}' for _, _, cause in self._recent)
        times = Counter(rank for _, rank, _ in self._recent)
        ranks = ', '.join(
            f'Ray actor {rank}{f" {count} times" if count > 1 else ""}'
            for rank, count in sorted(times.items())
        )
        count = f'{len(self._recent)} actor{"s were" if len(self._recent) > 1 else " was"}'
        return ActorLostError(
            f'{count} lost within {window:g} s ({ranks}), {limit} may be replaced:\n{listed}\n',
            where=f'{self._prefix}max_actor_restarts',
            remedy='Is there enough memory? Do the envs answer? The log files of the Ray session say more.',
        )
