"""Inference in one place: a Ray actor holds the network, and acts for the collectors of all actors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import ray
import torch
from ray.exceptions import RayError
from torch import nn

from rlframe.backend.actor import (
    CollectorActor,
    Facts,
    Failure,
    RemoteActor,
    answers,
    raise_failure,
    unflatten,
)
from rlframe.backend.base import MakeCollector, actor_config
from rlframe.backend.pool import TICK
from rlframe.backend.ray.options import server_options
from rlframe.backend.ray.pool import SECTION, ActorPool, logger
from rlframe.backend.ray.session import cause_of
from rlframe.data.timestep import Array, to_tensor
from rlframe.pipeline import build

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.policy import Policy

SERVER = 'the inference server'
"""Its name in messages."""
MOST_CALLS = 10_000
"""Calls that the server may hold at a time: each waits for others."""


def mapped(function: Callable[..., Any], *trees: Any) -> Any:
    """Returns a tree of tuples and dicts in which each leaf is that function of the leaves of these trees."""
    first = trees[0]
    if isinstance(first, Mapping):
        return {name: mapped(function, *(tree[name] for tree in trees)) for name in first}
    if isinstance(first, tuple):
        return tuple(mapped(function, *parts) for parts in zip(*trees, strict=True))
    return function(*trees)


def rows_of(tree: Any) -> int:
    """Returns the length of the leading axis, which all leaves of a tree share."""
    while isinstance(tree, Mapping | tuple):
        tree = next(iter(tree.values() if isinstance(tree, Mapping) else tree))
    return len(tree)


class Network(NamedTuple):
    """What collectors have to know of the network that acts for them."""

    methods: frozenset[str]
    """Names of its methods and parts that can be called."""
    state_shape: tuple[int, ...] | None
    """Shape of its recurrent state; None if there is none."""


class Served(NamedTuple):
    """What the server acts with."""

    policy: Policy
    batch: int
    """Most requests that share a pass."""
    seconds: float
    """Longest time for a request to wait for others."""


class MakeServed:
    """Creates the policy on the server.

    Args:
        cfg: A compiled config.
        factory: Creates the envs of the run.
    """

    def __init__(self, cfg: ExperimentConfig, factory: Any) -> None:
        self._cfg, self._factory = cfg, factory
        self.model: Any = None
        """A custom network, if given; it is copied."""

    def __call__(self, rank: int, incarnation: int) -> Served:
        """Creates the policy, whose weights are still to come."""
        section: Any = self._cfg.policy.collect.collector
        cfg = actor_config(self._cfg, rank, incarnation)
        if section.inference_remote_config.get('num_gpus'):
            cfg.policy.device, cfg.policy.cuda = self._cfg.policy.device, self._cfg.policy.cuda
        build.prepare(cfg)
        policy = build.make_policy(cfg, self._factory.spec, self.model, ('collect',))
        batch = section.inference_batch or section.num_collectors
        return Served(policy, batch, section.inference_timeout)


class Asked(NamedTuple):
    """A request that waits for a pass through the network."""

    rank: int
    method: str
    args: tuple[Any, ...]
    """Its arguments: trees of arrays [n, ...]."""
    answer: asyncio.Future[Any]


class Answer(NamedTuple):
    """The output of a method of the network."""

    version: int
    """Version of the weights."""
    output: Any
    """A tree of arrays, [n, ...]."""


class InferenceActor(RemoteActor):
    """Actor class that holds the network, and passes the requests of several collectors through it together.

    A request waits for the collectors that are expected: those that are collecting, and did not let another request wait
    for longer than allowed since they last asked. All that a collector remembers or draws stays with the collector.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._version, self._rest = 0, dict[str, Any]()
        self._expected: set[int] = set()
        self._asked: list[Asked] = []
        self._timer: asyncio.TimerHandle | None = None

    @answers
    def launch(self) -> Network:  # type: ignore[override]  # it has no envs to report
        """Creates the policy, and returns what collectors have to know of its network."""
        self._parts = self._made()
        model = self._parts.policy.model
        names = (name for name in dir(model) if not name.startswith('_') and not hasattr(nn.Module, name))
        methods = frozenset(name for name in names if callable(getattr(model, name)))
        return Network(methods, getattr(model, 'state_shape', None))

    @answers
    def close(self) -> None:
        """Has nothing to close."""

    async def wait(self) -> None:
        """Never returns, so that a call of this fails when the process ends."""
        await asyncio.Event().wait()

    async def pid(self) -> int:
        """Returns the process."""
        return os.getpid()

    async def begin(self, rank: int, version: int, weights: Sequence[Any]) -> Any:
        """Expects requests of a collector, for at least a version of the weights.

        Args:
            rank: Rank of the collector.
            version: That version.
            weights: The reference to it, in a list so that only the server fetches it.

        Returns:
            What the weights hold beside the network, such as statistics of observations.
        """
        return self._begin(rank, version, await weights[0] if version > self._version else ())

    @answers
    def _begin(self, rank: int, version: int, pieces: Sequence[Array]) -> dict[str, Any]:
        if version > self._version:
            if self._parts is None:  # Ray has replaced the server
                self.launch()
            state = unflatten(pieces)
            self._parts.policy.collect_mode.load_state_dict(state)
            self._version, self._rest = version, {name: state[name] for name in state if name != 'model'}
        self._expected.add(rank)
        return self._rest

    async def leave(self, rank: int) -> None:
        """Expects no further requests of a collector for now."""
        self._expected.discard(rank)
        self._answer_if_complete()

    async def act(self, rank: int, version: int, method: str, args: tuple[Any, ...]) -> Any:
        """Calls a method of the network, together with other requests.

        Args:
            rank: Rank of the collector.
            version: The version of the weights that is needed, or a newer one.
            method: Name of the method.
            args: Its arguments: trees of arrays [n, ...].

        Returns:
            An ``Answer``, a ``Failure``, or None if there are only older weights.
        """
        if version > self._version:
            return None
        loop = asyncio.get_running_loop()
        asked = Asked(rank, method, args, loop.create_future())
        self._asked.append(asked)
        self._expected.add(rank)
        if self._timer is None:
            self._timer = loop.call_later(self._parts.seconds, self._answer_late)
        self._answer_if_complete()
        return await asked.answer

    def _answer_if_complete(self) -> None:
        """Answers if nobody else is expected, or there is no place for another request."""
        is_full = len(self._asked) >= self._parts.batch if self._asked else False
        if is_full or self._expected <= {asked.rank for asked in self._asked}:
            self._answer_all()

    def _answer_late(self) -> None:
        """Answers those that have waited, and no longer expects those that did not ask meanwhile."""
        self._expected = {asked.rank for asked in self._asked}
        self._answer_all()

    def _answer_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        everyone, self._asked, self._timer = self._asked, [], None
        for method in dict.fromkeys(asked.method for asked in everyone):
            together = [asked for asked in everyone if asked.method == method]
            outputs = self._outputs(method, [asked.args for asked in together])
            for i, asked in enumerate(together):
                if not asked.answer.done():  # its caller may have been lost
                    is_failure = isinstance(outputs, Failure)
                    asked.answer.set_result(outputs if is_failure else Answer(self._version, outputs[i]))

    @answers
    def _outputs(self, method: str, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Passes requests through the network together, and returns the output of each."""
        policy = self._parts.policy
        ends = np.cumsum([0, *map(rows_of, requests)]).tolist()
        with torch.inference_mode():
            args = mapped(lambda *parts: policy.tensor(np.concatenate(parts)), *requests)
            output = getattr(policy.model, method)(*args)
            if rows_of(output) != ends[-1]:
                raise ValueError(
                    f'{method} of {type(policy.model).__name__} returns {rows_of(output)} rows for {ends[-1]} observations'
                )
            output = mapped(lambda tensor: tensor.cpu().numpy(), output)
        return [
            mapped(partial(_between, start, stop), output)
            for start, stop in zip(ends[:-1], ends[1:], strict=True)
        ]


def _between(start: int, stop: int, column: Array) -> Array:
    return column[start:stop]


class RemoteNetwork(nn.Module):
    """The network of a policy in an actor, whose methods are calls of the server.

    The policy does all else itself: it draws its own numbers and keeps the recurrent states of its own episodes. So what a
    collector collects depends on its requests alone, but for the last bits of a pass that it shares with others.

    Args:
        server: The actor.
        network: What is to be known of the network there.
        seconds: Longest time for an answer; a server that needs longer is replaced.
    """

    def __init__(self, server: Any, network: Network, seconds: float) -> None:
        super().__init__()
        self._server, self._methods, self._seconds = server, network.methods, seconds
        if network.state_shape is not None:
            self.state_shape = network.state_shape
        self.rank = 0
        """Rank of the collector."""
        self.oldest: int | None = None
        """Oldest version of the weights that acted since ``begin``; None if none did."""
        self._version, self._weights = 0, list[Any]()

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get('_methods', ()):
            return partial(self._act, name)
        return super().__getattr__(name)

    def forward(self, *args: Any) -> Any:
        """Passes observations through the network."""
        return self._act('__call__', *args)

    def begin(self, version: int, weights: list[Any] | None) -> dict[str, Any] | None:
        """Begins a request of the driver.

        Args:
            version: Version of the weights that is to act, or a newer one.
            weights: The reference to it, in a list; None if it was told before.

        Returns:
            What these weights hold beside the network; None if they are the same as before.
        """
        self.oldest = None
        if weights is None:
            return None
        self._version, self._weights = version, weights
        rest: dict[str, Any] = self._call('begin', self.rank, version, weights)
        return rest

    def leave(self) -> None:
        """Ends a request of the driver; others need not wait for this collector any longer."""
        self._server.leave.remote(self.rank)

    def _act(self, method: str, *args: Any) -> Any:
        given = mapped(lambda tensor: tensor.cpu().numpy(), args)
        while (answer := self._call('act', self.rank, self._version, method, given)) is None:
            self._call('begin', self.rank, self._version, self._weights)  # it was replaced
        self.oldest = answer.version if self.oldest is None else min(self.oldest, answer.version)
        # policies change their outputs in place, and what arrives is read-only
        return mapped(lambda column: to_tensor(np.array(column)), answer.output)

    def _call(self, method: str, *args: Any) -> Any:
        """Calls the server; Ray repeats the call if it is replaced meanwhile."""
        answer = getattr(self._server, method).remote(*args)
        if not ray.wait([answer], timeout=self._seconds)[0]:
            ray.kill(self._server, no_restart=False)
        value = ray.get(answer)
        if isinstance(value, Failure):
            raise_failure(value, SERVER)
        return value


class CentralCollectorActor(CollectorActor):
    """Actor class that holds a collector without a network."""

    @answers
    def launch(self) -> Facts:
        """Creates envs, policy and collector."""
        self._parts = self._made()
        self._network.rank = self._rank
        return Facts(self._parts.env.env_num, os.getpid())

    @property
    def _network(self) -> RemoteNetwork:
        network: RemoteNetwork = self._parts.trained.get_attribute('model')
        return network

    def _load_weights(self, version: int, weights: Any) -> None:
        rest = self._network.begin(version, weights)
        if rest is not None:
            self._parts.trained.load_state_dict({**rest, 'model': {}})

    def _acted_with(self, version: int) -> int:
        network = self._network
        network.leave()
        return version if network.oldest is None else network.oldest


class ServerPool(ActorPool):
    """The server, which Ray replaces itself, so that collectors need not be told.

    Args:
        cfg: Options of the collector.
        make: Creates the policy there.
    """

    _lifetime = {'max_restarts': -1, 'max_task_retries': -1, 'max_concurrency': MOST_CALLS}
    _end: Any = None

    def __init__(self, cfg: Mapping[str, Any], make: MakeServed) -> None:
        super().__init__(server_options(cfg), InferenceActor, SECTION, make)

    def _stored(self, argument: bytes) -> Any:
        return argument  # Ray needs it for another start, whatever happens to the store

    def _name(self, rank: int) -> str:
        return SERVER

    @property
    def network(self) -> RemoteNetwork:
        """A network for the policies of collectors."""
        found: Any = self.slots[0].facts
        return RemoteNetwork(self.slots[0].actor, found, self._cfg['start_timeout'])

    def lost(self) -> str:
        """Returns the cause if the server was lost since the last call of this, else an empty string."""
        before = self._end
        if before is not None and not ray.wait([before], timeout=0)[0]:
            return ''
        self._end = self.slots[0].actor.wait.options(max_task_retries=0).remote()
        try:
            if before is not None:
                ray.get(before)
        except RayError as error:
            return cause_of(error)
        return ''


class CentralPool(ActorPool):
    """Starts collectors without networks, and the server that acts for them.

    Args:
        cfg: A compiled config.
        make: Creates the parts of a collector.
    """

    make: MakeCollector

    def __init__(self, cfg: ExperimentConfig, make: MakeCollector) -> None:
        section: Any = cfg.policy.collect.collector
        self.server = ServerPool(section, MakeServed(cfg, make.factory))
        """The server."""
        try:
            super().__init__(section, CentralCollectorActor, SECTION, make)
        except BaseException:
            self.server.close()
            raise
        if section.num_collectors > 1 and section.inference_batch != 1:
            self.why_inexact = (
                'which observations pass through the network together depends on the speed of processes; with'
                f' {SECTION}.inference_batch=1 none do'
            )

    def start(self) -> None:
        """Starts the server and all collectors, and waits until they are ready; raises like ``ActorPool.start``."""
        self.server.make.model = self.make.model
        self.server.start()
        self.make.model = self.server.network
        super().start()

    def put(self, pieces: Sequence[Array]) -> tuple[Any, Sequence[Array]]:
        ref, stored = super().put(pieces)
        return [ref], stored  # in a list, a reference is passed on: only the server fetches it

    def look(self, seconds: float = TICK) -> None:
        super().look(seconds)
        if self.slots and (cause := self.server.lost()):
            self.restarts += 1
            logger.warning('%s was lost (%s); Ray starts another one', SERVER, cause)
            self._count_loss(f'{SERVER} was lost: {cause}')

    def close(self) -> None:
        super().close()
        self.server.close()
