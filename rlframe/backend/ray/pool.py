"""ActorPool: calls K Ray actors, never waits for one without a limit, and replaces those that are lost."""

from __future__ import annotations

import itertools
import logging
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError, RayTaskError

from rlframe.backend.ray.actor import (
    CollectorActor,
    Facts,
    Failure,
    RemoteActor,
    components_of_script,
    raise_failure,
)
from rlframe.backend.ray.options import remote_config_of
from rlframe.backend.ray.session import actor_resources, cause_of, connect
from rlframe.errors import ActorLostError, RLFrameError
from rlframe.utils.serialize import to_bytes

FIRST_BACKOFF, LONGEST_BACKOFF = 0.5, 30.0
"""Seconds before a lost actor is replaced; each further loss in the window doubles them."""


class Call:
    """A call of a method of an actor.

    Args:
        number: Number of the call, increasing over all actors.
        rank: Which actor.
        method: Name of the method.
        args: Arguments; object references are passed on as such.
        seconds: Time limit, in seconds.
        size: Expected amount of data, in training samples or episodes.
    """

    def __init__(
        self, number: int, rank: int, method: str, args: tuple[Any, ...], seconds: float, size: int = 0
    ) -> None:
        self.number, self.rank, self.method, self.args = number, rank, method, args
        self.seconds, self.size = seconds, size
        self.ref: Any = None
        self.data: Any = None
        self.is_wanted = True
        """Whether the result is to be delivered."""


class Answer(NamedTuple):
    """The result of a call."""

    call: Call
    value: Any = None
    data: Any = None
    """Reference to the data of ``collect``."""
    lost: str = ''
    """Reason for a missing value; empty if there is a value."""


class Slot:
    """The slot of an actor, kept when the actor is replaced.

    Args:
        rank: Rank of the actor.
        options: Resources of the actor.
    """

    def __init__(self, rank: int, options: Mapping[str, Any]) -> None:
        self.rank, self.options = rank, options
        self.incarnation = 0
        self.actor: Any = None
        self.due = 0.0
        """When the next actor may be started."""
        self.facts: Facts | None = None
        """The actor's report when it was ready; None before."""
        self.backoff = FIRST_BACKOFF
        self.late_starts = 0
        """Number of consecutive actors that took too long to start here."""
        self.calls: list[Call] = []
        """Pending calls, in the order of execution; sent once there is an actor."""
        self.deadline = float('inf')
        """Deadline of the first of them, which the actor is working on."""

    def begin_next(self) -> None:
        """Records that the actor starts its next call now."""
        self.deadline = time.monotonic() + self.calls[0].seconds if self.calls else float('inf')


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


SECTION = 'policy.collect.collector'
"""Dotted key of the options in a config."""
logger = logging.getLogger('rlframe.ray')

TICK = 0.5
"""Seconds between two looks at the deadlines."""
TO_A_MODULE = 'Move the registered class to a module of its own, and list that module in import_names.'
"""Remedy for a class of the main program that cannot be sent to actors."""
CLOSE_SECONDS = 5.0
"""Time for actors to close their envs before they are killed."""


