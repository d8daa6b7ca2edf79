"""The collector of training samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.data.batch import Batch
from rlframe.data.timestep import Array, IntArray
from rlframe.registry import SERIAL_COLLECTOR_REGISTRY
from rlframe.utils.schema import FLAG, check_state
from rlframe.worker.collector.base_serial_collector import SerialCollector

UNKNOWN = np.int64(-1)
"""Value of the column ``seed`` for rows whose level is unknown."""


@SERIAL_COLLECTOR_REGISTRY.register('sample')
class SampleSerialCollector(SerialCollector):
    """Collects until ``n_sample`` training samples exist; trajectories are cut every ``unroll_len`` steps.

    For an off-policy policy, samples beyond ``n_sample`` and incomplete n-step windows are carried over to the next
    call. For an on-policy one, a call takes ``n_sample / N`` new steps in each of the N envs and carries nothing over;
    a dropped env takes none, so there are fewer rows. A vector env whose automatic reset costs a step cannot wait for
    its slower envs: a call then steps all of them until ``n_sample`` is reached and returns all rows, up to N - 1 more.
    """

    _has_levels = False  # whether rows have the column ``seed``

    def _begin(self) -> None:
        super()._begin()
        self._has_levels = False

    def collect(
        self,
        n_sample: int | None = None,
        train_iter: int = 0,
        drop_extra: bool = True,
        random_collect: bool = False,
        record_random_collect: bool = True,
        policy_kwargs: Mapping[str, Any] | None = None,
        level_seeds: Mapping[int, int] | Sequence[int] | None = None,
    ) -> Batch:
        """Collects training samples.

        Args:
            n_sample: Number of samples; by default, the policy's ``n_sample``.
            train_iter: Train iterations so far, stored in the column ``collect_iter``.
            drop_extra: Whether to return exactly ``n_sample`` samples and carry the rest over, instead of returning
                all.
            random_collect: Whether actions are random, before training.
            record_random_collect: Whether the metrics include episodes of random collection.
            policy_kwargs: Arguments of the policy's ``forward``, such as ``eps``.
            level_seeds: Level of each env, as a dict from env id to seed or as a list [N]; stored in the column
                ``seed``. Once given, the column stays: it is -1 in rows from calls without it.

        Returns:
            Samples [n_sample] in the order of their completion.

        Raises:
            EpisodeTooLongError: If an env does not end its episode.
            ValueError: If the number of samples is unknown, less than 1 or, for an on-policy policy, not divisible by
                the number of envs; if ``level_seeds`` does not match the envs.
        """
        target = self._target('n_sample', n_sample)
        stamp = np.full(self._env.env_num, train_iter, np.int32)
        levels = self._levels(level_seeds)
        settings = dict(policy_kwargs or {})
        with self._meter.timed():
            if self._attribute('on_policy', False):
                samples = self._collect_block(target, settings, stamp, levels)
            else:
                while len(self._recorder) < target:
                    self._record(self._rollout.step(**settings), stamp, levels, target)
                samples = self._recorder.take(target if drop_extra else None)
        self._check_lengths()
        if random_collect and not record_random_collect:
            self._log.forget_recent()
        else:
            self._report(train_iter)
        return samples

    def _levels(self, given: Mapping[int, int] | Sequence[int] | None) -> IntArray | None:
        """Returns the level of each env, [N], -1 if unknown; None if levels were never given."""
        env_num = self._env.env_num
        if given is None:
            return np.full(env_num, UNKNOWN) if self._has_levels else None
        ids = list(given) if isinstance(given, Mapping) else list(range(len(given)))
        if sorted(ids) != list(range(env_num)):
            raise ValueError(
                f'level_seeds needs one seed for each of the {env_num} envs, 0 to {env_num - 1}; got seeds for the envs {ids}'
            )
        if not self._has_levels:
            self._has_levels = True
            self._recorder.add_column('seed', UNKNOWN)
        levels: IntArray = np.array([given[env] for env in range(env_num)], np.int64)
        return levels

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | ({'levels': True} if self._has_levels else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'levels?': FLAG})
        super().load_state_dict(state)
        self._has_levels = bool(state.get('levels', False))

    def _collect_block(
        self, target: int, settings: Mapping[str, Any], stamp: Array, levels: Array | None
    ) -> Batch:
        """Takes ``target`` new steps, the same number in each env, and returns the policy's training samples of them.

        If envs were dropped, the others take no additional steps: the block is smaller.
        """
        steps, rest = divmod(target, self._env.env_num)
        if rest:
            raise ValueError(
                f'on-policy collection takes the same number of steps of each env: n_sample={target} is not divisible by'
                f' {self._env.env_num} envs; {target - rest} and {target - rest + self._env.env_num} are'
            )
        # rows of each env before its running episode, [N]
        self._episode_start = np.zeros(self._env.env_num, np.int64)
        while len(self._recorder) < self._rows_due(steps):
            step = self._rollout.step(self._behind(steps), **settings)
            self._record(step, stamp, levels, target)
            if len(step.finished):
                self._episode_start = np.where(
                    np.isin(np.arange(self._env.env_num), step.finished),
                    self._recorder.samples_per_env(),
                    self._episode_start,
                )
        samples: Batch = self._policy.get_train_sample(self._recorder.take_block())
        return samples

    def _rows_due(self, steps: int) -> int:
        """Returns the rows of a block: ``steps`` of each active env, and all rows of the dropped ones."""
        alive = self._env.alive
        if len(alive) == self._env.env_num:
            return steps * len(alive)
        have = self._recorder.samples_per_env()
        return int(steps * len(alive) + have.sum() - have[alive].sum())

    def _behind(self, steps: int) -> IntArray | None:
        """Returns the ready envs that have fewer than ``steps`` rows; None if those are all envs."""
        if not self._env.can_hold or (
            self._recorder.in_order and len(self._recorder) % self._env.env_num == 0
        ):
            return None
        ready: IntArray = self._env.ready
        return ready[self._recorder.samples_per_env()[ready] < steps]

    def _kept_samples(self, env_id: IntArray) -> IntArray | None:
        return self._episode_start[env_id] if self._attribute('on_policy', False) else None
