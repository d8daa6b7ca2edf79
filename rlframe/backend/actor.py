"""The code inside a Ray actor: an ordinary collector with its own envs and policy, which serves one call at a time."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from rlframe.data.faces import acting_of
from rlframe.data.timestep import Array
from rlframe.errors import ActorFailedError, RLFrameError
from rlframe.parallel.transport.payload import pack, unpack
from rlframe.utils.lazy import torch
from rlframe.utils.seed import component_rng, global_rng_state, layer_seed, set_global_rng_state
from rlframe.utils.serialize import from_bytes, from_parent, to_bytes
from rlframe.worker.collector.remote_collection import Counts, collect_counted, numbered


def flatten(tree: Mapping[str, Any]) -> list[Array]:
    """Returns a nested tree of tensors, arrays and plain values as the pieces of a payload, uint8 [bytes] each.

    Ray transfers these without a copy. Tensors and arrays on the CPU are not copied here either.
    """
    return [np.frombuffer(chunk, np.uint8) for chunk in pack(tree)]


def unflatten(pieces: Sequence[Array]) -> dict[str, Any]:
    """Returns the tree that ``flatten`` was given; its tensors and arrays are copies."""
    tree: dict[str, Any] = unpack(np.concatenate(pieces), 'weights')
    return tree


def is_same(one: Sequence[Array], other: Sequence[Array]) -> bool:
    """Whether two results of ``flatten`` are equal bit by bit; if not, comparing the beginning usually suffices."""
    return len(one) == len(other) and all(map(np.array_equal, one, other))


State = dict[str, Any]


class Failure(NamedTuple):
    """An exception, as it leaves the process that raised it."""

    error: bytes
    """The exception itself, pickled; empty if it cannot be pickled."""
    text: str
    """Type and message of the exception."""
    trace: str


class Facts(NamedTuple):
    """Facts that an actor reports when it is ready."""

    env_num: int
    pid: int


class Request(NamedTuple):
    """A request to collect."""

    target: int | None
    """Number of training samples or episodes; the policy's own number if not given."""
    train_iter: int
    version: int
    """Version of the weights to act with."""
    options: Mapping[str, Any] = {}
    """Further arguments of the collector's ``collect``."""
    at_random: bool = False
    """Whether to act at random."""
    reset_policy: bool = False
    """Whether the policy forgets the running episodes first."""
    reset_env: bool = False
    """Whether every env begins a new episode first."""
    acting: State | None = None
    """Acting state of the policy; None: the actor continues with its own."""


class Header(NamedTuple):
    """Facts about collected data, sent with them."""

    version: int
    """Version of the weights that acted."""
    counts: Counts
    acting: State | None
    """Acting state after the request, if the request brought one."""
    statistics: tuple[State, State] | None
    """Running statistics before and after, if they are not part of the acting state."""


