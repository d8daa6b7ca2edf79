"""A Ray without processes, for what an actor pool does about time and losses: a test says when an actor answers, and what."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

from rlframe.backend.base import COLLECTOR
from rlframe.backend.ray import place as ray_place
from rlframe.backend.ray import session as ray_session
from rlframe.backend.ray.options import RAY_OPTIONS
from rlframe.backend.worker import CollectorWorker, Facts, Header, Request
from rlframe.data import Batch
from rlframe.remote.supervisor import Limits, Supervisor
from rlframe.utils.field import defaults_of
from rlframe.worker.collector.remote_collection import Counts

NEVER = float('inf')


class Ref:
    """What an actor is to answer, from a time on; an exception is raised where it is fetched."""

    def __init__(self, value: Any = None, at: float = NEVER) -> None:
        self.value, self.at = value, at


class Method:
    def __init__(self, actor: Actor, name: str) -> None:
        self._actor, self._name = actor, name

    def options(self, num_returns: int) -> Method:
        return self

    def remote(self, *args: Any) -> Any:
        return self._actor.asked(self._name, args)


class Actor:
    """Does one thing after another, each for as long as ``FakeRay.seconds`` says."""

    def __init__(self, ray: FakeRay, options: dict[str, Any], rank: int, incarnation: int) -> None:
        self.ray, self.options, self.rank, self.incarnation = ray, options, rank, incarnation
        self.is_alive, self.free_at, self.refs = True, ray.now, []  # type: bool, float, list[Ref]
        self.requests: list[Request] = []
        self.weights: list[Any] = []

    def __getattr__(self, name: str) -> Method:
        return Method(self, name)

    def asked(self, name: str, args: tuple[Any, ...]) -> Any:
        seconds = self.ray.seconds.get((self.rank, name), self.ray.seconds.get(name, 0.0))
        self.free_at = max(self.free_at, self.ray.now) + seconds
        ref = Ref(self.answer(name, args), self.free_at)
        self.refs.append(ref)
        return (ref, Ref(self.ray.data(self, args[0]), self.free_at)) if name == 'collect' else ref

    def answer(self, name: str, args: tuple[Any, ...]) -> Any:
        if name == 'launch' and name not in self.ray.answers:
            return Facts(1, 1000 * self.incarnation + self.rank)
        if name != 'collect':
            return self.ray.answers.get(name)
        request, weights = args
        self.requests.append(request)
        self.weights.append(weights)
        counts = Counts(request.target, np.zeros((0, 3)), 0, 0, 0)
        return Header(request.version, counts, {})


class FakeRay:
    """What ``ray_place`` uses of Ray, with a clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.seconds: dict[Any, float] = {}
        """What a method takes, by its name, or by rank and name."""
        self.answers: dict[str, Any] = {}
        """Of methods other than ``collect``."""
        self.actors: list[Actor] = []
        """All that were ever made."""
        self.nodes_have: list[dict[str, float]] = [{'CPU': 8.0}]
        self.is_ended = False

    def data(self, actor: Actor, request: Request) -> Any:
        return Batch(rank=np.full(request.target, actor.rank), number=np.arange(request.target))

    def of(self, rank: int) -> Actor:
        """Returns the newest actor of a rank."""
        return next(actor for actor in reversed(self.actors) if actor.rank == rank)

    # of Ray

    def remote(self, kind: Any) -> Any:
        maker = mock.Mock()
        maker.options = lambda **options: mock.Mock(remote=lambda *given: self._make(options, *given))
        return maker

    def _make(self, options: dict[str, Any], make: Any, rank: int, k: int, path: Any) -> Actor:
        self._touch()
        self.actors.append(Actor(self, options, rank, k))
        return self.actors[-1]

    def _touch(self) -> None:
        assert not self.is_ended, 'Ray would start another Ray by itself'

    def put(self, value: Any) -> Ref:
        self._touch()
        return Ref(value, 0.0)

    def get(self, ref: Ref, timeout: float | None = None) -> Any:
        self._touch()
        assert ref.at <= self.now
        if isinstance(ref.value, Exception):
            raise ref.value
        return ref.value

    def wait(
        self, refs: Sequence[Ref], num_returns: int = 1, timeout: float = 0.0, fetch_local: bool = True
    ) -> tuple[list[Ref], list[Ref]]:
        self._touch()
        assert len(set(map(id, refs))) == len(refs) >= num_returns
        until = self.now + timeout
        times = sorted(ref.at for ref in refs)
        self.now = max(self.now, min(until, times[num_returns - 1]))
        ready = [ref for ref in reversed(refs) if ref.at <= self.now][:num_returns]  # in any order
        return ready, [ref for ref in refs if ref not in ready]

    def kill(self, actor: Actor) -> None:
        self._touch()
        actor.is_alive = False
        for ref in actor.refs:
            ref.at = ref.at if ref.at <= self.now else NEVER

    def is_initialized(self) -> bool:
        return not self.is_ended

    def cluster_resources(self) -> dict[str, float]:
        names = {name for node in self.nodes_have for name in node}
        return {name: sum(node.get(name, 0.0) for node in self.nodes_have) for name in names}

    available_resources = cluster_resources

    def nodes(self) -> list[dict[str, Any]]:
        return [{'Alive': True, 'Resources': node} for node in self.nodes_have]

    @property
    def util(self) -> Any:
        return mock.Mock(get_current_placement_group=lambda: None)

    # of time

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@contextlib.contextmanager
def fake_ray() -> Iterator[FakeRay]:
    """Puts it in Ray's place; its pools end with it, not when they are collected: that would move the clock of another."""
    ray, init = FakeRay(), Supervisor.__init__
    with contextlib.ExitStack() as stack:
        for module in (ray_place, ray_session):
            stack.enter_context(mock.patch.object(module, 'ray', ray))
        stack.enter_context(mock.patch.object(ray_session, 'time', ray))
        for name, turned in (('clock', ray.monotonic), ('pause', ray.sleep)):
            stack.enter_context(mock.patch.object(ray_place.RayPlace, name, staticmethod(turned)))
        stack.enter_context(mock.patch.object(ray_session._Ours, 'reserved', Counter()))
        session = lambda *given: ray_session.RaySession(False)  # noqa: E731
        stack.enter_context(mock.patch.object(ray_place, 'connect', session))

        def init_and_close(pool: Supervisor, *args: Any, **given: Any) -> None:
            init(pool, *args, **given)
            stack.callback(pool.close)

        stack.enter_context(mock.patch.object(Supervisor, '__init__', init_and_close))
        yield ray


def make_pool(kind: Any = CollectorWorker, **options: Any) -> Supervisor:
    """Makes a pool whose actors are not started."""
    cfg = {**defaults_of(RAY_OPTIONS), **options}
    place = ray_place.RayPlace(kind, cfg['ray_init_config'], cfg['remote_configs'], COLLECTOR)
    limits = Limits.of(cfg, cfg['collect_timeout'], COLLECTOR)
    return Supervisor(place, print, cfg['num_collectors'], limits, ray_session.REMEDY)
