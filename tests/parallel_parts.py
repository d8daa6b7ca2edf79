"""Parts of parallel mode made from a config, and a coordinator that follows a script."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlframe import config
from rlframe.data import Batch
from rlframe.errors import MessageError
from rlframe.parallel.transport.answering import InProcessServer
from rlframe.parallel.transport.base import Envelope, Reply
from rlframe.parallel.transport.messages import (
    AskData,
    AskTask,
    AskWeights,
    Beat,
    Collected,
    Data,
    Farewell,
    Finished,
    Join,
    Joined,
    LearnInfo,
    Message,
    Orders,
    PutState,
    PutWeights,
    Taken,
    Task,
    Wait,
    Weights,
)
from rlframe.pipeline import build
from rlframe.utils.seed import set_seed

ROOT = Path(__file__).parents[1]
NONE = Orders(False, False, -1, '')
"""Orders to go on."""
PATIENCE = 30.0
"""Seconds that a test waits for what has to happen."""


def wait_until(condition: Callable[[], Any]) -> None:
    """Waits for an event in another thread."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, 'it did not happen'
        time.sleep(0.005)


def compiled(name: str, *overrides: str) -> Any:
    """Returns the config of a file in ``configs``, with small sizes."""
    small = (
        *('env.collector_env_num=3', 'env.evaluator_env_num=2', 'env.n_evaluator_episode=3'),
        *('policy.model.encoder_hidden_size_list=[16]', 'policy.learn.batch_size=16', 'seed=3'),
        'policy.learn.learner.hook.save_ckpt_after_run=false',
    )
    main, create = config.read_config(ROOT / 'configs' / f'{name}.py')
    return config.compile_config(main, create, overrides=[*small, *overrides])


def weights_of(cfg: Any, seed: int) -> dict[str, Any]:
    """Returns the weights of a new policy."""
    set_seed(seed)
    factory = build.make_factory(cfg)
    return copy.deepcopy(build.make_policy(cfg, factory.spec).collect_mode.state_dict())


def batches_of(cfg: Any, count: int) -> list[Any]:
    """Returns batches of random transitions."""
    rng, size = np.random.default_rng(0), cfg.policy.learn.batch_size
    return [
        Batch(
            obs=rng.normal(size=(size, 4)).astype(np.float32),
            next_obs=rng.normal(size=(size, 4)).astype(np.float32),
            action=rng.integers(2, size=size),
            reward=np.ones(size, np.float32),
            terminated=np.zeros(size, bool),
            truncated=np.zeros(size, bool),
        )
        for _ in range(count)
    ]


def task_of(kind: str = 'collect', **fields: Any) -> Task:
    """Returns a task for one policy called ``main``."""
    given = {
        'task': 'task_1',
        'kind': kind,
        'policies': ['main'],
        'active': [True],
        'buffer': 'main',
        'target': 6,
        'parts': 1,
        'newer_than': -1,
        'settings': {},
    }
    return Task(**{**given, **fields})


class ScriptedCoordinator:
    """Gives tasks in order, keeps everything that arrives, and ends the run after the last task.

    Args:
        tasks: The tasks.
        weights: Weights by version; the newest one has as many train iterations as ten times its version.
        settings: Settings of each part.
        batches: Payloads for a learner, in order.
    """

    def __init__(
        self,
        tasks: Sequence[Task] = (),
        weights: dict[int, Any] | None = None,
        settings: dict[str, Any] | None = None,
        batches: Sequence[Any] = (),
    ) -> None:
        self.tasks, self.weights, self.batches = list(tasks), dict(weights or {}), list(batches)
        self.settings = settings or {}
        self.state: Any = None
        """The last state of a learner, as another one gets it."""
        self.batches_each = 1
        """Number of batches in each item of ``batches``."""
        self.messages: list[Message] = []
        """All requests but signs of life, in order."""
        self.parts: list[tuple[Collected, Any]] = []
        self.finished: list[Finished] = []
        self.put: list[tuple[PutWeights, Any]] = []
        self.states: list[tuple[PutState, Any]] = []
        self.infos: list[tuple[LearnInfo, Any]] = []
        self.pushed, self.seen, self.produced = 0, 0, 0
        self.beats = 0
        self.orders = NONE
        self.is_known = True
        """Whether workers are known; they have to join again otherwise."""
        self.on: dict[type[Message], Callable[[Any, Any], Reply | None]] = {}
        """Own answers by the type of the request; None: the usual one."""
        self.beat_interval = 0.05
        self.server = InProcessServer()
        self.server.start(self.handle)
        self._lock = threading.Lock()

    @property
    def kinds(self) -> list[str]:
        """Names of all requests but signs of life, in order."""
        return [type(message).__name__ for message in self.messages]

    def handle(self, envelope: Envelope, payload: Any) -> Reply:
        """Answers a request."""
        message = envelope.message
        with self._lock:
            if not isinstance(message, Beat):
                self.messages.append(message)
            if not self.is_known and not isinstance(message, Join):
                raise MessageError('the coordinator does not know this worker', remedy='Join again.')
            own = self.on.get(type(message))
        reply = own(message, payload) if own is not None else None
        if reply is not None:
            return reply
        with self._lock:
            return getattr(self, f'on_{type(message).__name__}')(message, payload)

    def on_Join(self, message: Join, payload: Any) -> Reply:
        self.is_known = True
        return Reply(Joined(f'{message.name}-1', self.beat_interval))

    def on_Beat(self, message: Beat, payload: Any) -> Reply:
        self.beats += 1
        return Reply(self.orders)

    def on_AskTask(self, message: AskTask, payload: Any) -> Reply:
        if self.tasks:
            return Reply(self.tasks.pop(0))
        return Reply(Wait(0.0, True, 'nothing is left to do'))

    def on_AskWeights(self, message: AskWeights, payload: Any) -> Reply:
        if message.policy.endswith('.state'):
            has_state = self.state is not None
            return Reply(Weights(0 if has_state else -1, 0), self.state)
        newest = max(self.weights, default=-1)
        is_newer = newest > message.newer_than
        tree = self.weights[newest] if is_newer else None
        return Reply(Weights(newest, max(10 * newest, 0)), tree)

    def on_Collected(self, message: Collected, payload: Any) -> Reply:
        self.parts.append((message, payload))
        self.seen += message.rows
        self.pushed += message.rows
        return Reply(Taken(message.rows, False, max(self.weights, default=-1), self.settings))

    def on_Finished(self, message: Finished, payload: Any) -> Reply:
        self.finished.append(message)
        return Reply(self.orders)

    def on_PutWeights(self, message: PutWeights, payload: Any) -> Reply:
        self.put.append((message, payload))
        return Reply(self.orders)

    def on_PutState(self, message: PutState, payload: Any) -> Reply:
        self.states.append((message, payload))
        return Reply(self.orders)

    def on_AskData(self, message: AskData, payload: Any) -> Reply:
        if not self.batches:
            return Reply(Wait(0.0, True, 'there are no more data'))
        return Reply(Data(self.batches_each, 100, {}), self.batches.pop(0))

    def on_LearnInfo(self, message: LearnInfo, payload: Any) -> Reply:
        self.infos.append((message, payload))
        return Reply(self.orders)

    def on_Farewell(self, message: Farewell, payload: Any) -> Reply:
        self.produced = message.produced
        return Reply(NONE)
