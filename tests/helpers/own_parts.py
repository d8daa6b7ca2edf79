"""One part of each kind, in a module of the working directory: tests copy this file there, under another name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from rlframe.data import EnvSpec
from rlframe.model.core import MLP
from rlframe.policy.dqn import DQNPolicy, DQNUpdate
from rlframe.registry import (
    BUFFER_REGISTRY,
    EVAL_METRIC_REGISTRY,
    HOOK_REGISTRY,
    LOGGER_REGISTRY,
    MODEL_REGISTRY,
    POLICY_REGISTRY,
    SERIAL_COLLECTOR_REGISTRY,
    SERIAL_EVALUATOR_REGISTRY,
)
from rlframe.run.logger import Logger, Record
from rlframe.utils.field import Field
from rlframe.worker import LearnerHook, register_learner_hook
from rlframe.worker.collector.serial_collector import SampleSerialCollector
from rlframe.worker.evaluator.eval_metric import EvalMetric, PlayedEpisodes
from rlframe.worker.evaluator.serial_evaluator import InteractionSerialEvaluator
from rlframe.worker.hooks import RunHook
from rlframe.worker.replay_buffer.buffer import NaiveReplayBuffer


class MyEnv(gymnasium.Env[Any, Any]):
    """A walk of ten steps, in which the second action is rewarded."""

    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {'render_modes': ['rgb_array'], 'render_fps': 5}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self.np_random.random(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self.np_random.random(3, np.float32), float(action), self._steps == 10, False, {}

    def render(self) -> Any:
        return np.zeros((32, 32, 3), np.uint8)


gymnasium.register('Mine-v0', lambda **kwargs: MyEnv(**kwargs))


class MyUpdate(DQNUpdate):
    """DQN whose loss has a weight."""

    def loss(self, rows: Any) -> Any:
        loss = super().loss(rows)
        return loss._replace(value=self.cfg.learn['my_scale'] * loss.value)


@POLICY_REGISTRY.register('my_policy')
class MyPolicy(DQNPolicy):
    """DQN with an option of its own."""

    update_class = MyUpdate
    config = dict(learn=dict(my_scale=Field(2.0, range='(0, inf)', doc='of the loss')))


@MODEL_REGISTRY.register('my_network')
class MyNetwork(nn.Module):
    """A Q-network with an option of its own, and without those of others."""

    def __init__(self, spec: EnvSpec, my_width: int = 8, **others: Any) -> None:
        super().__init__()
        self.body = MLP(spec.observation_space, (my_width,), 'relu')
        self.head = nn.Linear(self.body.out_size, int(spec.action_space.n))  # type: ignore[attr-defined]

    def forward(self, obs: Any) -> torch.Tensor:
        values: torch.Tensor = self.head(self.body(obs))
        return values


@BUFFER_REGISTRY.register('my_buffer')
class MyBuffer(NaiveReplayBuffer):
    """An ordinary one."""


@SERIAL_COLLECTOR_REGISTRY.register('my_collector')
class MyCollector(SampleSerialCollector):
    """An ordinary one."""


@SERIAL_EVALUATOR_REGISTRY.register('my_evaluator')
class MyEvaluator(InteractionSerialEvaluator):
    """An ordinary one."""


@EVAL_METRIC_REGISTRY.register('my_metric')
class MyMetric(EvalMetric):
    """The largest return."""

    def measure(self, episodes: PlayedEpisodes) -> Mapping[str, float]:
        return {'my_largest': float(episodes.returns.max())}


@HOOK_REGISTRY.register('my_hook')
class MyHook(RunHook):
    """Counts rounds."""

    rounds = 0

    def after_round(self, run: Any) -> None:
        self.rounds += 1


@register_learner_hook('my_learner_hook')
class MyLearnerHook(LearnerHook):
    """Counts updates."""

    position = 'after_iter'
    updates = 0

    def __call__(self, learner: Any) -> None:
        self.updates += 1


@LOGGER_REGISTRY.register('my_logger')
class MyLogger(Logger):
    """Writes the names of all numbers to a file."""

    def write(self, record: Record) -> None:
        with (self._run.folder / 'mine.txt').open('a') as file:
            file.write(f'{record.envstep} {sorted(record.values)}\n')
