"""Inference in one place: a Ray actor holds the network, and acts for the collectors of all actors."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import ray
import torch
from torch import nn

from rlframe.backend.base import COLLECTOR, MakeCollector, actor_config
from rlframe.backend.ray.place import RayPlace
from rlframe.backend.ray.session import REMEDY
from rlframe.backend.worker import CollectorWorker
from rlframe.data.observation import mapped
from rlframe.data.timestep import Array, EnvSpec, to_tensor
from rlframe.pipeline import build
from rlframe.remote.supervisor import TICK, Limits, Supervisor
from rlframe.remote.weights import unflatten
from rlframe.remote.worker import Failure, Worker, answers, raise_failure

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.policy import Policy

logger = logging.getLogger('rlframe.remote')

SERVER = 'the inference server'
"""Its name in messages."""


def rows_of(tree: Any) -> int:
    """Returns the length of the leading axis, which all leaves of a tree share."""
    while isinstance(tree, Mapping | tuple):
        tree = next(iter(tree.values() if isinstance(tree, Mapping) else tree))
    return len(tree)


class Network(NamedTuple):
    """What collectors have to know of the network that acts for them."""

    pid: int
    """Process that it is in."""
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
        spec: Spaces of the env.
    """

    def __init__(self, cfg: ExperimentConfig, spec: EnvSpec) -> None:
        self._cfg, self._spec = cfg, spec
        self.model: Any = None
        """A custom network, if given; it is copied."""

    def __call__(self, rank: int, incarnation: int) -> Served:
        """Creates the policy, whose weights are still to come."""
        section: Any = self._cfg.policy.collect.collector
        cfg = actor_config(self._cfg, rank, incarnation)
        if section.inference_remote_config.get('num_gpus'):
            cfg.policy.device, cfg.policy.cuda = self._cfg.policy.device, self._cfg.policy.cuda
        build.prepare(cfg)
        policy = build.make_policy(cfg, self._spec, self.model, ('collect',))
        return Served(policy, section.inference_batch or section.num_collectors, section.inference_timeout)


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


