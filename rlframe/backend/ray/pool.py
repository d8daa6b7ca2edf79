"""ActorPool: calls K Ray actors, never waits for one without a limit, and replaces those that are lost."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from rlframe.backend.actor import (
    CollectorActor,
    Facts,
    Failure,
    RemoteActor,
    raise_failure,
)
from rlframe.backend.base import COLLECTOR
from rlframe.backend.pool import CLOSE_SECONDS, TICK, Call, Pool
from rlframe.backend.ray.options import remote_config_of
from rlframe.backend.ray.session import actor_resources, cause_of, connect
from rlframe.data.timestep import Array
from rlframe.errors import ActorLostError
from rlframe.utils.serialize import ACTING, to_child

logger = logging.getLogger('rlframe.ray')

PAUSE = 0.5
"""Seconds before a lost actor is replaced."""


@dataclasses.dataclass(eq=False)
class Slot:
    """The slot of an actor, kept when the actor is replaced."""

    rank: int
    options: Mapping[str, Any]
    """Resources of the actor."""
    incarnation: int = 0
    """Number of actors lost here before."""
    actor: Any = None
    due: float = 0.0
    """When the next actor may be started."""
    facts: Facts | None = None
    """The actor's report when it was ready; None before."""
    calls: list[Call] = dataclasses.field(default_factory=list)
    """Pending calls, in the order of execution; sent once there is an actor."""
    deadline: float = float('inf')
    """Deadline of the first of them, which the actor is working on."""

    def begin_next(self) -> None:
        """Records that the actor starts its next call now."""
        self.deadline = time.monotonic() + self.calls[0].seconds if self.calls else float('inf')


