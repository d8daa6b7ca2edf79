"""Supervisor: calls workers in a place, never waits for one without a limit, and replaces those that are lost."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from rlframe.data.timestep import Array
from rlframe.errors import WorkerLostError
from rlframe.remote.places import LostError, Place
from rlframe.remote.worker import Failure, raise_failure

logger = logging.getLogger('rlframe.remote')

TICK = 0.5
"""Seconds between two calls of ``on_tick`` while a supervisor waits."""
PAUSE = 0.5
"""Seconds before a lost worker is replaced."""
CLOSE_SECONDS = 5.0
"""Time for workers to close what they hold before they are killed."""


class Limits(NamedTuple):
    """How long workers may take, and how many may be lost."""

    start_seconds: float = math.inf
    """Longest time for a worker to start."""
    call_seconds: float = math.inf
    """Longest time for a worker to answer a call, from when it begins it."""
    restarts: int = 0
    """Losses within the window that are survived."""
    window: float = math.inf
    """Seconds in which ``restarts`` counts."""
    where: str = ''
    """Config key of ``restarts``, for errors."""
    where_start: str = ''
    """Config key of ``start_seconds``."""
    each: bool = False
    """Whether ``restarts`` counts for each worker by itself, not for all together."""

    @classmethod
    def of(cls, options: Mapping[str, Any], call_seconds: float, section: str) -> Limits:
        """Returns those of options, such as ``start_timeout``, in a section of the config; '': they are arguments."""
        place = f'{section}.' if section else ''
        return cls(
            start_seconds=options['start_timeout'],
            call_seconds=call_seconds,
            restarts=options['max_actor_restarts'],
            window=options['restart_window'],
            where=f'{place}max_actor_restarts',
            where_start=f'{place}start_timeout',
        )


class Losses:
    """The losses of workers within a window of time; more of them than a limit end the run.

    Args:
        restarts: Losses within the window that are survived.
        window: Seconds.
        where: Config key of ``restarts``, for the error.
        remedy: What to do about them.
    """

    def __init__(self, restarts: int, window: float = math.inf, where: str = '', remedy: str = '') -> None:
        self._restarts, self._window = restarts, window
        self._where, self._remedy = where, remedy
        self._seen: deque[tuple[float, str]] = deque()  # time and cause of each

    def add(self, cause: str, now: float) -> None:
        """Counts a loss.

        Args:
            cause: Who was lost, and of what.
            now: Seconds of a clock.

        Raises:
            WorkerLostError: If there were too many; with all causes.
        """
        self._seen.append((now, cause))
        while now - self._seen[0][0] > self._window:
            self._seen.popleft()
        count = len(self._seen)
        if count <= self._restarts:
            return
        within = '' if self._window == math.inf else f' within {self._window:g} s'
        listed = '\n'.join(f'  {each}' for _, each in self._seen)
        raise WorkerLostError(
            f'{count} worker{"s were" if count > 1 else " was"} lost{within}, {self._restarts} may be replaced:\n{listed}',
            where=self._where,
            remedy=self._remedy,
        )


@dataclasses.dataclass(eq=False)
class Call:
    """A call of a method of a worker, and its result."""

    number: int
    """Number of the call, increasing over all workers."""
    rank: int
    method: str
    args: tuple[Any, ...]
    """Arguments; references to what the place has stored are passed on as such."""
    seconds: float
    """Time limit, from when the worker begins it."""
    size: int = 0
    """Expected amount of data, in training samples or episodes."""
    is_wanted: bool = True
    """Whether the result is to be delivered."""
    ticket: Any = None
    """What the place knows the call by once it is sent."""
    data: Any = None
    """The data that come with the answer, or a reference to them."""
    value: Any = None
    lost: str = ''
    """Reason for a missing value; empty if there is a value."""


@dataclasses.dataclass(eq=False)
class Slot:
    """The slot of a worker, kept when the worker is replaced."""

    rank: int
    incarnation: int = 0
    """Number of workers lost here before."""
    link: Any = None
    """The worker, as its place knows it; None while it is to be started."""
    due: float = 0.0
    """When the next worker may be started."""
    facts: Any = None
    """The worker's report when it was ready; None before."""
    calls: list[Call] = dataclasses.field(default_factory=list)
    """Pending calls, in the order of execution; sent once there is a worker."""
    deadline: float = math.inf
    """Deadline of the first of them, which the worker is working on."""


