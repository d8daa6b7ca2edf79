"""Losses of actors: counted in a window of time, and the end of a run that has too many of them."""

from __future__ import annotations

import re
import textwrap
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rlframe.errors import ActorLostError, RLFrameError

COLOUR = r'\x1b\[[0-9;]*m'
LONGEST_CAUSE = 400
"""Characters of a line that tells why an actor was lost; Ray adds advice for every case."""
MOST_LATE_STARTS = 3
"""Starts of a rank in a row that take too long and end the run: they are too rare to be too many in the window."""


class Losses:
    """Counts losses, and says when there are too many.

    Args:
        cfg: Options of ``RAY_OPTIONS``.
        section: Where they are in a config.
    """

    def __init__(self, cfg: Mapping[str, Any], section: str) -> None:
        self._cfg, self._prefix = cfg, f'{section}.' if section else ''
        self._recent: deque[tuple[float, str]] = deque()
        self.is_over = False
        """Whether the run cannot go on, so that nothing is waited for any more."""

    def __len__(self) -> int:
        return len(self._recent)

    def count(self, text: str) -> None:
        """Counts one.

        Raises:
            ActorLostError: If it is one too many; with all causes.
        """
        now = time.monotonic()
        self._recent.append((now, text))
        while now - self._recent[0][0] > self._cfg['restart_window']:
            self._recent.popleft()
        if len(self._recent) > self._cfg['max_actor_restarts']:
            self.is_over = True
            raise self._too_many([text for _, text in self._recent])

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Takes an error in this block for the end of the run."""
        try:
            yield
        except RLFrameError:
            self.is_over = True
            raise

    def check_starts(self, rank: int, late_starts: int) -> None:
        """Makes sure that an actor that never starts is not waited for without end.

        Args:
            rank: Which.
            late_starts: How often in a row it took too long.

        Raises:
            ActorLostError: If that is too often.
        """
        if late_starts >= MOST_LATE_STARTS:
            raise ActorLostError(
                f'Ray actor {rank} did not start within {self._cfg["start_timeout"]:g} s, {late_starts} times in a row',
                where=f'{self._prefix}start_timeout',
                remedy='Do the envs take longer? Else no node has room for it, or is what remote_configs asks for.',
            )

    def _too_many(self, causes: Sequence[str]) -> ActorLostError:
        limit, window = self._cfg['max_actor_restarts'], self._cfg['restart_window']
        listed = '\n'.join(f'  {cause}' for cause in causes)
        return ActorLostError(
            f'{len(causes)} actors were lost within {window:g} s, {limit} may be replaced:\n{listed}\n',
            where=f'{self._prefix}max_actor_restarts',
            remedy='Is there enough memory? Do the envs answer? The log files of the Ray session say more.',
        )


def cause_of(error: Exception) -> str:
    """Returns what happened and why: the first and the last line of what Ray says, between which are names and tracebacks."""
    lines = [line.strip() for line in re.sub(COLOUR, '', str(error)).splitlines() if line.strip()]
    told = dict.fromkeys([*lines[:1], *lines[-1:]])
    return ' '.join([f'{type(error).__name__}:', *(textwrap.shorten(line, LONGEST_CAUSE) for line in told)])
