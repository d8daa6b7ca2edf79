"""The code inside a Ray actor: an ordinary collector with its own envs and policy, which serves one call at a time."""

from __future__ import annotations

import copy
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from rlframe.data.faces import acting_of
from rlframe.data.timestep import Array
from rlframe.errors import ActorFailedError, RLFrameError
from rlframe.registry import REGISTRIES
from rlframe.utils.lazy import LazyModule
from rlframe.utils.seed import component_rng, global_rng_state, set_global_rng_state
from rlframe.utils.serialize import from_bytes, to_bytes
from rlframe.worker.collector.rollout import Counts, collect_counted, numbered

torch = LazyModule('torch')

CHUNK = 2**16
"""Number of bytes that are compared at a time."""


class TensorBytes(NamedTuple):
    """A tensor in a form that Ray transfers without a copy; a numpy array has no bfloat16."""

    dtype: str
    """Name of a torch type, such as ``float32``."""
    shape: tuple[int, ...]
    data: Array
    """uint8 [bytes]."""


def on_cpu(module: Any) -> Any:
    """Returns a module that any process can receive: a copy on the CPU if it is elsewhere; other objects unchanged."""
    if not hasattr(module, 'parameters') or all(p.device.type == 'cpu' for p in module.parameters()):
        return module
    return copy.deepcopy(module).cpu()


def flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a tree with each tensor as its bytes, without a copy if the tensor is on the CPU.

    Args:
        tree: Tensors, arrays and plain values under names; may be nested.
    """
    return {name: _flat(value) for name, value in tree.items()}


def unflatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tree that ``flatten`` was given.

    Its tensors are views, and those from the object store are read-only: the caller must copy them, as
    ``load_state_dict`` of a module does. Arrays are copies.
    """
    return {name: _unflat(value) for name, value in tree.items()}


