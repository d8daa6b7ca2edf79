"""The worker that collects elsewhere: an ordinary collector with its own envs and policy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from rlframe.data.faces import ActingExtras, acting_of
from rlframe.remote.weights import unflatten
from rlframe.remote.worker import Failure, Worker, answers
from rlframe.utils.lazy import torch
from rlframe.utils.seed import (
    component_rng,
    global_rng_state,
    incarnation_seed,
    layer_seed,
    set_global_rng_state,
)
from rlframe.worker.collector.remote_collection import Counts, collect_counted, numbered

State = dict[str, Any]


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
    extras: Mapping[str, Any]
    """What the request changed in the policy; see ``ActingExtras``."""


class EnvWorker(Worker):
    """Worker whose first part, a collector or an evaluator, steps the envs of its part ``env``."""

    @answers
    def launch(self) -> Facts:
        self._parts = self._made()
        return Facts(self._parts.env.env_num, os.getpid())

    @answers
    def close(self) -> None:
        """Closes the first part, and its envs."""
        if self._parts is not None:
            self._parts[0].close()


class CollectorWorker(EnvWorker):
    """Worker that holds a collector, created by a ``MakeParts``."""

    role = 'collector'
    with_data = frozenset(['collect'])
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
        if state['rng'] is not None:  # there is none of a collector in the process of the run
            set_global_rng_state(state['rng'])
        return self._acting()

    @answers
    def begin_anew(self, number: int) -> Any:
        """Restarts every env, and the policy's generator, with seeds that depend on the run's seed and a number alone."""
        seed = incarnation_seed(self._parts.collector._seed, self._rank, number)
        return self.set_seed(seed, self._rank)

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
        extras = ActingExtras(parts.trained, request.acting is not None)
        data, counts = collect_counted(parts, request.target, request.train_iter, **request.options)
        header = Header(self._acted_with(request.version), counts, extras.take())
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