def answers(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method of an actor that returns an exception as a ``Failure``, so that the actor survives it."""

    @functools.wraps(method)
    def answer(*args: Any) -> Any:
        try:
            return method(*args)
        # whatever it is, it is the driver's to raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            if hasattr(error, 'ray_terminate_msg'):  # Ray ends this process
                raise
            return failure_of(error)

    return answer


class RemoteActor:
    """Handles the driver's requests, by methods that are ``answers``.

    Args:
        make: Creates the parts of the actor; the bytes of ``to_child``.
        rank: Rank of this actor.
        incarnation: Number of actors lost in its place before.
        path: The driver's import path.
    """

    def __init__(self, make: bytes, rank: int, incarnation: int, path: Sequence[str]) -> None:
        sys.path += [place for place in path if place not in sys.path]
        self._make, self._rank, self._incarnation = make, rank, incarnation
        self._parts: Any = None
        # Ray makes it a SystemExit, which would be an error of the env that happens to step; an actor of coroutines
        # is created in a thread of its own, steps no env, and could not set it
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @answers
    def launch(self) -> Facts:
        """Creates envs, policy, and the collector or evaluator."""
        self._parts = self._made()
        return Facts(self._parts.env.env_num, os.getpid())

    @answers
    def close(self) -> None:
        """Closes the first part: a collector or an evaluator, and its envs."""
        if self._parts is not None:
            self._parts[0].close()

    def _made(self) -> Any:
        return from_parent(self._make)(self._rank, self._incarnation)


class CollectorActor(RemoteActor):
    """Actor class that holds a collector, created by a ``MakeParts``."""

    _at_random = False

    def collect(self, request: Request, weights: Any) -> tuple[Header | Failure, Any]:
        """Collects, and returns the facts about the data and the data, as two objects."""
        answer = self._collect(request, weights)
        return (answer, None) if isinstance(answer, Failure) else answer

    @answers
    def settle(self, acting: State | None) -> State | None:
        """Brings all parts to a state that another process can continue from; see ``SerialCollector.settle``."""
        self._enter(acting)
        self._parts.collector.settle()
        return self._acting() if acting is not None else None

    @answers
    def state(self) -> State:
        """Returns the whole state that the next ``collect`` depends on, except for the weights."""
        return {
            'collector': self._parts.collector.state_dict(),
            'acting': self._acting(),
            'rng': global_rng_state(),
            'at_random': self._at_random,
        }

    @answers
    def load(self, state: State) -> State | None:
        """Restores the state from ``state()`` and returns the acting state, changed if envs restart."""
        collector = self._parts.collector
        self._at_random = state['at_random']
        collector.reset_policy(self._face())
        self._enter(state['acting'])
        collector.load_state_dict(state['collector'])
        set_global_rng_state(state['rng'])
        return self._acting()

    @answers
    def reset_env(self) -> None:
        """Starts a new episode in every env."""
        self._parts.collector.reset_env()

    @answers
    def set_seed(self, seed: int, rank: int) -> None:
        """Restarts every env with the seeds f(seed, rank, index), and the policy with a new generator."""
        collector = self._parts.collector
        collector._seed, collector._rank = seed, rank
        collector.reset_env(self._parts.env)
        reseed(self._parts.trained, seed, rank)

    @answers
    def _collect(self, request: Request, weights: Any) -> tuple[Header, Any]:
        parts = self._parts
        collector = parts.collector
        self._load_weights(request.version, weights)
        self._enter(request.acting)
        if request.reset_policy:
            self._at_random = request.at_random
            collector.reset_policy(self._face())
        if request.reset_env:
            collector.reset_env()
            parts.trained.reset(None)
        statistics = self._statistics(request)
        data, counts = collect_counted(parts, request.target, request.train_iter, **request.options)
        header = Header(
            self._acted_with(request.version),
            counts,
            self._acting() if request.acting is not None else None,
            (statistics, self._statistics(request)) if statistics else None,
        )
        return header, numbered(data, parts, self._rank)

    def _load_weights(self, version: int, weights: Any) -> None:
        """Takes the weights that a request brings, if it does."""
        if weights is not None:
            self._parts.trained.load_state_dict(unflatten(weights))

    def _acted_with(self, version: int) -> int:
        """Returns the oldest version of the weights that acted in a request for this version."""
        return version

    def _face(self) -> Any:
        return self._parts.random if self._at_random else self._parts.trained

    def _acting(self) -> State | None:
        acting = acting_of(self._parts.trained)
        return None if acting is None else acting.state()

    def _statistics(self, request: Request) -> State:
        acting = acting_of(self._parts.trained)
        return {} if acting is None or request.acting is not None else dict(acting.statistics())

    def _enter(self, state: State | None) -> None:
        acting = acting_of(self._parts.trained)
        if acting is not None and state is not None:
            acting.load_state(state)


def reseed(face: Any, seed: int, rank: int) -> None:
    """Sets a policy's generators to states that depend on this seed and rank alone."""
    acting = acting_of(face)
    if acting is not None:
        state = acting.state() | {'rng': component_rng(seed, 'policy', rank).bit_generator.state}
        if 'generator' in state:
            state['generator'] = torch.tensor([layer_seed(seed, rank)])  # which seeds it
        acting.load_state(state)
    face.reset(None)


def failure_of(error: BaseException) -> Failure:
    """Converts an exception for other processes; an exception that would silently end the driver is sent as text."""
    text = f'{type(error).__name__}: {error}'
    trace = ''.join(traceback.format_exception(error)).rstrip()
    if not isinstance(error, Exception):
        return Failure(b'', f'{text.removesuffix(": ")} was raised there, not in this process', trace)
    try:
        data = to_bytes(error, 'error')
        same = from_bytes(data)
        is_whole = type(same) is type(error) and str(same) == str(error)
    except Exception:  # exceptions can contain anything, and may fail to unpickle
        is_whole = False
    return Failure(data if is_whole else b'', text, trace)


def raise_failure(failure: Failure, who: str) -> NoReturn:
    """Raises an exception of an actor, with its traceback there and the actor's rank in the first line.

    Raises:
        ActorFailedError: With the text of the exception, if it cannot be unpickled here or its class is unknown.
    """
    error: Exception
    try:
        error = from_bytes(failure.error) if failure.error else ActorFailedError(failure.text, where=who)
    except Exception:  # the class may exist over there only
        error = ActorFailedError(failure.text, where=who)
    if isinstance(error, RLFrameError) and error.where != who:
        error.message = f'{who}: {error.message}'
    elif error.args == (str(error),):
        error.args = (f'{who}: {error}',)
    error.add_note(f'In {who}:\n{failure.trace}')
    raise error