def is_same(one: Any, other: Any) -> bool:
    """Whether two results of ``flatten`` are equal bit by bit; if not, comparing the beginning usually suffices."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, TensorBytes):
        return one[:2] == other[:2] and _same_bytes(one.data, other.data)
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes()
    return bool(one == other)


def _flat(value: Any) -> Any:
    if isinstance(value, Mapping):
        return flatten(value)
    if not hasattr(value, 'detach'):
        return value
    flat = value.detach().cpu().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy() if flat.numel() else np.zeros(0, np.uint8)
    return TensorBytes(str(value.dtype).removeprefix('torch.'), tuple(value.shape), data)


def _unflat(value: Any) -> Any:
    if isinstance(value, Mapping):
        return unflatten(value)
    if isinstance(value, np.ndarray):
        return value.copy()
    if not isinstance(value, TensorBytes):
        return value
    dtype = getattr(torch, value.dtype)
    if not value.data.size:
        return torch.zeros(value.shape, dtype=dtype)
    try:
        flat = torch.from_dlpack(value.data)
    except BufferError:  # numpy before 2.1 exports no read-only arrays
        flat = torch.from_numpy(value.data.copy())
    return flat.view(dtype).reshape(value.shape)


def _same_bytes(one: Array, other: Array) -> bool:
    starts = range(0, len(one), CHUNK)
    return all(np.array_equal(one[start : start + CHUNK], other[start : start + CHUNK]) for start in starts)


State = dict[str, Any]
A = TypeVar('A')

ACTING = ('env', 'env_manager', 'policy', 'model', 'collector', 'evaluator')
"""Kinds of components that an actor may be made of."""


def components_of_script(kinds: Iterable[str] = ACTING) -> bytes:
    """Returns by kind and name the classes registered by the main program, which other processes cannot import; pickled.

    Args:
        kinds: Kinds of components, as named in ``REGISTRIES``.

    Raises:
        SerializationError: If a class cannot be sent.
    """
    found = {
        (kind, name): cls
        for kind in kinds
        for name, cls in REGISTRIES[kind].registered_in('__main__').items()
    }
    remedy = 'Move the registered class to a module of its own, and list that module in import_names.'
    return to_bytes(found, 'components', remedy)


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
    player_num: int
    pid: int
    node: str


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
    train_iter: int
    counts: Counts
    acting: State | None
    """Acting state after the request, if the request brought one."""
    statistics: tuple[State, State] | None
    """Running statistics before and after, if they are not part of the acting state."""


class RemoteActor:
    """Handles the driver's requests; returns exceptions as answers, so that the actor survives them.

    Args:
        make: Creates the parts of the actor; pickled.
        components: Result of ``components_of_script``; pickled.
        rank: Rank of this actor.
        incarnation: Number of actors lost in its place before.
        path: The driver's import path.
    """

    def __init__(
        self, make: bytes, components: bytes, rank: int, incarnation: int, path: Sequence[str]
    ) -> None:
        sys.path += [place for place in path if place not in sys.path]
        self._make, self._components = make, components
        self._rank, self._incarnation = rank, incarnation
        self._parts: Any = None
        # Ray makes it a SystemExit, which would be an error of the env that happens to step
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def launch(self) -> Facts | Failure:
        """Creates envs, policy, and the collector or evaluator."""

        def launch() -> Facts:
            self._parts = self._made()
            env = self._parts.env
            return Facts(env.env_num, env.spec.player_num, os.getpid(), os.uname().nodename)

        return self._answer(launch)

    def close(self) -> Failure | None:
        """Closes the first part: a collector or an evaluator, and its envs."""
        return None if self._parts is None else self._answer(self._parts[0].close)

    def _made(self) -> Any:
        for (kind, name), cls in from_bytes(self._components).items():
            REGISTRIES[kind].register(name, cls, force_overwrite=True)
        return from_bytes(self._make)(self._rank, self._incarnation)

    def _answer(self, do: Callable[[], A]) -> A | Failure:
        try:
            return do()
        except (
            Exception,
            SystemExit,
            KeyboardInterrupt,
        ) as error:  # whatever it is, it is the driver's to raise
            if hasattr(error, 'ray_terminate_msg'):  # Ray ends this process
                raise
            return failure_of(error)


class CollectorActor(RemoteActor):
    """Actor class that holds a collector, created by a ``MakeParts``."""

    _at_random = False

    def collect(self, request: Request, weights: State | None) -> tuple[Header | Failure, Any]:
        """Collects, and returns the facts about the data and the data, as two objects."""
        answer = self._answer(lambda: self._collect(request, weights))
        return (answer, None) if isinstance(answer, Failure) else answer

    def settle(self, acting: State | None) -> State | Failure | None:
        """Brings all parts to a state that another process can continue from; see ``SerialCollector.settle``."""

        def settle() -> State | None:
            self._enter(acting)
            self._parts.collector.settle()
            return self._acting() if acting is not None else None

        return self._answer(settle)

    def state(self) -> State | Failure:
        """Returns the whole state that the next ``collect`` depends on, except for the weights."""
        return self._answer(
            lambda: {
                'collector': self._parts.collector.state_dict(),
                'acting': self._acting(),
                'rng': global_rng_state(),
                'at_random': self._at_random,
            }
        )

    def load(self, state: State) -> State | Failure | None:
        """Restores the state from ``state()`` and returns the acting state, changed if envs restart."""

        def load() -> State | None:
            collector, self._at_random = self._parts.collector, state['at_random']
            collector.reset_policy(self._face())
            self._enter(state['acting'])
            collector.load_state_dict(state['collector'])
            set_global_rng_state(state['rng'])
            return self._acting()

        return self._answer(load)

    def reset_env(self) -> Failure | None:
        """Starts a new episode in every env."""
        return self._answer(lambda: self._parts.collector.reset_env())

    def set_seed(self, seed: int, rank: int) -> Failure | None:
        """Restarts every env with the seeds f(seed, rank, index), and the policy with a new generator."""

        def set_seed() -> None:
            collector = self._parts.collector
            collector._seed, collector._rank = seed, rank
            collector.reset_env(self._parts.env)
            reseed(self._parts.trained, seed, rank)

        return self._answer(set_seed)

    def _collect(self, request: Request, weights: State | None) -> tuple[Header, Any]:
        parts = self._parts
        collector = parts.collector
        if weights is not None:
            parts.trained.load_state_dict(unflatten(weights))
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
            request.version,
            request.train_iter,
            counts,
            self._acting() if request.acting is not None else None,
            (statistics, self._statistics(request)) if statistics else None,
        )
        return header, numbered(data, parts, self._rank)

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
    """Sets a policy's generator to its initial state for this seed and rank."""
    acting = acting_of(face)
    if acting is not None:
        acting.load_state(acting.state() | {'rng': component_rng(seed, 'policy', rank).bit_generator.state})
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
