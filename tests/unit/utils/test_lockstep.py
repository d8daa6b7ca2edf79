"""Threads in lockstep: one runs at a time, and what they do together begins when all wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from rlframe.utils.lockstep import Lockstep


class Sum:
    """Answers each request with the sum of all; a negative one is an error of its thread, and a sum of 99 of all threads."""

    def __init__(self, log: list[Any], name: str = 'sum') -> None:
        self._log, self._name = log, name

    def answer(self, requests: Mapping[int, int], everyone: Sequence[int]) -> dict[int, Any]:
        self._log.append((self._name, dict(requests), list(everyone)))
        total = sum(requests.values())
        if total == 99:
            raise ValueError('all')
        return {i: KeyError(own) if own < 0 else total for i, own in requests.items()}


def test_threads_take_turns_and_those_that_ended_are_not_waited_for() -> None:
    log: list[Any] = []
    meeting = Sum(log)
    lockstep = Lockstep([meeting])

    def work(own: int, rounds: int) -> None:
        for _ in range(rounds):
            answer = lockstep.meet(meeting, own)
            log.append((own, answer))

    lockstep.run([partial(work, 10, 2), partial(work, 1, 1)])
    both, alone = ('sum', {0: 10, 1: 1}, [0, 1]), ('sum', {0: 10}, [0])
    assert log == [both, (10, 11), (1, 11), alone, (10, 10)]


def test_the_first_meeting_that_somebody_waits_at_comes_first() -> None:
    log: list[Any] = []
    first, last = Sum(log, 'first'), Sum(log, 'last')
    lockstep = Lockstep([first, last])

    def ahead() -> None:
        lockstep.meet(last, 1)

    def behind() -> None:
        lockstep.meet(first, 2)
        lockstep.meet(last, 3)

    lockstep.run([ahead, behind])
    assert log == [('first', {1: 2}, [0, 1]), ('last', {0: 1, 1: 3}, [0, 1])]


@pytest.mark.parametrize(
    ('requests', 'failed'), [((-1, 5), {0: KeyError}), ((98, 1), {0: ValueError, 1: ValueError})]
)
def test_an_error_is_raised_in_the_threads_that_it_concerns(
    requests: tuple[int, int], failed: dict[int, type[Exception]]
) -> None:
    meeting = Sum([])
    lockstep = Lockstep([meeting])
    found: dict[int, type[Exception]] = {}

    def work(number: int) -> None:
        try:
            lockstep.meet(meeting, requests[number])
        except (KeyError, ValueError) as error:
            found[number] = type(error)

    lockstep.run([partial(work, 0), partial(work, 1)])
    assert found == failed
