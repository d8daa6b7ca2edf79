"""CollectionMeter: what a collector counts, times and records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from rlframe.data.timestep import FloatArray
from rlframe.run.metrics import ScalarWriter, write_record
from rlframe.run.progress import Progress
from rlframe.worker.collector.episode_log import EpisodeLog


class CollectionMeter:
    """Counts env steps and episodes, measures the time of calls, and writes records.

    Args:
        print_freq: Train iterations between two records; None writes none.
        tb_logger: Writes records; None writes none.
        instance_name: Name of the collector, for the log.
        progress: Counters shared with the other workers; new ones if not given.
    """

    def __init__(
        self,
        print_freq: int | None,
        tb_logger: ScalarWriter | None = None,
        instance_name: str = 'collector',
        progress: Progress | None = None,
    ) -> None:
        self.progress = progress if progress is not None else Progress()
        self.logger = logging.getLogger(f'rlframe.{instance_name}')
        self.last_print_iter = 0
        """Train iteration at which the last record was written."""
        self._print_freq, self._tb_logger = print_freq, tb_logger
        self._seconds, self._steps = 0.0, 0  # since the last record

    def count(self, envstep: int, episodes: int = 0) -> None:
        """Counts env steps taken and episodes ended."""
        self.progress.envstep += envstep
        self.progress.episodes += episodes
        self._steps += envstep

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Adds the duration of a ``with`` block to the collection time."""
        start = perf_counter()
        try:
            yield
        finally:
            self._seconds += perf_counter() - start

    def report(self, train_iter: int, log: EpisodeLog, more: Callable[[], Mapping[str, float]]) -> None:
        """Writes a record if it is time for one.

        Args:
            train_iter: Train iterations so far.
            log: Log of the ended episodes.
            more: Returns further metrics; called only if a record is written.
        """
        freq = self._print_freq
        if freq is None or train_iter - self.last_print_iter < freq or not log.has_recent():
            return
        values = log.summary() | dict(more())
        values['time/collect_fps'] = self._steps / max(self._seconds, 1e-9)
        values['rollout/episodes'] = self.progress.episodes
        self.last_print_iter, self._seconds, self._steps = train_iter, 0.0, 0
        write_record(self._tb_logger, values, self.progress.envstep, train_iter=train_iter)
        self.logger.info(
            'envstep %d, train_iter %d: return %.1f over %d episodes',
            self.progress.envstep,
            train_iter,
            values['rollout/interval_rew_mean'],
            values['rollout/interval_episodes'],
        )


class Metered:
    """Mixin for collectors that takes counts and scores from their meter and episode log."""

    _meter: CollectionMeter
    _log: EpisodeLog

    @property
    def envstep(self) -> int:
        """Env steps collected so far, over all envs."""
        return self._meter.progress.envstep

    @envstep.setter
    def envstep(self, value: int) -> None:
        self._meter.progress.envstep = value

    def reset_counters(self) -> None:
        """Resets all counters to 0, those that other workers share, too, which ``reset`` keeps."""
        self._meter.progress.load_state_dict(Progress().state_dict())

    def mean_return(self) -> float:
        """Returns the mean return of the last episodes, NaN before the first episode has ended."""
        return self._log.window_mean()

    def take_episodes(self) -> FloatArray:
        """Returns and clears return, length and success of the episodes that are not in a record yet, [n, 3]."""
        return self._log.take_recent()

    def take_infos(self) -> dict[str, list[float]]:
        """Returns and clears sum and count of the numbers in the infos of these episodes, by name."""
        return self._log.take_infos()

    def _more_metrics(self) -> dict[str, float]:
        """Returns further metrics for a record."""
        return {}

    def _report(self, train_iter: int) -> None:
        """Writes a record if it is time for one."""
        self._meter.report(train_iter, self._log, self._more_metrics)
