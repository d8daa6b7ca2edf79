"""A user's program that registers all of its components itself, in no module that an actor could import."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np

from rlframe import config
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import SerializationError
from rlframe.model.q_net import QNet
from rlframe.pipeline import SerialPipeline
from rlframe.policy.dqn import DQNPolicy
from rlframe.registry import (
    ENV_REGISTRY,
    MODEL_REGISTRY,
    POLICY_REGISTRY,
    SERIAL_COLLECTOR_REGISTRY,
    SERIAL_EVALUATOR_REGISTRY,
)
from rlframe.worker import InteractionSerialEvaluator, SampleSerialCollector

PLACE = 3.0
LOCK = threading.Lock()


class Still(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.full(2, PLACE, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.full(2, PLACE, np.float32), 1.0, self.steps >= 5, False, {}


gymnasium.register('Still-v0', Still)


@ENV_REGISTRY.register('own')
class OwnFactory(GymEnvFactory):
    pass


@MODEL_REGISTRY.register('own')
class OwnNet(QNet):
    pass


@POLICY_REGISTRY.register('own')
class OwnPolicy(DQNPolicy):
    default_network = 'own'

    def forward_collect(self, obs: Any, env_id: Any, **settings: Any) -> Any:
        assert type(self.model).__name__ == 'OwnNet' and obs[0, 0] == PLACE
        return super().forward_collect(obs, env_id, **settings)


@SERIAL_COLLECTOR_REGISTRY.register('own')
class OwnCollector(SampleSerialCollector):
    pass


@SERIAL_EVALUATOR_REGISTRY.register('own')
class OwnEvaluator(InteractionSerialEvaluator):
    pass


def compiled() -> Any:
    ray = dict(num_cpus=6, object_store_memory=10**8)
    main = dict(
        exp_name='own',
        env=dict(env_id='Still-v0', stop_value=1e9, collector_env_num=2, evaluator_env_num=2),
        policy=dict(cuda=False, collect=dict(n_sample=16), learn=dict(batch_size=16)),
    )
    create = dict(
        env=dict(type='own'),
        env_manager=dict(type='subprocess', worker_num=1),
        policy=dict(type='own'),
        collector=dict(type='own', backend='ray', num_collectors=2, ray_init_config=ray),
        evaluator=dict(type='own', backend='ray', eval_freq=20, n_episode=2),
    )
    return config.compile_config(main, create, max_train_iter=40)


if __name__ == '__main__':
    with SerialPipeline(compiled()) as pipeline:
        pipeline.run()
        print('trained', pipeline.progress.train_iter, 'return', pipeline.evaluator.latest)

        @SERIAL_COLLECTOR_REGISTRY.register('locked')
        class Locked(SampleSerialCollector):
            lock = LOCK

        try:
            SerialPipeline(compiled())
        except SerializationError as error:
            print(error)