class ActorPool:
    """Starts actors, calls them, and replaces those that die or do not answer in time.

    Args:
        cfg: Options of a collector, of which those of ``RAY_OPTIONS`` are used.
        kind: The kind of worker in the actors.
        section: Config key of the options.
        make: Creates the parts in an actor; can be passed to ``start`` instead.

    Raises:
        ResourceError: If no Ray answers at the given address, or it lacks the resources that the actors need.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        kind: type[RemoteActor] = CollectorActor,
        section: str = SECTION,
        make: Any = None,
    ) -> None:
        self._cfg, self._section = cfg, section
        self.make = make
        """Creates the parts in an actor; may be changed until the actors start."""
        self.slots: dict[int, Slot] = {}
        """The slots, by rank."""
        self.next_rank: int = cfg['num_collectors']
        """Rank of the next actor: ranks are never reused, as seeds and versions of weights depend on them."""
        self.restarts = 0
        """Number of actors that replaced a lost one."""
        self._answers: deque[Answer] = deque()
        self._losses = Losses(cfg, section)
        self._numbers = itertools.count()
        self._given: tuple[Any, ...] = ()  # references to ``make`` and its components, pickled
        self._closed = False
        self._session = connect(cfg['ray_init_config'], self.key('ray_init_config'))
        self._remote: Any = ray.remote(kind)
        self._first = self._options(range(cfg['num_collectors']))
        try:
            self._reserve(self._first)
        except BaseException:
            self._session.close()
            raise

    def start(self, make: Any = None) -> None:
        """Starts all actors and waits until they are ready.

        Args:
            make: Creates the parts in an actor, like ``MakeParts``.

        Raises:
            SerializationError: If ``make`` cannot be sent to actors.
            ActorLostError: If they die during the start, or take too long.
            Exception: Any exception raised by the constructor of an env, a policy or a collector.
        """
        self.make = self.make if make is None else make
        self._start(self._first)

    def add(self, remote_configs: Sequence[Mapping[str, Any]], make: Any = None) -> list[int]:
        """Starts additional actors, waits until all are ready and returns their ranks; if one fails, none is added.

        Args:
            remote_configs: Resources of each, in addition to those in the options.
            make: Creates the parts in them, and from now on in all actors; by default, as for the first ones.

        Raises:
            ResourceError: If the cluster lacks the resources that they need; with the numbers.
            Exception: As raised by ``start``.
        """
        self.check_open()
        options = self._options(range(self.next_rank, self.next_rank + len(remote_configs)))
        options = {rank: {**options[rank], **own} for rank, own in zip(options, remote_configs, strict=True)}
        self._reserve(options)
        self.next_rank += len(remote_configs)
        before, self.make = self.make, self.make if make is None else make
        try:
            self._start(options)
        except BaseException:
            self.make = before
            for rank in options:
                self.remove(rank)
            raise
        return list(options)

    def _options(self, ranks: Iterable[int]) -> dict[int, dict[str, Any]]:
        return {rank: remote_config_of(self._cfg, rank) for rank in ranks}

    def _reserve(self, options: Mapping[int, Mapping[str, Any]]) -> None:
        demands = [actor_resources(own) for own in options.values()]
        self._session.require(demands, self._section or 'num_collectors')

    def _start(self, options: Mapping[int, Mapping[str, Any]]) -> None:
        self.slots |= {rank: Slot(rank, own) for rank, own in options.items()}
        components = to_bytes(components_of_script(), 'components', TO_A_MODULE)
        self._given = ray.put(to_bytes(self.make, 'make')), ray.put(components)
        for rank in options:
            self._create(self.slots[rank])
        while any(self.slots[rank].facts is None for rank in options):
            self._look()

    def remove(self, rank: int) -> None:
        """Closes an actor; results of its pending calls are not delivered."""
        slot = self.slots.pop(rank)
        self._answers = deque(answer for answer in self._answers if answer.call.rank != rank)
        if slot.actor is not None:
            ray.wait([slot.actor.close.remote()], timeout=CLOSE_SECONDS)
            self._kill(slot)
        self._session.release([actor_resources(slot.options)])

    @property
    def ranks(self) -> list[int]:
        """Ranks of the actors, in order."""
        return sorted(self.slots)

    def key(self, name: str) -> str:
        """Returns the config key of an option."""
        return f'{self._section}.{name}' if self._section else name

    @property
    def facts(self) -> Facts:
        """The report of the actors, which is the same for all."""
        return next(slot.facts for slot in self.slots.values() if slot.facts is not None)

    @property
    def is_broken(self) -> bool:
        """Whether too many actors were lost to go on, or one can never start."""
        return self._losses.is_over

    @property
    def calls(self) -> list[Call]:
        """The pending calls."""
        return [
            call
            for slot in self.slots.values()
            for call in slot.calls
            if call.method != 'launch' and call.is_wanted
        ]

    @property
    def _is_asked(self) -> bool:
        return any(slot.calls for slot in self.slots.values())

    @property
    def load(self) -> Counter[int]:
        """Number of requests that each actor has pending or finished without the result having been taken."""
        return Counter(call.rank for call in [*self.calls, *(answer.call for answer in self._answers)])

    @property
    def under_way(self) -> int:
        """Expected amount of all requests not yet taken, in training samples or episodes."""
        return sum(call.size for call in self.calls) + sum(answer.call.size for answer in self._answers)

    def abandon(self) -> None:
        """Forgets the pending calls: their results are not delivered."""
        self._answers.clear()
        for call in self.calls:
            call.is_wanted = False

    def ask(self, rank: int, method: str, *args: Any, size: int = 0) -> Call:
        """Calls a method of an actor, without waiting for the result."""
        self.check_open()
        call = Call(next(self._numbers), rank, method, args, self._cfg['collect_timeout'], size)
        slot = self.slots[rank]
        slot.calls.append(call)
        if slot.actor is not None:
            self._send(slot, call)
        if len(slot.calls) == 1:
            slot.begin_next()
        return call

    def wait(self, on_tick: Callable[[], None] | None = None) -> Answer:
        """Waits for the next answer to any call; if there are several, returns the one to the earliest call.

        Raises:
            ActorLostError: If more actors were lost than the options allow, with all causes; or if an actor never
                starts.
            ResourceError: If an actor cannot start because the cluster no longer has the needed resources.
            Exception: Any exception raised in an actor.
        """
        while not self._answers:
            assert self._is_asked, 'nothing was asked'
            self._look()
            if on_tick is not None:
                on_tick()
        return self._answers.popleft()

    def poll(self) -> Answer | None:
        """Returns an answer if one is available, without waiting; raises like ``wait``."""
        if self._is_asked and not self._answers:
            self._look(0.0)
        return self._answers.popleft() if self._answers else None

    def ask_all(
        self, method: str, args: Mapping[int, tuple[Any, ...]], if_broken: Any = None
    ) -> dict[int, Any]:
        """Calls a method of actors, again if one is lost, and returns the answers by rank; no call may be pending.

        Args:
            method: Name of the method.
            args: Arguments for each rank.
            if_broken: The answer for all ranks if too many actors were lost to continue.
        """
        if self.is_broken:
            return dict.fromkeys(args, if_broken)
        self.check_open()
        for rank, given in args.items():
            self.ask(rank, method, *given)
        values: dict[int, Any] = {}
        while len(values) < len(args):
            answer = self.wait()
            if answer.lost:
                self.ask(answer.call.rank, method, *answer.call.args)
            else:
                values[answer.call.rank] = answer.value
        return dict(sorted(values.items()))

    def get(self, answer: Answer) -> Any:
        """Returns the data of an answer; None if they were lost with their actor."""
        try:
            return ray.get(answer.data, timeout=answer.call.seconds)
        except RayError as error:
            rank = answer.call.rank
            self._losses.count(rank, f'the data of Ray actor {rank} were lost: {cause_of(error)}')
            return None

    def state_dict(self) -> dict[str, Any]:
        """Returns the next rank and each actor's incarnation, which determine seeds."""
        return {
            'next_rank': self.next_rank,
            'incarnations': {str(rank): slot.incarnation for rank, slot in self.slots.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Gives future actors other seeds than those that existed when ``state_dict()`` was called."""
        self.next_rank = max(self.next_rank, state.get('next_rank', 0))
        for rank, incarnation in state.get('incarnations', {}).items():
            if slot := self.slots.get(int(rank)):
                slot.incarnation = max(slot.incarnation, incarnation)

    def check_open(self) -> None:
        """Raises ``ValueError`` after ``close``: any later use of Ray would start a new one."""
        if self._closed:
            raise ValueError('the Ray actors of this collector or evaluator have been shut down')

    def close(self) -> None:
        """Ends all actors, and Ray if it was started here; may be called twice."""
        if self._closed:
            return
        self._closed = True
        self._answers.clear()
        for slot in self.slots.values():
            slot.calls.clear()
        if ray.is_initialized():
            actors = [slot.actor for slot in self.slots.values() if slot.actor is not None]
            if refs := [actor.close.remote() for actor in actors if not self.is_broken]:
                ray.wait(refs, num_returns=len(refs), timeout=CLOSE_SECONDS)
            self._kill(*self.slots.values())
        self._session.close()

    def _kill(self, *slots: Slot) -> None:
        for slot in slots:
            if slot.actor is not None:
                ray.kill(slot.actor)

    # one look at everything

    def _look(self, seconds: float = TICK) -> None:
        """Starts due actors, receives answers for some time, and gives up calls that are too late."""
        now = time.monotonic()
        for slot in self.slots.values():
            if slot.actor is None and now >= slot.due:
                self._create(slot)
        sent = [call for slot in self.slots.values() if slot.actor is not None for call in slot.calls]
        if not sent:
            time.sleep(seconds / 10)
            return
        refs = [call.ref for call in sent]
        ray.wait(refs, num_returns=1, timeout=seconds)
        now = time.monotonic()
        there, _ = ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
        ready = set(there)  # in any order; the earliest call is taken first
        for call in sorted(sent, key=attrgetter('number')):
            if call.ref in ready and call in self.slots[call.rank].calls:
                self._take(call)
        for slot in self.slots.values():
            if slot.actor is not None and now > slot.deadline:
                self._give_up(slot)

    def _create(self, slot: Slot) -> None:
        options = {**slot.options, 'max_restarts': 0, 'max_task_retries': 0}
        path = [os.path.abspath(place) for place in sys.path]  # actors start in another folder
        slot.actor = self._remote.options(**options).remote(*self._given, slot.rank, slot.incarnation, path)
        seconds = self._cfg['start_timeout']
        slot.calls.insert(0, Call(next(self._numbers), slot.rank, 'launch', (), seconds))
        for call in slot.calls:
            self._send(slot, call)
        slot.begin_next()

    def _send(self, slot: Slot, call: Call) -> None:
        method = getattr(slot.actor, call.method)
        if call.method == 'collect':
            call.ref, call.data = method.options(num_returns=2).remote(*call.args)
        else:
            call.ref = method.remote(*call.args)

    def _take(self, call: Call) -> None:
        slot = self.slots[call.rank]
        value: Any = None
        try:
            value = ray.get(call.ref, timeout=call.seconds)
        except RayTaskError as error:
            value = Failure(b'', cause_of(error), str(error))
        except RayError as error:
            self._lose(slot, f'in {call.method}: {cause_of(error)}')
            return
        slot.calls.remove(call)
        slot.begin_next()
        if not call.is_wanted:
            return
        if isinstance(value, Failure):
            raise_failure(value, f'Ray actor {call.rank}')
        if call.method == 'launch':
            slot.facts, slot.late_starts = value, 0
        else:
            self._answers.append(Answer(call, value, call.data))

    # losses

    def _give_up(self, slot: Slot) -> None:
        """Counts an actor that does not answer in time as lost; one that can never start ends the run."""
        call = slot.calls[0]
        if call.method == 'launch':
            slot.late_starts += 1
            with self._losses.ending():
                demands = [actor_resources(other.options) for other in self.slots.values()]
                self._session.check_room(actor_resources(slot.options), demands, self.key('remote_configs'))
                self._losses.check_starts(slot.rank, slot.late_starts)
        self._lose(slot, f'no answer to {call.method} within {call.seconds:g} s')

    def _lose(self, slot: Slot, cause: str) -> None:
        """Counts an actor as lost, with all its calls; a replacement is started a little later."""
        self._kill(slot)
        was_ready, slot.actor, slot.facts = slot.facts is not None, None, None
        calls, slot.calls, slot.deadline = slot.calls, [], float('inf')
        self._answers += [
            Answer(call, lost=cause) for call in calls if call.method != 'launch' and call.is_wanted
        ]
        name = f'Ray actor {slot.rank}'
        self._losses.count(slot.rank, f'{name} {"was lost" if was_ready else "did not start"}: {cause}')
        if len(self._losses) == 1:
            slot.backoff = FIRST_BACKOFF
        slot.incarnation += 1
        slot.due = time.monotonic() + slot.backoff
        self.restarts += 1
        logger.warning('%s was lost (%s); another one starts in %g s', name, cause, slot.backoff)
        slot.backoff = min(2 * slot.backoff, LONGEST_BACKOFF)
