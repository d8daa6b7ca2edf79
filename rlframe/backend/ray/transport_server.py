"""RayServer: the coordinator's end of ``ray``."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rlframe.backend.ray.options import RAY_INIT
from rlframe.backend.ray.session import RaySession, connect
from rlframe.errors import ConfigError, MessageError, NoRoomError, ResourceError, RLFrameError
from rlframe.parallel.transport.answering import AnsweringServer, refusal
from rlframe.parallel.transport.base import Envelope, Handler, Reply, Transport, decode, encode
from rlframe.parallel.transport.flask_fs_folder import Packed, pack, unpack
from rlframe.parallel.transport.messages import NAME
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.utils import strict_json
from rlframe.utils.field import Section, option
from rlframe.utils.lazy import LazyModule
from rlframe.utils.secrets import shown_address

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


ray = LazyModule('ray')

NAMESPACE = 'rlframe'
"""Namespace of all mailboxes in a cluster."""
INLINE = 2**16
"""Bytes of the largest payload that travels with its message; Ray moves arguments above 100 KB to its store."""


def address_of(name: str, cluster: str) -> str:
    """Returns the address of a coordinator.

    Args:
        name: Name of its mailbox.
        cluster: ``host:port`` of the cluster.
    """
    return f'ray://{name}@{cluster}'


def parse_address(address: Any) -> tuple[str, str]:
    """Returns the name of the mailbox and ``host:port`` of the cluster.

    Raises:
        ConfigError: If it is not ``ray://name@host:port``.
    """
    text = str(address)
    name, _, cluster = text.removeprefix('ray://').rpartition('@')
    host, _, port = cluster.rpartition(':')
    if text.startswith('ray://') and name and host and port.isdigit():
        return name, cluster
    raise ConfigError(
        'bad address of a coordinator',
        where='address',
        got=shown_address(text),
        expected="'ray://name@host:port'",
    )


def to_body(envelope: Envelope) -> bytes:
    """Returns an envelope as JSON."""
    return json.dumps(strict_json.to_tagged(encode(envelope)), allow_nan=False).encode('ascii')


def from_body(body: bytes) -> Envelope:
    """Returns the envelope that ``to_body`` was given.

    Raises:
        MessageError: If it is not one of this version of rlframe.
    """
    try:
        return decode(strict_json.from_tagged(strict_json.loads(body, 'MANIFEST')))
    except MessageError:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise MessageError(f'the message is not JSON: {error}') from error


def seal(packed: Packed) -> Parcel:
    """Returns a payload in a form that travels, copied once.

    Raises:
        NoRoomError: If the object store has no room for it.
    """
    if packed.nbytes <= INLINE:
        return b''.join(packed.chunks)
    try:
        return [ray.put([np.frombuffer(chunk, np.uint8) for chunk in packed.chunks])]
    except ray.exceptions.RayError as error:
        raise NoRoomError(
            f'the object store of Ray has no room for {packed.nbytes:,} bytes: {first_line(error)}',
            where='object_store_memory',
            remedy='Give the cluster a larger object store, or send smaller parts.',
        ) from error


def unseal(parcel: Parcel, seconds: float) -> Any:
    """Returns a payload; its arrays are copies, so that they can be written and the store gets its room back.

    Args:
        parcel: What ``seal`` returned.
        seconds: How long the transfer from another node may take.

    Raises:
        MessageError: If it is not what ``seal`` returned.
        ray.exceptions.RayError: If it did not come in time, or was lost with the process that sent it.
    """
    if parcel is None:
        return None
    if isinstance(parcel, bytes):
        parts = [np.frombuffer(parcel, np.uint8)]
    else:
        parts = ray.get(parcel[0], timeout=seconds)
    data = np.empty(sum(len(part) for part in parts), np.uint8)
    np.concatenate(parts, out=data)
    return unpack(lambda: data, 'payload')


def first_line(error: Exception) -> str:
    """Returns the first line of one of Ray's errors, with its type."""
    text = str(error).strip().partition('\n')[0]
    return f'{type(error).__name__}: {text[:300]}' if text else type(error).__name__


