"""An aggregator with learners whose gradient steps can be calculated by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from parallel_parts import PATIENCE, ScriptedCoordinator

from rlframe.data import Batch
from rlframe.data.faces import LearnMode
from rlframe.parallel.comm_learner import LearnerParts, TransportLearner
from rlframe.worker import BaseLearner, LearnerAggregator

QUICK = {'wait': 0.002, 'beat_interval': 0.05}


class Descent:
    """Fits a line by plain gradient descent on the mean squared error."""

    def __init__(self, start: float = 1.0, lr: float = 0.1, times: int = 1) -> None:
        self.times = times
        self.weight, self.target, self.lr = torch.full((1,), start), torch.zeros(1), lr
        self.updates = 0

    def forward(self, data: Batch) -> Any:
        return self._descend(data) if self.times == 1 else (self._descend(data) for _ in range(self.times))

    def _descend(self, data: Batch) -> dict[str, Any]:
        x, y = torch.as_tensor(data['x']), torch.as_tensor(data['y'])
        gradient = (2 * (self.weight * x - y) * x).mean()
        self.weight = self.weight - self.lr * gradient
        self.target = self.weight.clone()
        self.updates += 1
        return {
            'loss': float(gradient),
            **({'priority': np.asarray(data['x'])} if 'replay_buffer_idx' in data else {}),
        }

    def state_dict(self) -> dict[str, Any]:
        return {'model': {'w': self.weight}, 'target_model': {'w': self.target}, 'momentum': self.updates}

    def load_state_dict(self, state: Any) -> None:
        self.weight, self.target = state['model']['w'].clone(), state['target_model']['w'].clone()
        self.updates = state['momentum']

    def get_attribute(self, name: str) -> Any:
        if name == 'networks':
            return ('model', 'target_model')
        if name == 'batch_size':
            return 4
        raise AttributeError(name)

    @property
    def learn_mode(self) -> LearnMode:
        return LearnMode(self.forward, lambda *_: None, lambda: 'line', list, self.get_attribute, None,
                         self.state_dict, self.load_state_dict)  # fmt: skip


class Face:
    """What collectors get of it."""

    def __init__(self, policy: Descent) -> None:
        self._policy = policy

    def state_dict(self) -> dict[str, Any]:
        return {'model': {'w': self._policy.weight}}

    def get_attribute(self, name: str) -> Any:
        raise AttributeError(name)


def descending(start: float = 1.0, times: int = 1) -> Any:
    def make(rank: int, incarnation: int) -> LearnerParts:
        policy = Descent(start, times=times)
        hook = {'save_ckpt_after_run': False, 'save_ckpt_after_iter': None, 'log_show_after_iter': None}
        return LearnerParts(BaseLearner({'hook': hook, 'log_policy': False}, policy.learn_mode), Face(policy))

    return make


def lines(count: int, rows: int = 8, seed: int = 0) -> list[Batch]:
    """Returns batches of points near a line."""
    rng = np.random.default_rng(seed)
    xs = rng.normal(size=(count, rows)).astype(np.float32)
    return [Batch(x=x, y=(3 * x).astype(np.float32), replay_buffer_idx=np.arange(rows)) for x in xs]


def whole(batches: list[Batch]) -> float:
    """Returns the weight after gradient descent on whole batches."""
    policy = Descent()
    for batch in batches:
        policy.forward(batch)
    return float(policy.weight)


class Team:
    """An aggregator in a thread, and learners that join it."""

    def __init__(
        self, coordinator: ScriptedCoordinator, make: Any, learners: int, server: Any = None, **options: Any
    ) -> None:
        transport = coordinator.server.connect()
        cfg = {'learner_num': learners, **QUICK, **options}
        self.aggregator = LearnerAggregator(cfg, server=server, transport=transport, name='all')
        self.make = make
        turns = {'lockstep': options.get('lockstep', False)}
        self.learners = [self.learner(f'l{i}', **turns) for i in range(learners)]

    def learner(self, name: str, make: Any = None, **options: Any) -> TransportLearner:
        """Returns a learner that has not started."""
        link = self.aggregator.server.connect()
        return TransportLearner(options, make_learner=make or self.make, transport=link, name=name)

    def run(self) -> None:
        """Runs everything until the coordinator ends it."""
        for one in self.learners:
            one.start()
        try:
            self.aggregator.run()
        finally:
            for one in self.learners:
                assert one.wait(PATIENCE)


@contextmanager
def started(team: Team) -> Iterator[Team]:
    """Starts aggregator and learners, and closes them."""
    team.aggregator.start()
    for one in team.learners:
        one.start()
    try:
        yield team
    finally:
        team.aggregator.close()
        for one in team.learners:
            one.close()
