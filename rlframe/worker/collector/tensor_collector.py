"""The collector of training samples that stay on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.batch import Batch
from rlframe.data.timestep import IntArray
from rlframe.errors import IncompatibleError
from rlframe.registry import SERIAL_COLLECTOR_REGISTRY
from rlframe.utils.field import Field
from rlframe.utils.seed import env_seed
from rlframe.worker.collector.base_serial_collector import SerialCollector
from rlframe.worker.collector.episode_log import EpisodeLog, too_long
from rlframe.worker.collector.tensor_rollout import Block, TensorRollout

ACTIONS = 'actions'
"""Purpose of the seed of the generator that draws actions."""
NO_INFOS = Field(
    None,
    type=(str, list, type(None)),
    doc='None: infos of envs of tensors are not read',
    check=lambda value: '' if value is None else 'None: infos of envs of tensors are not read',
)
NO_MARKS = Field(False, choices=(False,), doc='False: these rows go to no replay buffer')


@SERIAL_COLLECTOR_REGISTRY.register('tensor')
class TensorSerialCollector(SerialCollector):
    """Collects ``n_sample / N`` steps of each of N envs of tensors, for a policy that learns from fresh data.

    Observations, actions and training samples stay on the device of envs and policy, and no step waits for it. Returns and
    lengths of episodes are read once per call.
    """

    config = dict(info_metrics=NO_INFOS, mark_episodes=NO_MARKS)

    def reset_env(self, _env: Any = None) -> None:
        if _env is not None and not hasattr(_env, 'device_step'):
            raise IncompatibleError(
                f"the collector 'tensor' steps envs of tensors, and {type(_env).__name__} has none",
                where='env.manager.type',
                expected="'torch_vector'",
                got=type(_env).__name__,
            )
        super().reset_env(_env)

    def _begin(self) -> None:
        if self._env is None or self._policy is None:
            return
        seed = env_seed(self._seed, self._rank, 0, ACTIONS)
        self._rollout = TensorRollout(self._env, self._policy, seed)
        self._log = EpisodeLog(self._env.env_num, None)
        self._recorder = self._make_recorder(self._env.env_num)  # always empty: each call takes its own rows

    def collect(
        self,
        n_sample: int | None = None,
        train_iter: int = 0,
        policy_kwargs: Mapping[str, Any] | None = None,
    ) -> Batch:
        """Collects training samples.

        Args:
            n_sample: Number of env steps of all envs; by default, the policy's ``n_sample``.
            train_iter: Train iterations so far, stored in the column ``collect_iter``, an array.
            policy_kwargs: Arguments of the policy's ``forward``.

        Returns:
            The policy's training samples, tensors on the device.

        Raises:
            EpisodeTooLongError: If an env does not end its episode.
            ValueError: If the number of samples is unknown, less than 1 or not divisible by the number of envs.
        """
        target, env_num = self._target('n_sample', n_sample), self._env.env_num
        steps, rest = divmod(target, env_num)
        if rest or not steps:
            raise ValueError(
                f'collection takes the same number of steps of each env: n_sample={target} is not divisible by'
                f' {env_num} envs'
            )
        with self._meter.timed():
            block = self._rollout.block(steps, policy_kwargs or {}, self.on_step)
            samples: Batch = self._rollout.samples(block.rows)
        self._count(block)
        self._report(train_iter)
        return samples.replace(collect_iter=np.full(len(samples), train_iter, np.int32))

    def _count(self, block: Block) -> None:
        """Counts the steps and episodes of a block."""
        self._meter.count(block.rows['reward'].numel(), len(block.episodes))
        self._log.add(block.episodes)
        limit = self._cfg.max_episode_len
        if block.lengths.max() > limit:
            raise too_long(block.lengths, limit, 'policy.collect.collector')

    @property
    def unsaved(self) -> Mapping[int, str]:
        why = self._rollout.why_inexact
        return super().unsaved or (dict.fromkeys(range(self._env.env_num), why) if why else {})

    def _forget(self, env_id: IntArray) -> bool:
        if len(env_id):
            self._rollout.forget(env_id)
        return super()._forget(env_id)
