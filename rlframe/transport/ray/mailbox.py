"""Mailbox: the actor that carries messages between workers and the coordinator, without looking into them."""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import NamedTuple, TypeAlias

Parcel: TypeAlias = 'bytes | list[object] | None'
"""A payload: its bytes, or a list with the reference to it, which Ray does not resolve within a list."""


ENDED = 'the coordinator has ended'


class Letter(NamedTuple):
    """A request on its way to the coordinator."""

    number: int
    """Number of the letter, for the answer."""
    body: bytes
    parcel: Parcel


class Answer(NamedTuple):
    """A reply on its way to a worker."""

    number: int
    """Number of the letter that it answers."""
    body: bytes
    """Empty if the coordinator asks to repeat the request; ``reason`` says why."""
    parcel: Parcel
    reason: str = ''


class Place(NamedTuple):
    """Where the mailbox runs."""

    pid: int
    node: str


class Mailbox:
    """Holds letters until a thread of the coordinator takes them, and their senders until they are answered.

    All methods run in one event loop, so nothing here needs a lock.
    """

    def __init__(self) -> None:
        self._letters: asyncio.Queue[Letter] = asyncio.Queue()
        self._senders: dict[int, asyncio.Future[Answer]] = {}
        self._numbers, self._takers = itertools.count(), 0
        self._is_closed = False

    async def place(self) -> Place:
        """Returns where it runs, as soon as it runs."""
        return Place(os.getpid(), os.uname().nodename)

    async def ask(self, body: bytes, parcel: Parcel, seconds: float) -> Answer | None:
        """Delivers a request and returns the reply; None if there is none in time.

        Args:
            body: The request.
            parcel: Its payload.
            seconds: How long to wait.
        """
        number = next(self._numbers)
        if self._is_closed:
            return Answer(number, b'', None, ENDED)
        sender = self._senders[number] = asyncio.get_running_loop().create_future()
        self._letters.put_nowait(Letter(number, body, parcel))
        try:
            return await asyncio.wait_for(sender, seconds)
        except TimeoutError:
            return None
        finally:
            del self._senders[number]

    async def exchange(self, answer: Answer | None, seconds: float) -> Letter | None:
        """Delivers an answer, and returns the next letter; None if there is none in time.

        Args:
            answer: The answer to an earlier letter, if there is one.
            seconds: How long to wait.
        """
        if answer is not None:
            await self.reply(answer)
        self._takers += 1
        try:
            return await asyncio.wait_for(self._next(), seconds)
        except TimeoutError:
            return None
        finally:
            self._takers -= 1

    async def reply(self, answer: Answer) -> None:
        """Delivers an answer."""
        sender = self._senders.get(answer.number)
        if sender is not None and not sender.done():
            sender.set_result(answer)

    async def close(self) -> None:
        """Ends all waiting."""
        self._is_closed = True
        for number in list(self._senders):
            await self.reply(Answer(number, b'', None, ENDED))
        for _ in range(self._takers):
            self._letters.put_nowait(Letter(-1, b'', None))

    async def _next(self) -> Letter | None:
        while not self._is_closed:
            letter = await self._letters.get()
            if letter.number in self._senders:  # otherwise its sender has stopped waiting
                return letter
        return None