class ActorPool(Pool):
    """Starts actors, calls them, and replaces those that die or do not answer in time.

    Args:
        cfg: Options of a collector, of which those of ``RAY_OPTIONS`` are used.
        kind: The kind of worker in the actors.
        section: Config key of the options.
        make: Creates the parts in an actor, like ``MakeParts``.

    Raises:
        ResourceError: If no Ray answers at the given address, or it lacks the resources that the actors need.
    """

    _lifetime: Mapping[str, Any] = {'max_restarts': 0, 'max_task_retries': 0}
    """Options of an actor that say what Ray does at its end."""

    def __init__(
        self,
        cfg: Mapping[str, Any],
        kind: type[RemoteActor] = CollectorActor,
        section: str = COLLECTOR,
        make: Any = None,
    ) -> None:
        self._cfg, self._section = cfg, section
        self.make = make
        self.slots: dict[int, Slot] = {}
        """The slots, by rank."""
        self.next_rank: int = cfg['num_collectors']
        """Rank of the next actor: ranks are never reused, as seeds and versions of weights depend on them."""
        self._done: deque[Call] = deque()
        # time and text of each loss within ``restart_window``
        self._losses: deque[tuple[float, str]] = deque()
        self._numbers = itertools.count()
        self._given: Any = None  # ``make``, pickled
        self._closed = False
        self._session = connect(cfg['ray_init_config'], self.key('ray_init_config'))
        self._remote: Any = ray.remote(kind)
        self._first = self._options(range(cfg['num_collectors']))
        try:
            self._reserve(self._first)
        except BaseException:
            self._session.close()
            raise

    def start(self) -> None:
        """Starts all actors and waits until they are ready.

        Raises:
            SerializationError: If ``make`` cannot be sent to actors.
            ActorLostError: If they die during the start, or take too long.
            Exception: Any exception raised by the constructor of an env, a policy or a collector.
        """
        self._start(self._first)

    def add(self, remote_configs: Sequence[Mapping[str, Any]], make: Any) -> list[int]:
        """Starts additional actors, waits until all are ready and returns their ranks; if one fails, none is added.

        Args:
            remote_configs: Resources of each, in addition to those in the options.
            make: Creates the parts in them, and from now on in all actors.

        Raises:
            ResourceError: If the cluster lacks the resources that they need; with the numbers.
            Exception: As raised by ``start``.
        """
        self.check_open()
        options = self._options(range(self.next_rank, self.next_rank + len(remote_configs)))
        options = {rank: {**options[rank], **own} for rank, own in zip(options, remote_configs, strict=True)}
        self._reserve(options)
        self.next_rank += len(remote_configs)
        before = self.make
        self.make = make
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
        self._given = self._stored(to_child(self.make, 'make', ACTING))
        for rank in options:
            self._create(self.slots[rank])
        while any(self.slots[rank].facts is None for rank in options):
            self.look()

    def remove(self, rank: int) -> None:
        """Closes an actor; results of its pending calls are not delivered."""
        slot = self.slots.pop(rank)
        self._done = deque(call for call in self._done if call.rank != rank)
        if slot.actor is not None:
            ray.wait([slot.actor.close.remote()], timeout=CLOSE_SECONDS)
            self._kill(slot)
        self._session.release([actor_resources(slot.options)])

    @property
    def ranks(self) -> list[int]:
        return sorted(self.slots)

    @property
    def ready(self) -> list[int]:
        """Ranks of the actors that have started and were not lost since, in order."""
        return [rank for rank in self.ranks if self.slots[rank].facts is not None]

    def _stored(self, argument: bytes) -> Any:
        """Returns what the constructors of all actors get for an argument."""
        return ray.put(argument)

    def _name(self, rank: int) -> str:
        """Returns the name of an actor in messages."""
        return f'Ray actor {rank}'

    def key(self, name: str) -> str:
        """Returns the config key of an option."""
        return f'{self._section}.{name}' if self._section else name

    @property
    def facts(self) -> Facts:
        return next(slot.facts for slot in self.slots.values() if slot.facts is not None)

    @property
    def calls(self) -> list[Call]:
        pending = [call for slot in self.slots.values() for call in slot.calls]
        return [
            *(call for call in pending if call.method != 'launch' and call.is_wanted),
            *self._done,
        ]

    def incarnation(self, rank: int) -> int:
        return self.slots[rank].incarnation

    def put(self, pieces: Sequence[Array]) -> tuple[Any, Sequence[Array]]:
        ref = ray.put(pieces)
        return ref, ray.get(ref)

    def abandon(self) -> None:
        self._done.clear()
        for call in self.calls:
            call.is_wanted = False

    def ask(self, rank: int, method: str, *args: Any, size: int = 0) -> Call:
        self.check_open()
        call = Call(next(self._numbers), rank, method, args, self._cfg['collect_timeout'], size)
        slot = self.slots[rank]
        slot.calls.append(call)
        if slot.actor is not None:
            self._send(slot, call)
        if len(slot.calls) == 1:
            slot.begin_next()
        return call

    def wait(self, on_tick: Callable[[], None] | None = None) -> Call:
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
        try:
            return ray.get(call.data, timeout=call.seconds)
        except RayError as error:
            self._count_loss(f'the data of {self._name(call.rank)} were lost: {cause_of(error)}')
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
        self._done.clear()
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

    def look(self, seconds: float = TICK) -> None:
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
        options = {**slot.options, **self._lifetime}
        path = [os.path.abspath(place) for place in sys.path]  # actors start in another folder
        slot.actor = self._remote.options(**options).remote(self._given, slot.rank, slot.incarnation, path)
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
            raise_failure(value, self._name(call.rank))
        if call.method == 'launch':
            slot.facts = value
        else:
            call.value = value
            self._done.append(call)

    # losses

    def _give_up(self, slot: Slot) -> None:
        """Counts an actor that does not answer in time as lost; one that does not start ends the run."""
        call = slot.calls[0]
        if call.method == 'launch':
            self.is_broken = True
            demands = [actor_resources(other.options) for other in self.slots.values()]
            raise ActorLostError(
                f'{self._name(slot.rank)} did not start within {call.seconds:g} s; {self._session.needed_and_free(demands)}',
                where=self.key('start_timeout'),
                remedy='Raise it if the envs start slowly, or if other nodes will join.',
            )
        self._lose(slot, f'no answer to {call.method} within {call.seconds:g} s')

    def _lose(self, slot: Slot, cause: str) -> None:
        """Counts an actor as lost, with all its calls; a replacement is started a little later."""
        self._kill(slot)
        was_ready = slot.facts is not None
        slot.actor = None
        slot.facts = None
        calls = slot.calls
        slot.calls = []
        slot.deadline = float('inf')
        for call in calls:
            if call.method != 'launch' and call.is_wanted:
                call.lost = cause
                self._done.append(call)
        name = self._name(slot.rank)
        self._count_loss(f'{name} {"was lost" if was_ready else "did not start"}: {cause}')
        slot.incarnation += 1
        slot.due = time.monotonic() + PAUSE
        self.restarts += 1
        logger.warning('%s was lost (%s); another one starts in %g s', name, cause, PAUSE)

    def _count_loss(self, text: str) -> None:
        """Counts a loss, which the text describes with its cause.

        Raises:
            ActorLostError: If there were too many; with all causes.
        """
        now = time.monotonic()
        limit = self._cfg['max_actor_restarts']
        window = self._cfg['restart_window']
        self._losses.append((now, text))
        while now - self._losses[0][0] > window:
            self._losses.popleft()
        if (count := len(self._losses)) > limit:
            self.is_broken = True
            listed = '\n'.join(f'  {cause}' for _, cause in self._losses)
            raise ActorLostError(
                f'{count} actor{"s were" if count > 1 else " was"} lost within {window:g} s, {limit} may be replaced:\n{listed}\n',
                where=self.key('max_actor_restarts'),
                remedy='Is there enough memory? Do the envs answer? The log files of the Ray session say more.',
            )
