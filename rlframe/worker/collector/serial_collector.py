"""The public serial collectors: a rule for when a call has enough, on the shared body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.data.batch import Batch
from rlframe.data.timestep import Array, IntArray
from rlframe.registry import SERIAL_COLLECTOR_REGISTRY
from rlframe.worker.collector.base_serial_collector import SerialCollector

UNKNOWN = np.int64(-1)
"""Value in the column ``seed`` if the level of a row is unknown."""


@SERIAL_COLLECTOR_REGISTRY.register('sample')
class SampleSerialCollector(SerialCollector):
    """Collects until ``n_sample`` training samples exist; trajectories are cut every ``unroll_len`` steps.

    For an off-policy policy, what is collected beyond ``n_sample`` and what waits in an n-step window is carried over to
    the next call. For an on-policy one a call takes ``n_sample / N`` fresh steps of each of the N envs and carries
    nothing; an env that was given up takes none, so that there are fewer rows. A vector env that resets itself at the cost of a step cannot wait for its slower envs: there a call takes
    whole steps until ``n_sample`` is reached and returns all their rows, up to N - 1 more.
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
            n_sample: How many; the policy's ``n_sample`` where not given.
            train_iter: Train iterations so far; it becomes the column ``collect_iter``.
            drop_extra: Whether to return exactly ``n_sample`` and carry the surplus over, instead of returning all.
            random_collect: Whether this call collects at random, before training.
            record_random_collect: Whether episodes of a random call count in the metrics.
            policy_kwargs: Arguments of the policy's ``forward``, such as ``eps``.
            level_seeds: Level of each env, as a dict from env id to seed or as a list [N]; it becomes the column ``seed``. Once
                given, the column stays: it is -1 in rows that were stepped in a call without it.

        Returns:
            Samples [n_sample] in the order in which they were completed.

        Raises:
            EpisodeTooLongError: If an env does not end its episode.
            ValueError: If no number of samples is known, it is less than 1, or an on-policy one does not divide evenly; if
                ``level_seeds`` lacks an env or has one too many.
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
        """Returns the level of each env, [N], -1 where it is not known; None before any was ever given."""
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
        super().load_state_dict(state)
        self._has_levels = bool(state.get('levels', False))

    def _collect_block(
        self, target: int, settings: Mapping[str, Any], stamp: Array, levels: Array | None
    ) -> Batch:
        """Takes ``target`` fresh steps, the same number of each env, and asks the policy for their training samples.

        Where envs were given up, the others take no more steps than before: the block is that much smaller.
        """
        steps, rest = divmod(target, self._env.env_num)
        if rest:
            raise ValueError(
                f'on-policy collection takes the same number of steps of each env: n_sample={target} is not divisible by'
                f' {self._env.env_num} envs; {target - rest} and {target - rest + self._env.env_num} are'
            )
        self._episode_start = np.zeros(
            self._env.env_num, np.int64
        )  # rows of each env before its running episode, [N]
        while len(self._recorder) < self._rows_due(steps):
            step = self._rollout.step(self._behind(steps), **settings)
            self._record(step, stamp, levels, target)
            if len(step.finished):
                self._episode_start = np.where(
                    np.isin(np.arange(self._env.env_num), step.finished),
                    self._recorder.samples_per_env(),
                    self._episode_start,
                )
        return self._policy.get_train_sample(self._recorder.take_block())

    def _rows_due(self, steps: int) -> int:
        """Returns the rows of a block: ``steps`` of each env that is alive, and what the others have."""
        alive = self._env.alive
        if len(alive) == self._env.env_num:
            return steps * len(alive)
        have = self._recorder.samples_per_env()
        return int(steps * len(alive) + have.sum() - have[alive].sum())

    def _behind(self, steps: int) -> IntArray | None:
        """Returns the ready envs that have fewer than ``steps`` rows; None where those are all envs."""
        if not self._env.can_hold or (
            self._recorder.in_order and len(self._recorder) % self._env.env_num == 0
        ):
            return None
        ready = self._env.ready
        return ready[self._recorder.samples_per_env()[ready] < steps]

    def _kept_samples(self, env_id: IntArray) -> IntArray | None:
        return self._episode_start[env_id] if self._attribute('on_policy', False) else None
