"""Lockstep: threads that take turns, and do together what each would otherwise do alone."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class Meeting(Protocol):
    """What several threads do together."""

    def answer(self, requests: Mapping[int, Any], everyone: Sequence[int]) -> Mapping[int, Any]:
        """Returns the answer to each request, by the number of its thread; an exception is raised in that thread.

        ``everyone`` are the threads that have not ended.
        """


class Lockstep:
    """Runs functions in threads of which one runs at a time, until it waits at a meeting or ends.

    Meetings begin when every thread waits: with those at the first of ``meetings`` that somebody waits at. What happens when
    depends on nothing but the functions, so a program with threads like these is as repeatable as one without.
    """

    def __init__(self, meetings: Sequence[Meeting]) -> None:
        self._meetings = meetings
        self._waiting: dict[int, tuple[Meeting, Any]] = {}
        self._answers: dict[int, Any] = {}
        self._ready: deque[int] = deque()
        self._batons: list[threading.Lock] = []
        self._alive: list[int] = []
        self._running = -1
        self._over = threading.Event()

    def run(self, functions: Sequence[Callable[[], object]]) -> None:
        """Runs the functions to their ends, in threads that die with the process; they handle their exceptions themselves."""
        self._alive = list(range(len(functions)))
        self._ready.extend(self._alive)
        self._batons = [threading.Lock() for _ in functions]
        for number, function in enumerate(functions):
            self._batons[number].acquire()
            threading.Thread(target=self._take_part, args=(number, function), daemon=True).start()
        self._pass_on()
        self._over.wait()

    def meet(self, meeting: Meeting, request: Any) -> Any:
        """Waits for the others, and returns the answer of the meeting to the request of this thread."""
        own = self._running
        self._waiting[own] = meeting, request
        self._pass_on()
        self._batons[own].acquire()
        self._running = own
        answer = self._answers.pop(own)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _take_part(self, number: int, function: Callable[[], object]) -> None:
        self._batons[number].acquire()
        self._running = number
        try:
            function()
        finally:
            self._alive.remove(number)
            self._pass_on()

    def _pass_on(self) -> None:
        """Lets the next thread run; if all wait, the next meeting takes place first."""
        if not self._alive:
            self._over.set()
            return
        if not self._ready:
            self._meet_now()
        self._batons[self._ready.popleft()].release()

    def _meet_now(self) -> None:
        meeting = next(one for one in self._meetings if any(one is at for at, _ in self._waiting.values()))
        there = sorted(number for number, (at, _) in self._waiting.items() if at is meeting)
        requests = {number: self._waiting.pop(number)[1] for number in there}
        try:
            self._answers |= meeting.answer(requests, self._alive)
        except Exception as error:
            self._answers |= dict.fromkeys(there, error)
        self._ready.extend(there)
