"""Parts of parallel mode made from a config, and a coordinator that follows a script."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from runs import ROOT

from rlframe import config
from rlframe.data import Batch
from rlframe.errors import MessageError
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.answering import InProcessServer
from rlframe.parallel.transport.base import Envelope, Reply
from rlframe.pipeline import build
from rlframe.utils.seed import set_seed

NONE = m.Orders(False, False, -1, '')
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


def task_of(kind: str = 'collect', **fields: Any) -> m.Task:
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
    return m.Task(**{**given, **fields})


class ScriptedCoordinator:
    """Gives tasks in order, keeps everything that arrives, and ends the run after the last task.

    Args:
        tasks: The tasks.
        weights: Weights by version; the newest one has as many train iterations as ten times its version.
        batches: Payloads for a learner, in order.
    """

    def __init__(
        self, tasks: Sequence[m.Task] = (), weights: dict[int, Any] | None = None, batches: Sequence[Any] = ()
    ) -> None:
        self.tasks, self.weights, self.batches = list(tasks), dict(weights or {}), list(batches)
        self.state: Any = None
        """The last state of a learner, as another one gets it."""
        self.batches_each = 1
        """Number of batches in each item of ``batches``."""
        self.messages: list[m.Message] = []
        """All requests but signs of life, in order."""
        self.parts: list[tuple[m.Collected, Any]] = []
        self.finished: list[m.Finished] = []
        self.put: list[tuple[m.PutWeights, Any]] = []
        self.states: list[tuple[m.PutState, Any]] = []
        self.infos: list[tuple[m.LearnInfo, Any]] = []
        self._kept: dict[type[m.Message], list[Any]] = {
            m.Collected: self.parts, m.PutWeights: self.put, m.PutState: self.states, m.LearnInfo: self.infos
        }  # fmt: skip
        self.pushed = self.produced = 0
        self.orders = NONE
        self.is_known = True
        """Whether workers are known; they have to join again otherwise."""
        self.on: dict[type[m.Message], Callable[[Any, Any], Reply | None]] = {}
        """Own answers by the type of the request; None: the usual one."""
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
            if not isinstance(message, m.Beat):
                self.messages.append(message)
            if not self.is_known and not isinstance(message, m.Join):
                raise MessageError('the coordinator does not know this worker', remedy='Join again.')
            own = self.on.get(type(message))
        reply = own(message, payload) if own is not None else None
        if reply is not None:
            return reply
        with self._lock:
            return self._usual(message, payload)

    def _usual(self, message: m.Message, payload: Any) -> Reply:
        newest = max(self.weights, default=-1)
        self._kept.get(type(message), []).append((message, payload))
        match message:
            case m.Join(name=name):
                self.is_known = True
                return Reply(m.Joined(f'{name}-1', 0.05))
            case m.AskTask():
                return Reply(self.tasks.pop(0) if self.tasks else m.Wait(0.0, True, 'nothing is left to do'))
            case m.AskWeights(policy=policy) if policy.endswith('.state'):
                return Reply(m.Weights(-1 if self.state is None else 0, 0), self.state)
            case m.AskWeights(newer_than=held):
                tree = self.weights[newest] if newest > held else None
                return Reply(m.Weights(newest, max(10 * newest, 0)), tree)
            case m.Collected(rows=rows):
                self.pushed += rows
                return Reply(m.Taken(rows, False, newest, {}))
            case m.AskData() if self.batches:
                return Reply(m.Data(self.batches_each, 100), self.batches.pop(0))
            case m.AskData():
                return Reply(m.Wait(0.0, True, 'there are no more data'))
            case m.Finished():
                self.finished.append(message)
            case m.Farewell(produced=produced):
                self.produced = produced
        return Reply(self.orders)
