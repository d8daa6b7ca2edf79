"""A coordinator with several learners whose gradient steps can be calculated by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from parallel_parts import PATIENCE, wait_until

from rlframe.data import Batch
from rlframe.data.faces import LearnMode
from rlframe.parallel.comm_learner import LearnerParts, TransportLearner
from rlframe.parallel.coordinator.assembly import CoordinatedRun, TrainingData
from rlframe.parallel.coordinator.base_parallel_commander import BaseParallelCommander
from rlframe.parallel.transport.answering import InProcessServer
from rlframe.parallel.transport.messages import Task
from rlframe.worker import BaseLearner, Coordinator, LearnerAggregator

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


class SteadyCommander(BaseParallelCommander):
    """Lets collectors collect and learners learn, and never evaluates."""

    def _next_collector_job(self, situation: Any) -> Task | None:
        job = Task(self._name_task('collect'), 'collect', ['test'], [True], 'test', parts=1)
        return None if situation.spent else job

    def _next_learner_job(self, situation: Any) -> Task | None:
        job = Task(self._name_task('learn'), 'learn', ['test'], [True], 'test')
        return None if situation.is_over else job


class Record(CoordinatedRun):
    """A run that ends when all data are used, and keeps what a coordinator tells it."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, Any, Any]] = []
        """Train iterations, published weights and training variables after each round."""
        self.states: list[tuple[int, Any]] = []
        """Train iterations and states for checkpoints."""
        self.coordinator: Any = None

    def is_spent(self, progress: Any, updates_due: int) -> bool:
        return True

    def learned(self, info: Any, progress: Any) -> None:
        newest = self.coordinator.weights['test']
        assert newest.version == newest.train_iter == progress.train_iter
        self.reports.append((progress.train_iter, newest.weights, info))

    def take_state(self, state: Any, train_iter: int) -> None:
        self.states.append((train_iter, state))


class Team:
    """A coordinator with data, and learners that join it."""

    def __init__(self, batches: list[Batch], learners: int, server: Any = None, **options: Any) -> None:
        waits = {name: options.pop(name) for name in ('start_timeout',) if name in options}
        self.aggregator = LearnerAggregator({'learner_num': learners, **waits})
        data = TrainingData(None)
        for batch in batches:
            data.push(len(batch), batch, 0)
        self.record = Record()
        self.coordinator = self.record.coordinator = Coordinator(
            {**QUICK, **options},
            server=server or InProcessServer(),
            commander=SteadyCommander(),
            data=data,
            run=self.record,
            team=self.aggregator,
            name='test',
        )
        self.coordinator.start()
        self.learners = [self.learner(f'l{i}') for i in range(learners)]

    def learner(self, name: str, make: Any = None) -> TransportLearner:
        """Returns a learner that has not started."""
        link = self.coordinator.server.connect()
        return TransportLearner({}, make_learner=make or descending(), transport=link, name=name)

    def __enter__(self) -> Team:
        for one in self.learners:
            one.start()
        return self

    def __exit__(self, *exception: object) -> None:
        for one in self.learners:
            one.close()
        self.coordinator.close()

    def until(self, condition: Any) -> None:
        """Waits for the learners, and looks after them meanwhile."""

        def holds() -> Any:
            self.coordinator.check()
            return condition()

        wait_until(holds)

    def run(self) -> None:
        """Runs everything until all data are used and all learners have left."""
        with self:
            self.until(lambda: self.coordinator.reason and not self.coordinator.workers.by_id)
            assert all(one.wait(PATIENCE) for one in self.learners)