class Supervisor:
    """Starts the workers of a place, calls them, and replaces those that die or do not answer in time.

    Args:
        place: Where the workers run.
        make: Creates the parts in a worker, from rank and incarnation; may be changed until the workers start.
        count: Number of workers.
        limits: How long they may take, and how many may be lost.
        remedy: What to do about losses, for the error.

    Raises:
        ResourceError: If the place lacks the resources that the workers need.
        SerializationError: If ``make`` cannot be sent to a worker; with the path to it.
    """

    def __init__(self, place: Place, make: Any, count: int, limits: Limits, remedy: str = '') -> None:
        self.place, self.make = place, make
        self.slots: dict[int, Slot] = {}
        """The slots, by rank."""
        self.next_rank = count
        """Rank of the next worker: ranks are never reused, as seeds and versions of weights depend on them."""
        self.restarts = 0
        """Number of workers that replaced a lost one."""
        self.is_broken = False
        """Whether too many workers were lost to go on, or one does not start."""
        self._limits = limits
        # by rank if they count for each worker, else under 0
        self._losses: dict[int, Losses] = defaultdict(
            lambda: Losses(limits.restarts, limits.window, limits.where, remedy)
        )
        self._done: deque[Call] = deque()
        self._numbers = itertools.count()
        self._closed = False
        place.pack(make)  # raises here, before the place does anything, if it cannot be sent
        try:
            place.reserve(range(count))
        except BaseException:
            place.close()
            raise

    # starting and ending

    def begin(self) -> None:
        """Starts all workers unless they were started, without waiting for them."""
        if not self.slots:
            self._begin(range(self.next_rank))

    def start(self) -> None:
        """Starts all workers unless they were started, and waits until they are ready."""
        self.begin()
        self._wait_for(self.slots)

    def add(self, own: Sequence[Any], make: Any) -> list[int]:
        """Starts additional workers, waits until all are ready and returns their ranks; if one fails, none is added.

        Args:
            own: Options of each, in addition to those of the place.
            make: Creates the parts in them, and from now on in all workers.

        Raises:
            ResourceError: If the place lacks the resources that they need; with the numbers.
            Exception: As raised by ``start``.
        """
        self.check_open()
        ranks = list(range(self.next_rank, self.next_rank + len(own)))
        self.place.reserve(ranks, own)
        self.next_rank += len(own)
        before = self.make
        self.make = make
        try:
            self._begin(ranks)
            self._wait_for(ranks)
        except BaseException:
            self.make = before
            for rank in ranks:
                self.remove(rank)
            raise
        return ranks

    def _begin(self, ranks: Sequence[int]) -> None:
        self.slots |= {rank: Slot(rank) for rank in ranks}
        self.place.take_make(self.place.pack(self.make))
        for rank in ranks:
            self._create(self.slots[rank])

    def _wait_for(self, ranks: Iterable[int]) -> None:
        while any(self.slots[rank].facts is None for rank in ranks):
            self.look()

    def _create(self, slot: Slot) -> None:
        try:
            slot.link = self.place.start(slot.rank, slot.incarnation)
        except LostError as error:
            self._count(slot, f'did not start: {error}')
            return
        slot.calls.insert(0, Call(next(self._numbers), slot.rank, 'launch', (), self._limits.start_seconds))
        for call in slot.calls:
            self.place.send(slot.link, call)
        self._begin_next(slot)

    def remove(self, rank: int) -> None:
        """Closes a worker; results of its pending calls are not delivered."""
        slot = self.slots.pop(rank)
        self._done = deque(call for call in self._done if call.rank != rank)
        if slot.link is not None:
            self.place.end([slot.link], CLOSE_SECONDS)
        self.place.release(rank)

    def check_open(self) -> None:
        """Raises ``ValueError`` after ``close``."""
        if self._closed:
            raise ValueError(f'the workers ({self.place.kind.role}, {self.place.name}) have been shut down')

    def close(self) -> None:
        """Ends all workers; may be called twice."""
        if self._closed:
            return
        self._closed = True
        links = [slot.link for slot in self.slots.values() if slot.link is not None]
        self.place.end(links, CLOSE_SECONDS)
        self._done.clear()
        for slot in self.slots.values():
            slot.calls.clear()
        self.place.close()

    # facts

    @property
    def ranks(self) -> list[int]:
        """Ranks of the workers, in order."""
        return sorted(self.slots)

    @property
    def ready(self) -> list[int]:
        """Ranks of the workers that have started and were not lost since, in order."""
        return [rank for rank in self.ranks if self.slots[rank].facts is not None]

    @property
    def facts(self) -> Any:
        """The report of a worker that is ready."""
        return next(slot.facts for slot in self.slots.values() if slot.facts is not None)

    @property
    def calls(self) -> list[Call]:
        """The calls whose results were not taken yet."""
        pending = [call for slot in self.slots.values() for call in slot.calls]
        return [*(call for call in pending if call.method != 'launch' and call.is_wanted), *self._done]

    @property
    def load(self) -> Counter[int]:
        """Number of requests that each worker has pending or finished without the result having been taken."""
        return Counter(call.rank for call in self.calls)

    @property
    def under_way(self) -> int:
        """Expected amount of all requests not yet taken, in training samples or episodes."""
        return sum(call.size for call in self.calls)

    def incarnation(self, rank: int) -> int:
        """Returns the number of workers lost before at this rank."""
        return self.slots[rank].incarnation

    def state_dict(self) -> dict[str, Any]:
        """Returns the next rank and each worker's incarnation, which determine seeds."""
        return {
            'next_rank': self.next_rank,
            'incarnations': {str(rank): slot.incarnation for rank, slot in self.slots.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Gives future workers other seeds than those that existed when ``state_dict()`` was called."""
        self.next_rank = max(self.next_rank, state.get('next_rank', 0))
        for rank, incarnation in state.get('incarnations', {}).items():
            if int(rank) in self.slots:
                slot = self.slots[int(rank)]
                slot.incarnation = max(slot.incarnation, incarnation)

    # calls

    def put(self, pieces: Sequence[Array]) -> tuple[Any, Sequence[Array]]:
        """Stores weights for the workers, and returns what a call brings them by, and the stored copy."""
        return self.place.put(pieces)

    def ask(self, rank: int, method: str, *args: Any, size: int = 0) -> Call:
        """Calls a method of a worker, without waiting for the result; raises ``ValueError`` if it has none of this name."""
        self.check_open()
        if not hasattr(self.place.kind, method):
            raise ValueError(f'{self.place.who(rank)} does not know the command {method!r}')
        call = Call(next(self._numbers), rank, method, args, self._limits.call_seconds, size)
        slot = self.slots[rank]
        slot.calls.append(call)
        if slot.link is not None:
            self.place.send(slot.link, call)
        if len(slot.calls) == 1:
            self._begin_next(slot)
        return call

    def ask_all(self, method: str, args: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Calls a method with the arguments of each rank, again if a worker is lost, and returns the answers by rank.

        No call may be pending. All answers are None if too many workers were lost to continue.
        """
        if self.is_broken:
            return dict.fromkeys(args)
        self.check_open()
        for rank, given in args.items():
            self.ask(rank, method, *given)
        values: dict[int, Any] = {}
        while len(values) < len(args):
            call = self.wait()
            if call.lost:
                self.ask(call.rank, method, *call.args)
            else:
                values[call.rank] = call.value
        return dict(sorted(values.items()))

    def wait(self, on_tick: Callable[[], None] | None = None) -> Call:
        """Waits for the next call that has a result or was lost; if there are several, returns the earliest.

        Raises:
            WorkerLostError: If more workers were lost than may be replaced, with all causes, or one does not start in
                time.
            Exception: Any exception raised in a worker.
        """
        while not self._done:
            assert any(slot.calls for slot in self.slots.values()), 'nothing was asked'
            self.look()
            if on_tick is not None:
                on_tick()
        return self._done.popleft()

    def poll(self) -> Call | None:
        """Returns a call that has ended, if there is one, without waiting; raises like ``wait``."""
        if not self._done:
            self.look(0.0)
        return self._done.popleft() if self._done else None

    def get(self, call: Call) -> Any:
        """Returns the data that came with the answer to a call; None if they were lost with their worker."""
        try:
            return self.place.data(call)
        except LostError as error:
            self.count_loss(f'the data of {self.place.who(call.rank)} were lost: {error}', call.rank)
            return None

    def abandon(self) -> None:
        """Forgets the pending calls: their results are not delivered."""
        self._done.clear()
        for call in self.calls:
            call.is_wanted = False

    # one look at everything

    def look(self, seconds: float = TICK) -> None:
        """Starts due workers, receives answers for some time, and gives up calls that are too late."""
        now = self.place.clock()
        for slot in self.slots.values():
            if slot.link is None and now >= slot.due:
                self._create(slot)
        sent = [call for slot in self.slots.values() if slot.link is not None for call in slot.calls]
        if not sent:
            self.place.pause(seconds / 10)
            return
        answered = self.place.wait(sent, seconds)
        now = self.place.clock()
        for call in sorted(answered, key=attrgetter('number')):
            if call in self.slots[call.rank].calls:
                self._take(call)
        for slot in self.slots.values():
            if slot.link is not None and now > slot.deadline:
                self._give_up(slot)

    def _begin_next(self, slot: Slot) -> None:
        """Records that a worker starts its next call now."""
        slot.deadline = self.place.clock() + slot.calls[0].seconds if slot.calls else math.inf

    def _take(self, call: Call) -> None:
        slot = self.slots[call.rank]
        try:
            value = self.place.answer(call)
        except LostError as error:
            self.lose(call.rank, f'in {call.method}: {error}')
            return
        slot.calls.remove(call)
        self._begin_next(slot)
        if not call.is_wanted:
            return
        if isinstance(value, Failure):
            raise_failure(value, self.place.who(call.rank))
        if call.method == 'launch':
            slot.facts = value
        else:
            call.value = value
            self._done.append(call)

    # losses

    def _give_up(self, slot: Slot) -> None:
        """Counts a worker that does not answer in time as lost; one that does not start ends the run."""
        call = slot.calls[0]
        if call.method == 'launch':
            self.is_broken = True
            lacking = self.place.lacking()
            raise WorkerLostError(
                f'{self.place.who(slot.rank)} did not start within {call.seconds:g} s'
                + (f'; {lacking}' if lacking else ''),
                where=self._limits.where_start,
                remedy='Raise it if the envs start slowly, or if other nodes will join.',
            )
        self.lose(slot.rank, f'no answer to {call.method} within {call.seconds:g} s')

    def lose(self, rank: int, cause: str) -> None:
        """Replaces a worker, unless it waits to be, and counts it as lost; raises like ``count_loss``."""
        slot = self.slots[rank]
        if slot.link is None:
            return
        how = 'did not start' if slot.facts is None else 'was lost'
        self._kill(slot, cause)
        self._count(slot, f'{how}: {cause}')

    def _count(self, slot: Slot, what: str) -> None:
        """Counts the end of a worker, and plans another one; raises like ``count_loss``."""
        cause = f'{self.place.who(slot.rank)} {what}'
        self.count_loss(cause, slot.rank)
        self._plan(slot)
        self.restarts += 1
        logger.warning('%s; another one starts in %g s', cause, PAUSE)

    def replace(self, rank: int, cause: str) -> None:
        """Kills a worker, whose calls are lost by that, and starts another one a little later; it is not counted."""
        self._kill(self.slots[rank], cause)
        self._plan(self.slots[rank])

    def _kill(self, slot: Slot, cause: str) -> None:
        self.place.end([slot.link], 0.0)
        slot.link = None
        slot.facts = None
        calls = slot.calls
        slot.calls = []
        slot.deadline = math.inf
        for call in calls:
            if call.method != 'launch' and call.is_wanted:
                call.lost = cause
                self._done.append(call)

    def _plan(self, slot: Slot) -> None:
        """Decides when another worker is started."""
        slot.incarnation += 1
        slot.due = self.place.clock() + PAUSE

    def count_loss(self, cause: str, rank: int) -> None:
        """Counts a loss of a worker, described with its cause.

        Raises:
            WorkerLostError: If there were too many; with all causes.
        """
        try:
            self._losses[rank if self._limits.each else 0].add(cause, self.place.clock())
        except WorkerLostError:
            self.is_broken = True
            raise
