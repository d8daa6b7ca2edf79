"""A collector, an evaluator, a replay buffer and a hook that define only what their interfaces require."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data import Batch
from rlframe.utils.seed import COLLECT, EVALUATE, env_seed
from rlframe.worker import IBuffer, ISerialCollector, ISerialEvaluator, LearnerHook


class MinimalCollector(ISerialCollector):
    """Steps all envs until it has enough rows."""

    def reset_env(self, _env: Any = None) -> None:
        if _env is not None:
            self._env = _env
            _env.launch()
        self._env.reset(seed=[env_seed(self._seed, self._rank, i, COLLECT) for i in range(self._env.env_num)])

    def collect(
        self,
        per_collect_target: int | None = None,
        train_iter: int = 0,
        policy_kwargs: Mapping[str, Any] | None = None,
        *,
        random_collect: bool = False,
        record_random_collect: bool = True,
    ) -> Batch:
        target, count, found = per_collect_target or self._policy.get_attribute('n_sample'), 0, []
        while count < target:
            env_id, obs = self._env.ready, self._env.obs.copy()
            output = self._policy.forward(obs, env_id, **(policy_kwargs or {}))
            timestep = self._env.step(output['action'], env_id)
            rows = self._policy.process_transition(obs, output, timestep)
            found.append(Batch({name: np.array(column) for name, column in rows.items()}))
            if len(done := env_id[timestep.done]):
                self._env.reset(done)
                self._policy.reset(done)
            count += len(env_id)
        self._progress.envstep += count
        return Batch.cat(found)

    def state_dict(self) -> dict[str, Any]:
        return {'env': self._env.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._env.load_state_dict(state['env'])


class MinimalEvaluator(ISerialEvaluator):
    """Plays one episode in each env."""

    def reset_env(self, _env: Any = None) -> None:
        if _env is not None:
            self._env = _env
            _env.launch()

    def eval(
        self, save_ckpt_fn: Any = None, train_iter: int = -1, envstep: int = -1, n_episode: int | None = None
    ) -> tuple[bool, dict[str, Any]]:
        env, busy = self._env, np.arange(self._env.env_num)
        env.reset(seed=[env_seed(self._seed, 0, i, EVALUATE) for i in range(env.env_num)])
        self._policy.reset(None)
        returns = np.zeros(env.env_num)
        while len(busy):
            timestep = env.step(self._policy.forward(env.obs[busy], busy)['action'], busy)
            returns[busy] += timestep.reward
            busy = busy[~timestep.done]
        return self.judge(returns.mean(), save_ckpt_fn, train_iter), {'eval_episode_return': returns.tolist()}

    def close(self) -> None:
        self._env.close()


class MinimalBuffer(IBuffer):
    """Keeps everything."""

    _rows: Batch | None = None

    def push(self, data: Any, cur_collector_envstep: int) -> int:
        self._rows = data if self._rows is None else Batch.cat([self._rows, data])
        return len(data)

    def update(self, info: Mapping[str, Any]) -> None: ...

    def sample(self, batch_size: int, cur_learner_iter: int) -> Batch | None:
        if self._rows is None:
            return None
        return self._rows[self._rng.integers(len(self._rows), size=batch_size)]

    def clear(self) -> None:
        self._rows = None

    def count(self) -> int:
        return 0 if self._rows is None else len(self._rows)

    def state_dict(self) -> dict[str, Any]:
        rows = None if self._rows is None else dict(self._rows.items())
        return {'rows': rows, 'rng': self._rng.bit_generator.state}

    def load_state_dict(self, _state_dict: Mapping[str, Any]) -> None:
        self._rows = None if _state_dict['rows'] is None else Batch(_state_dict['rows'])
        self._rng.bit_generator.state = _state_dict['rng']


class MinimalHook(LearnerHook):
    """Counts its calls."""

    position = 'after_iter'
    calls = 0

    def __call__(self, learner: Any) -> None:
        self.calls += 1
