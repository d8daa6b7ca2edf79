"""The transport ``ray``: a coordinator is reached by a named actor, whose methods carry the messages."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rlframe.backend.ray.options import RAY_INIT
from rlframe.backend.ray.session import ClusterWatch, RaySession, cause_of, connect
from rlframe.errors import (
    ConfigError,
    CoordinatorLostError,
    MessageError,
    NoRoomError,
    RequestRefusedError,
    ResourceError,
)
from rlframe.parallel.transport.answering import AnsweringServer, Newest, refusal
from rlframe.parallel.transport.base import (
    Envelope,
    Handler,
    Reply,
    Transport,
    TransportConfig,
    decode,
    encode,
)
from rlframe.parallel.transport.flask_fs_folder import Packed, pack, unpack
from rlframe.parallel.transport.messages import NAME
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.utils.field import Section, option
from rlframe.utils.lazy import LazyModule
from rlframe.utils.secrets import shown_address

ray = LazyModule('ray')
logger = logging.getLogger('rlframe.transport')

NAMESPACE = 'rlframe'
"""Namespace of all mailboxes in a cluster."""
INLINE = 2**16
"""Bytes of the largest payload that travels with its message; Ray moves arguments above 100 KB to its store."""
THREADS = 16
"""Threads that take requests from the mailbox; a repeated one may occupy its thread for some seconds."""
POLL_SECONDS = 10.0
"""How long a thread waits for the next request before it asks again."""
SERVER_GRACE, GRACE_SECONDS = 5.0, 0.5
"""How much later than asked for the mailbox may answer the coordinator, and a worker."""
START_SECONDS = 120.0
"""How long the mailbox may take to start."""
FETCH_SECONDS = 60.0
"""How long a payload may take to come from another node."""
GONE_SECONDS = 20.0
"""How long a cluster may be silent; Ray ends a process about a minute after the end of its cluster, without a word."""
ATTEMPT_SECONDS = 10.0
"""How long one attempt waits for a reply before the request is repeated."""
SLICE_SECONDS = 0.5
"""How long a request waits before it looks whether the connection was closed."""
MOST_ASKS = 10_000
"""Requests that wait in the mailbox at the same time; those of the server must never be refused."""

Parcel: TypeAlias = 'bytes | list[Any] | None'
"""A payload: its bytes, or a list with the reference to it, which Ray does not resolve within a list."""


class Letter(NamedTuple):
    """A request on its way to the coordinator."""

    number: int
    """Number of the letter, for the answer."""
    tree: Mapping[str, Any]
    """The encoded envelope."""
    parcel: Parcel


class Answer(NamedTuple):
    """A reply on its way to a worker."""

    number: int
    """Number of the letter that it answers."""
    tree: Mapping[str, Any] | None
    """The encoded envelope; None if the coordinator asks to repeat the request, and ``reason`` says why."""
    parcel: Parcel
    reason: str = ''


class Sent(NamedTuple):
    """A reply as it is kept for repeated requests; Ray frees its payload when it is dropped."""

    tree: Mapping[str, Any]
    parcel: Parcel


class Mailbox:
    """Holds letters until a thread of the coordinator takes them, and their senders until they are answered.

    All methods run in one event loop, so nothing here needs a lock.
    """

    def __init__(self) -> None:
        self._letters: asyncio.Queue[Letter] = asyncio.Queue()
        self._senders: dict[int, asyncio.Future[Answer]] = {}
        self._numbers = itertools.count()

    async def ask(self, tree: Mapping[str, Any], parcel: Parcel, seconds: float) -> Answer | None:
        """Delivers a request of a worker and returns the reply; None if there is none in so many seconds."""
        number = next(self._numbers)
        sender = self._senders[number] = asyncio.get_running_loop().create_future()
        self._letters.put_nowait(Letter(number, tree, parcel))
        try:
            return await asyncio.wait_for(sender, seconds)
        except TimeoutError:
            return None
        finally:
            del self._senders[number]

    async def exchange(self, answer: Answer | None, seconds: float) -> Letter | None:
        """Delivers an answer, if there is one, and returns the next letter; None if there is none in time."""
        await self.reply(answer)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    letter = await self._letters.get()
                    if letter.number in self._senders:  # otherwise its sender has stopped waiting
                        return letter
        return None

    async def reply(self, answer: Answer | None) -> None:
        """Delivers an answer, if there is one."""
        if answer is None:
            return
        sender = self._senders.get(answer.number)
        if sender is not None and not sender.done():
            sender.set_result(answer)


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
            f'the object store of Ray has no room for {packed.nbytes:,} bytes: {cause_of(error)}',
            where='object_store_memory',
            remedy='Give the cluster a larger object store, or send smaller parts.',
        ) from error


def _sealed(payload: Any) -> Parcel:
    return None if payload is None else seal(pack(payload))


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
    data = np.concatenate(parts)
    return unpack(lambda: data, 'payload')


class RayServerConfig(Section):
    """Options of ``RayServer``."""

    ray_init_config: dict[str, Any] = RAY_INIT
    name: str | None = option(
        None,
        check=lambda value: '' if NAME.fits(value) else NAME.name,
        doc='name of the mailbox; with one of its own, a coordinator that was restarted has the same address',
    )


class RayServer(AnsweringServer[Sent]):
    """Takes messages from a mailbox, an actor on its own node, and arrays from the object store.

    Args:
        cfg: Options.
    """

    _cfg: RayServerConfig

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(cfg)
        self._name = self._cfg.name or f'coordinator-{secrets.token_hex(8)}'
        self._address = ''
        self._session: RaySession | None = None
        self._mailbox: Any = None
        self._threads: list[threading.Thread] = []
        self._closing, self._newest = threading.Event(), Newest(_sealed)

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
        assert self._address, 'the server has not started'
        return self._address

    def connect(self, cfg: Mapping[str, Any] | None = None) -> Transport:
        return RayTransport(cfg, self.address)

    def close(self) -> None:
        """Ends the mailbox, and Ray if this server started it; may be called twice."""
        super().close()
        self._closing.set()
        session, self._session = self._session, None
        if session is None:
            return
        self._newest.clear()
        if self._mailbox is not None and ray.is_initialized():
            ray.kill(self._mailbox)
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(SERVER_GRACE)
        self._mailbox = None
        session.close()

    def keep(self, envelope: Envelope, reply: Reply) -> Sent:
        """Returns the encoded message, with a large payload in the object store."""
        tree = encode(Envelope('', envelope.seq, reply.message, reply.payload is not None))
        decode(tree)  # raises here if the worker would refuse it
        payload = reply.payload
        return Sent(tree, self._newest.get(reply.shared, payload) if reply.shared else _sealed(payload))

    def _start_mailbox(self) -> None:
        here = ray.get_runtime_context()
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
            ray.get(self._mailbox.reply.remote(None), timeout=START_SECONDS)
        except ray.exceptions.RayError as error:
            raise ResourceError(
                f'the mailbox of the coordinator did not start in {START_SECONDS:g} s: {cause_of(error)}',
                where='ray_init_config',
                remedy='The log files of the Ray session say more.',
            ) from error
        self._address = f'ray://{self._name}@{here.gcs_address}'

    def _serve(self) -> None:
        """Answers letters until the server is closed."""
        answer: Answer | None = None
        mailbox = self._mailbox
        while not self._closing.is_set():
            try:
                asked, answer = mailbox.exchange.remote(answer, POLL_SECONDS), None
                letter: Letter | None = ray.get(asked, timeout=POLL_SECONDS + SERVER_GRACE)
            except ray.exceptions.RayError as error:  # Ray starts it again; workers repeat their requests
                logger.debug('the mailbox does not answer: %s', cause_of(error))
                self._closing.wait(0.2)
                continue
            answer = None if letter is None else self._answered(letter)
            del letter, asked  # which hold a payload
            if answer is not None and isinstance(answer.parcel, list):
                mailbox.reply.remote(answer)  # as an argument of a long call, it would stay in the store
                answer = None

    def _answered(self, letter: Letter) -> Answer:
        try:
            envelope = decode(letter.tree)
            try:
                sent = self.answer(envelope, lambda: self._payload(letter.parcel))
            except MessageError as error:
                sent = self.keep(envelope, refusal(error))
        except (OSError, MessageError) as error:
            return Answer(letter.number, None, None, str(error))
        return Answer(letter.number, *sent)

    def _payload(self, parcel: Parcel) -> Any:
        try:
            return unseal(parcel, FETCH_SECONDS)
        except ray.exceptions.RayError as error:
            raise MessageError(f'the payload was lost: {cause_of(error)}', where='payload') from error


class RayTransportConfig(TransportConfig):
    """Options of ``RayTransport``."""

    ray_init_config: dict[str, Any] = RAY_INIT


@TRANSPORT_REGISTRY.register('ray')
class RayTransport(Transport):
    """Sends messages through the mailbox of a coordinator, and arrays through the object store of the cluster.

    It enters the cluster with its first request, unless this process belongs to one.

    Args:
        cfg: Options.
        address: Address of the coordinator: ``ray://name@host:port``.
    """

    _cfg: RayTransportConfig
    server_cls = RayServer

    def __init__(self, cfg: Mapping[str, Any] | None, address: str) -> None:
        self._name, self._cluster = parse_address(address)
        super().__init__(cfg, address)
        self._watch, self._entering = ClusterWatch(self._cluster, GONE_SECONDS), threading.Lock()
        self._ray: RaySession | None = None
        self._mailbox: Any = None

    def pack(self, envelope: Envelope, payload: Any) -> Packed | None:
        """Returns the payload, which is not copied yet."""
        return None if payload is None else pack(payload)

    def carry(self, envelope: Envelope, packed: Packed | None, seconds: float) -> Reply:
        end, wait = monotonic() + seconds, min(seconds, ATTEMPT_SECONDS)
        mailbox = self._found()
        try:
            parcel = None if packed is None else seal(packed)
            answer = self._awaited(mailbox.ask.remote(encode(envelope), parcel, wait), wait)
            if answer.tree is None:
                raise ConnectionError(answer.reason)
            # a fetch may hang: half of the time is left for another one
            left = max(end - monotonic(), 0.0)
            some = min(left, max(left / 2, ATTEMPT_SECONDS))
            return Reply(self._read(answer.tree).message, unseal(answer.parcel, some))
        except ray.exceptions.RayError as error:
            self._mailbox = None  # it is found anew, as there may be another one
            raise ConnectionError(f'the mailbox of the coordinator failed: {cause_of(error)}') from error
        except TimeoutError:
            self._mailbox = None
            raise

    def close(self) -> None:
        """Ends the connection, and that of this process with the cluster if it was made for it."""
        super().close()
        end = monotonic() + 2 * SLICE_SECONDS
        while self._unanswered and monotonic() < end:  # Ray must not end under them
            time.sleep(0.01)
        with self._entering:
            session, self._ray, self._mailbox = self._ray, None, None
            if session is not None:
                session.close()

    def _found(self) -> Any:
        """Returns the mailbox, after entering the cluster if necessary.

        Raises:
            OSError: If it cannot be reached now.
            CoordinatorLostError: If the cluster is gone.
            ConfigError: If Ray does not accept its arguments.
        """
        with self._entering:
            if self._closed.is_set():
                raise ConnectionError('the connection was closed')
            if self._mailbox is None or not ray.is_initialized():
                self._enter()
                self._mailbox = self._named()
            return self._mailbox

    def _enter(self) -> None:
        silence = self._watch.look()
        if self._watch.is_gone:
            raise CoordinatorLostError(
                f'the Ray cluster of the coordinator is gone: {silence}',
                where=self._where,
                remedy='Is it running, and is this its address?',
            )
        if silence:
            raise ConnectionError(silence)
        is_inside = ray.is_initialized()
        if self._ray is not None and is_inside:
            return
        if self._ray is not None:
            self._ray.close()
        given = {'configure_logging': False, **self._cfg.ray_init_config, 'address': self._cluster}
        try:
            self._ray = connect({} if is_inside else given, 'ray_init_config')
        except ResourceError as error:
            raise ConnectionError(f'{error.message}. {error.remedy}') from error

    def _named(self) -> Any:
        try:
            return ray.get_actor(self._name, namespace=NAMESPACE)
        except ValueError as error:
            here = ray.get_runtime_context().gcs_address
            other = '' if here == self._cluster else f'; this process belongs to the cluster at {here}'
            raise ConnectionError(f'the cluster has no coordinator {self._name!r}{other}') from error

    def _awaited(self, asked: Any, seconds: float) -> Answer:
        """Returns the answer of the mailbox.

        Raises:
            OSError: If none came in time, or the connection was closed.
        """
        start = monotonic()
        while not self._closed.is_set():
            end = min(start + seconds + GRACE_SECONDS, max(start, self._hurried_at) + self._patience)
            left = end - monotonic()
            with suppress(ray.exceptions.GetTimeoutError):
                answer: Answer | None = ray.get(asked, timeout=max(min(left, SLICE_SECONDS), 0.0))
                if answer is not None:
                    return answer
                break
            if left <= 0.0:
                break
        raise TimeoutError(f'no reply came in {seconds:g} s')

    def _read(self, tree: Any) -> Envelope:
        try:
            return decode(tree)
        except MessageError as error:
            raise RequestRefusedError(
                f'what answers there is no coordinator of this rlframe: {error}',
                where=self._where,
                remedy='Check the address, and install the same version of rlframe everywhere.',
            ) from error