class InferenceActor(Worker):
    """Actor class that holds the network, and passes the requests of several collectors through it together.

    A request waits for the collectors that are expected: those that are collecting, and did not let another request wait
    for longer than allowed since they last asked. All that a collector remembers or draws stays with the collector.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._version = 0
        self._rest = dict[str, Any]()
        self._expected: set[int] = set()
        self._asked: list[Asked] = []
        self._timer: asyncio.TimerHandle | None = None

    @answers
    def launch(self) -> Network:  # type: ignore[override]  # it has no envs to report
        """Creates the policy, and returns what collectors have to know of its network."""
        self._parts = self._made()
        model = self._parts.policy.model
        own = set(dir(model)) - set(dir(nn.Module))
        methods = frozenset(name for name in own if callable(getattr(model, name)))
        return Network(os.getpid(), methods, getattr(model, 'state_shape', None))

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
                self._parts = self._made()
            state = unflatten(pieces)
            self._parts.policy.collect_mode.load_state_dict(state)
            self._version = version
            self._rest = {name: state[name] for name in state if name != 'model'}
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
        is_full = bool(self._asked) and len(self._asked) >= self._parts.batch
        if is_full or self._expected <= {asked.rank for asked in self._asked}:
            self._answer_all()

    def _answer_late(self) -> None:
        """Answers those that have waited, and no longer expects those that did not ask meanwhile."""
        self._expected = {asked.rank for asked in self._asked}
        self._answer_all()

    def _answer_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        everyone = self._asked
        self._asked = []
        self._timer = None
        for method in dict.fromkeys(asked.method for asked in everyone):
            together = [asked for asked in everyone if asked.method == method]
            outputs = self._outputs(method, [asked.args for asked in together])
            for i, asked in enumerate(together):
                answer = outputs if isinstance(outputs, Failure) else Answer(self._version, outputs[i])
                if not asked.answer.done():  # its caller may have been lost
                    asked.answer.set_result(answer)

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
        return [mapped(itemgetter(slice(*own)), output) for own in pairwise(ends)]


class RemoteNetwork(nn.Module):
    """The network of a policy in an actor, whose methods are calls of the server.

    The policy does all else itself: it draws its own numbers and keeps the recurrent states of its own episodes. So what a
    collector collects depends on its requests alone, but for the last bits of a pass that it shares with others.

    Args:
        server: The actor.
        network: What is to be known of the network there.
    """

    def __init__(self, server: Any, network: Network) -> None:
        super().__init__()
        self._server = server
        self._methods = network.methods
        if network.state_shape is not None:
            self.state_shape = network.state_shape
        self.oldest: int | None = None
        """Oldest version of the weights that acted since this was set to None."""
        self._rank = 0
        self._version = 0
        self._weights = list[Any]()

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get('_methods', ()):
            return partial(self._act, name)
        return super().__getattr__(name)

    def forward(self, *args: Any) -> Any:
        """Passes observations through the network."""
        return self._act('__call__', *args)

    def begin(self, rank: int, version: int, weights: list[Any]) -> dict[str, Any]:
        """Sets the weights that are to act from now on, or newer ones, and returns what they hold beside the network.

        Args:
            rank: Rank of the collector.
            version: Version of the weights.
            weights: The reference to them, in a list.
        """
        self._rank, self._version, self._weights = rank, version, weights
        rest: dict[str, Any] = self._call('begin', rank, version, weights)
        return rest

    def leave(self) -> None:
        """Lets others no longer wait for this collector."""
        self._server.leave.remote(self._rank)

    def _act(self, method: str, *args: Any) -> Any:
        given = mapped(lambda tensor: tensor.cpu().numpy(), args)
        while (answer := self._call('act', self._rank, self._version, method, given)) is None:
            self._call('begin', self._rank, self._version, self._weights)  # it was replaced
        self.oldest = answer.version if self.oldest is None else min(self.oldest, answer.version)
        # policies change their outputs in place, and what arrives is read-only
        return mapped(lambda column: to_tensor(np.array(column)), answer.output)

    def _call(self, method: str, *args: Any) -> Any:
        """Calls the server; Ray repeats the call if it is replaced meanwhile."""
        value = ray.get(getattr(self._server, method).remote(*args))
        if isinstance(value, Failure):
            raise_failure(value, SERVER)
        return value


class CentralCollectorWorker(CollectorWorker):
    """Actor class that holds a collector without a network."""

    @property
    def _network(self) -> RemoteNetwork:
        network: RemoteNetwork = self._parts.trained.get_attribute('model')
        return network

    def _load_weights(self, version: int, weights: Any) -> None:
        network = self._network
        network.oldest = None
        if weights is not None:
            rest = network.begin(self._rank, version, weights)
            self._parts.trained.load_state_dict({**rest, 'model': {}})

    def _acted_with(self, version: int) -> int:
        network = self._network
        network.leave()
        return version if network.oldest is None else network.oldest


class ServerPlace(RayPlace):
    """Runs the server in an actor that Ray replaces itself, so that collectors need not be told."""

    lifetime = {'max_restarts': -1, 'max_task_retries': -1}

    def take_make(self, make: Any) -> None:
        self._make = make  # Ray needs it for another start, whatever happens to the store


class ServerPool(Supervisor):
    """Starts the server, and notices that Ray has replaced it.

    Args:
        cfg: Options of the collector.
        make: Creates the policy there.
    """

    _sign: Any = None  # the answer to a call that shows which process the server is in
    _pid = 0
    _limit = 0.0  # when it has to be there

    def __init__(self, cfg: Mapping[str, Any], make: MakeServed) -> None:
        resources = {'num_cpus': 0, **cfg['inference_remote_config']}
        place = ServerPlace(InferenceActor, cfg['ray_init_config'], resources, COLLECTOR, (SERVER,))
        super().__init__(place, make, 1, Limits.of(cfg, cfg['start_timeout'], COLLECTOR), REMEDY)

    def was_replaced(self) -> bool:
        """Whether the server is in another process than at the last call of this; kills one that does not answer."""
        actor = self.slots[0].link
        limit = time.monotonic() + self._limits.start_seconds
        before = self._pid
        if self._sign is None or ray.wait([self._sign], timeout=0)[0]:
            self._pid = ray.get(self._sign) if self._sign is not None else 0
            self._sign = actor.pid.remote()
            self._limit = limit
        elif time.monotonic() > self._limit:
            ray.kill(actor, no_restart=False)
            self._limit = limit
        return before not in (0, self._pid)


class CentralPool(Supervisor):
    """Starts collectors without networks, and the server that acts for them.

    Args:
        cfg: A compiled config.
        make: Creates the parts of a collector.
    """

    make: MakeCollector

    def __init__(self, cfg: ExperimentConfig, make: MakeCollector) -> None:
        section: Any = cfg.policy.collect.collector
        self.server = ServerPool(section, MakeServed(cfg, make.factory.spec))
        """The server."""
        place = RayPlace(CentralCollectorWorker, section.ray_init_config, section.remote_configs, COLLECTOR)
        limits = Limits.of(section, section.collect_timeout, COLLECTOR)
        try:
            super().__init__(place, make, section.num_collectors, limits, REMEDY)
        except BaseException:
            self.server.close()
            raise
        if section.num_collectors > 1 and section.inference_batch != 1:
            self.place.why_inexact = (
                'which observations pass through the network together depends on the speed of processes; with'
                f' {COLLECTOR}.inference_batch=1 none do'
            )

    def start(self) -> None:
        """Starts the server and all collectors, and waits until they are ready; raises like ``Supervisor.start``."""
        self.server.make.model = self.make.model
        self.server.start()
        slot: Any = self.server.slots[0]
        self.make.model = RemoteNetwork(slot.link, slot.facts)
        super().start()

    def put(self, pieces: Sequence[Array]) -> tuple[Any, Sequence[Array]]:
        ref, stored = super().put(pieces)
        return [ref], stored  # in a list, a reference is passed on: only the server fetches it

    def look(self, seconds: float = TICK) -> None:
        super().look(seconds)
        if self.slots and self.server.was_replaced():
            self.restarts += 1
            name = self.server.place.who(0)
            logger.warning('%s was lost; Ray has started another one', name)
            self.count_loss(f'{name} was lost: its process ended, or did not answer', 0)

    def close(self) -> None:
        super().close()
        self.server.close()
