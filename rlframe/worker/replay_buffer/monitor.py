"""Monitors a buffer: reuse and staleness of its items, rates of insertion and removal."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from rlframe.data import Array
from rlframe.utils.resolved_config import ResolvedConfig
from rlframe.utils.schema import COUNT, FINITE, array, check_state

logger = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Returns seconds since some fixed moment."""


class ScalarWriter(Protocol):
    """Interface of a TensorBoard writer for a monitor."""

    def add_scalar(self, tag: str, value: float, step: int) -> Any:
        """Records one number."""


class RateConfig(ResolvedConfig):
    """Section ``thruput_controller.push_sample_rate_limit`` of a buffer."""

    max: float
    min: float


class ControlConfig(ResolvedConfig):
    """Section ``thruput_controller`` of a buffer."""

    push_sample_rate_limit: RateConfig
    window_seconds: float
    sample_min_limit_ratio: float


class AttrConfig(ResolvedConfig):
    """Section ``monitor.sampled_data_attr`` of a buffer."""

    average_range: int
    print_freq: int


class RhythmConfig(ResolvedConfig):
    """Section ``monitor.periodic_thruput`` of a buffer."""

    seconds: float


class MonitorConfig(ResolvedConfig):
    """Section ``monitor`` of a buffer."""

    sampled_data_attr: AttrConfig
    periodic_thruput: RhythmConfig


class ThroughputControl:
    """Keeps pushing and sampling at rates that fit; counts fade to a hundredth in ``window_seconds``.

    Args:
        push_sample_max: Pushes are refused above this many pushed items per sampled one.
        push_sample_min: Samples are refused below this many pushed items per sampled one.
        window_seconds: How far back it looks, in seconds.
        clock: Tells the time.
    """

    def __init__(
        self, push_sample_max: float, push_sample_min: float, window_seconds: float, clock: Clock
    ) -> None:
        self._max, self._min, self._window, self._clock = (
            push_sample_max,
            push_sample_min,
            window_seconds,
            clock,
        )
        self.has_limits = push_sample_max < math.inf or push_sample_min > 0
        """Whether anything is to be refused; otherwise nothing needs to be asked or counted."""
        self._pushed = self._sampled = 0.0
        self._then = clock()

    def can_push(self, count: int) -> bool:
        """Whether ``count`` more pushed items keep to the limit."""
        self._fade()
        return self._sampled < 1e-5 or (self._pushed + count) / self._sampled <= self._max

    def can_sample(self, count: int) -> bool:
        """Whether ``count`` more sampled items keep to the limit."""
        self._fade()
        return self._pushed >= self._min * (self._sampled + count)

    def pushed(self, count: int) -> None:
        """Counts pushed items."""
        self._pushed += count

    def sampled(self, count: int) -> None:
        """Counts sampled items."""
        self._sampled += count

    def describe(self) -> str:
        """Returns the counts in words."""
        return f'{self._pushed:.0f} pushed and {self._sampled:.0f} sampled in the last {self._window:g} s'

    def state_dict(self) -> dict[str, float]:
        """Returns the counts."""
        return {'pushed': self._pushed, 'sampled': self._sampled}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restores the counts; the time that passed meanwhile does not count."""
        check_state(state, {'pushed': FINITE, 'sampled': FINITE})
        self._pushed, self._sampled, self._then = state['pushed'], state['sampled'], self._clock()

    def _fade(self) -> None:
        now = self._clock()
        factor = 0.01 ** ((now - self._then) / self._window)
        self._pushed *= factor
        self._sampled *= factor
        self._then = now


class PeriodicThruputMonitor:
    """Logs the numbers of items added, sampled and removed. No thread: pushes and samples drive it.

    Args:
        seconds: Between two lines, in seconds.
        name: Of the buffer.
        tb_logger: Receives the same numbers; may be ``None``.
        clock: Tells the time.
    """

    def __init__(self, seconds: float, name: str, tb_logger: ScalarWriter | None, clock: Clock) -> None:
        self._seconds, self._name, self._tb_logger, self._clock = seconds, name, tb_logger, clock
        self._count = {'pushed_in': 0, 'sampled_out': 0, 'removed': 0}
        self._then = clock()

    def record(self, *, pushed: int = 0, sampled: int = 0, removed: int = 0, have: int, envstep: int) -> None:
        """Counts items, and logs if it is time.

        Args:
            pushed: New items.
            sampled: Items sampled.
            removed: Items overwritten or removed.
            have: Number of items available.
            envstep: Env steps so far.
        """
        self._count['pushed_in'] += pushed
        self._count['sampled_out'] += sampled
        self._count['removed'] += removed
        if self._clock() - self._then >= self._seconds:
            self._log(have, envstep)

    def state_dict(self) -> dict[str, int]:
        """Returns the counts since the last line."""
        return dict(self._count)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restores the counts."""
        check_state(state, dict.fromkeys(self._count, COUNT))
        self._count = {name: int(state[name]) for name in self._count}

    def _log(self, have: int, envstep: int) -> None:
        numbers = {**self._count, 'current_have': have}
        logger.info('%s: %s', self._name, ', '.join(f'{name} {value}' for name, value in numbers.items()))
        if self._tb_logger is not None:
            for name, value in numbers.items():
                self._tb_logger.add_scalar(f'buffer_sec/{name}', value, envstep)
        self._count = dict.fromkeys(self._count, 0)
        self._then = self._clock()


class SampledDataAttrMonitor:
    """Logs every ``print_freq`` samples the use, priority and staleness of the last few, averaged.

    Args:
        average_range: Samples averaged over.
        print_freq: Samples between two entries.
        tb_logger: Receives the averages; ``None`` drops them.
    """

    def __init__(self, average_range: int, print_freq: int, tb_logger: ScalarWriter | None) -> None:
        self._skip, self._print_freq, self._tb_logger = (
            max(print_freq - average_range, 0),
            print_freq,
            tb_logger,
        )
        self._calls = 0
        self._means = np.empty((0, 3))

    def record(
        self, use: Array, priority: Array, staleness: Array, *, beta: float, count: int, envstep: int
    ) -> None:
        """Takes note of one sample; most calls only count.

        Args:
            use: Uses of each sampled item, [n].
            priority: Of each sampled item, [n].
            staleness: In train iterations, -1 where unknown, [n].
            beta: Exponent of the importance weights.
            count: Items in the buffer.
            envstep: Env steps so far.
        """
        self._calls += 1
        if self._calls <= self._skip:
            return
        self._means = np.vstack([self._means, [use.mean(), priority.mean(), staleness.mean()]])
        if self._calls < self._print_freq:
            return
        if self._tb_logger is not None:
            averages = [*self._means.mean(axis=0).tolist(), beta, count]
            for name, value in zip(
                ('use_avg', 'priority_avg', 'staleness_avg', 'beta', 'count'), averages, strict=True
            ):
                self._tb_logger.add_scalar(f'buffer/{name}', value, envstep)
        self._calls, self._means = 0, np.empty((0, 3))

    def state_dict(self) -> dict[str, Any]:
        """Returns the measurements since the last entry."""
        return {'calls': self._calls, 'means': self._means.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the measurements."""
        check_state(state, {'calls': COUNT, 'means': array('f', (None, 3))})
        self._calls, self._means = int(state['calls']), np.array(state['means'], np.float64)