logger = logging.getLogger('rlframe.transport')

THREADS = 16
"""Threads that take letters from the mailbox; a letter that repeats one may occupy its thread for some seconds."""
POLL_SECONDS = 10.0
"""How long a thread waits for the next letter before it asks again."""
GRACE_SECONDS = 5.0
"""How much later than that the mailbox may answer."""
START_SECONDS = 120.0
"""How long the mailbox may take to start."""
FETCH_SECONDS = 60.0
"""How long a payload may take to come from another node."""
MOST_ASKS = 10_000
"""Requests that wait in the mailbox at the same time; those of the server must never be refused."""
MOST_NAMES = 8
"""Names whose newest payload stays in the object store for the next worker that asks."""


class Sent(NamedTuple):
    """A reply as it is kept for repeated requests; Ray frees its payload when it is dropped."""

    body: bytes
    parcel: Parcel = None


class RayServerConfig(Section):
    """Options of ``RayServer``."""

    ray_init_config: dict[str, Any] = RAY_INIT
    name: str | None = option(
        None,
        check=lambda value: '' if NAME.fits(value) else NAME.name,
        doc='name of the mailbox; with one of its own, a coordinator that was restarted has the same address',
    )


class RayServer(AnsweringServer[Sent]):
    """Takes messages from a mailbox actor and arrays from the object store.

    Args:
        cfg: Options.
    """

    _cfg: RayServerConfig

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(cfg)
        self._name = self._cfg.name or f'coordinator-{secrets.token_hex(8)}'
        self._session: RaySession | None = None
        self._mailbox: Any = None
        self._place: Place | None = None
        self._threads: list[threading.Thread] = []
        self._closing, self._replacing = threading.Event(), threading.Lock()
        self._sharing = threading.Lock()
        self._shared: dict[str, tuple[Any, Parcel]] = {}  # the one that was asked for last comes last

    def start(self, handler: Handler) -> None:
        """Starts the mailbox, and Ray if it does not run yet, and begins to answer.

        Raises:
            MissingDependencyError: If Ray is not installed.
            ResourceError: If Ray or the mailbox does not start.
            ConfigError: If a coordinator with this name runs in the cluster.
        """
        self._session = connect(self._cfg.ray_init_config, 'ray_init_config')
        try:
            self._start_mailbox()
        except BaseException:
            self.close()
            raise
        super().start(handler)
        for number in range(THREADS):
            thread = threading.Thread(target=self._serve, name=f'rlframe-ray-{number}', daemon=True)
            self._threads.append(thread)
            thread.start()

    @property
    def address(self) -> str:
        """The address: ``ray://name@host:port``."""
        assert self._place is not None, 'the server has not started'
        return self._address

    def connect(self, cfg: Mapping[str, Any] | None = None) -> Transport:
        """Returns a connection through the mailbox."""
        made: Transport = TRANSPORT_REGISTRY.build('ray', cfg or {}, self.address)
        return made

    def close(self) -> None:
        """Ends the mailbox, and Ray if this server started it; may be called twice."""
        super().close()
        self._closing.set()
        session, self._session = self._session, None
        if session is None:
            return
        with self._sharing:
            self._shared.clear()
        if self._mailbox is not None and ray.is_initialized():
            self._end_mailbox()
        self._mailbox = None
        session.close()

    def keep(self, envelope: Envelope, reply: Reply) -> Sent:
        """Puts a large payload into the object store, and returns the message as JSON."""
        payload = reply.payload
        sent = Envelope('', envelope.seq, reply.message, payload is not None)
        decode(encode(sent))
        if payload is None:
            return Sent(to_body(sent))
        parcel = self._shared_parcel(reply.shared, payload) if reply.shared else seal(pack(payload))
        return Sent(to_body(sent), parcel)

    def _shared_parcel(self, name: str, payload: Any) -> Parcel:
        """Returns a payload that several workers get, such as weights; it is put into the object store once."""
        with self._sharing:
            held, parcel = self._shared.pop(name, (None, None))
            if held is not payload:
                parcel = seal(pack(payload))
            self._shared[name] = payload, parcel
            while len(self._shared) > MOST_NAMES:
                del self._shared[next(iter(self._shared))]
            return parcel

    def _start_mailbox(self) -> None:
        here = ray.get_runtime_context()
        self._address = address_of(self._name, here.gcs_address)
        same_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            here.get_node_id(), soft=False
        )
        options = dict(
            name=self._name,
            namespace=NAMESPACE,
            num_cpus=0,
            max_concurrency=MOST_ASKS,
            max_restarts=-1,
            enable_task_events=False,  # a list of all calls, which costs a fifth of each
            scheduling_strategy=same_node,
        )
        try:
            self._mailbox = ray.remote(Mailbox).options(**options).remote()
        except ValueError as error:
            raise ConfigError(
                f'another coordinator of this cluster has the name {self._name!r}',
                where='name',
                remedy='Give each coordinator a name of its own, or end the other one.',
            ) from error
        try:
            self._place = ray.get(self._mailbox.place.remote(), timeout=START_SECONDS)
        except ray.exceptions.RayError as error:
            raise ResourceError(
                f'the mailbox of the coordinator did not start in {START_SECONDS:g} s: {first_line(error)}',
                where='ray_init_config',
                remedy='The log files of the Ray session say more.',
            ) from error

    def _end_mailbox(self) -> None:
        with suppress(ray.exceptions.RayError):
            ray.get(self._mailbox.close.remote(), timeout=GRACE_SECONDS)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(GRACE_SECONDS)
        ray.kill(self._mailbox)

    def _serve(self) -> None:
        """Answers letters until the server is closed."""
        answer: Answer | None = None
        while not self._closing.is_set():
            mailbox = self._mailbox
            try:
                asked, answer = mailbox.exchange.remote(answer, POLL_SECONDS), None
                letter: Letter | None = ray.get(asked, timeout=POLL_SECONDS + GRACE_SECONDS)
            except ray.exceptions.RayError as error:
                self._replace(mailbox, error)
                continue
            answer = None if letter is None else self._answered(letter)
            del letter, asked  # which hold a payload
            if answer is not None and not isinstance(answer.parcel, bytes | None):
                mailbox.reply.remote(answer)  # as an argument of a long call, it would stay in the store
                answer = None

    def _replace(self, mailbox: Any, error: Exception) -> None:
        """Starts another mailbox if one was killed; Ray replaces one that crashed. Workers repeat their requests."""
        with self._replacing:
            if self._closing.wait(0.2) or mailbox is not self._mailbox:
                return
            if not isinstance(error, ray.exceptions.ActorDiedError):
                logger.debug('the mailbox does not answer: %s', first_line(error))
                return
            logger.warning('the mailbox was lost, another one is started: %s', first_line(error))
            try:
                self._start_mailbox()
            except (RLFrameError, ray.exceptions.RayError) as failure:
                logger.warning('it does not start: %s', failure)

    def _answered(self, letter: Letter) -> Answer:
        try:
            envelope = from_body(letter.body)
            try:
                sent = self.answer(envelope, lambda: self._payload(letter))
            except MessageError as error:
                sent = self.keep(envelope, refusal(error))
        except OSError as error:
            return Answer(letter.number, b'', None, f'the coordinator is busy: {error}')
        except MessageError as error:
            return Answer(letter.number, b'', None, str(error))
        return Answer(letter.number, *sent)

    def _payload(self, letter: Letter) -> Any:
        try:
            return unseal(letter.parcel, FETCH_SECONDS)
        except ray.exceptions.RayError as error:
            raise MessageError(f'the payload was lost: {first_line(error)}', where='payload') from error
