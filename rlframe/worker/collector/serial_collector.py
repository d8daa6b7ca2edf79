"""The collectors of training samples and of whole episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from rlframe.data.timestep import Array, Batch, BoolArray, IntArray
from rlframe.data.trajectory import TrajectoryRecorder
from rlframe.errors import ConfigError
from rlframe.registry import SERIAL_COLLECTOR_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.schema import FLAG, check_state
from rlframe.worker.collector.base_serial_collector import SerialCollector, SerialCollectorConfig
from rlframe.worker.collector.episode_log import episode_quota
from rlframe.worker.collector.rollout import Step, rows_of

UNKNOWN = np.int64(-1)
"""Value of the column ``seed`` for rows whose level is unknown."""


@SERIAL_COLLECTOR_REGISTRY.register('sample')
class SampleSerialCollector(SerialCollector):
    """Collects until ``n_sample`` training samples exist.

    For an off-policy policy, samples beyond ``n_sample`` and incomplete n-step windows are carried over to the next
    call. For an on-policy one, a call takes ``n_sample / N`` new steps in each of the N envs and carries nothing over;
    a dropped env takes none, so there are fewer rows. A vector env whose automatic reset costs a step cannot wait for
    its slower envs: a call then steps all of them until ``n_sample`` is reached and returns all rows, up to N - 1 more.
    """

    _has_levels = False  # whether rows have the column ``seed``
    _priority_of: Any = None  # function of the policy that returns the priorities of new samples

    def _begin(self) -> None:
        super()._begin()
        self._has_levels = False

    def reset_policy(self, _policy: Any = None) -> None:
        super().reset_policy(_policy)
        self._priority_of = self._attribute('priority_of', None)

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
        target = self._target(n_sample)
        stamp = np.full(self._env.env_num, train_iter, np.int32)
        levels = self._levels(level_seeds)
        settings = self._settings(policy_kwargs)
        start = perf_counter()
        if self._on_policy:
            samples = self._collect_block(target, settings, stamp, levels)
        else:
            while len(self._recorder) < target:
                self._record(self._rollout.step(**settings), stamp, levels, target)
            samples = self._recorder.take(target if drop_extra else None)
            if self._priority_of is not None:
                samples = samples.replace(priority=self._priority_of(samples))
        self._log.seconds += perf_counter() - start
        self._check_lengths()
        if random_collect and not record_random_collect:
            self._log.forget_recent()
        else:
            self._log.report(train_iter, self._more_metrics)
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
        return np.array([given[env] for env in range(env_num)], np.int64)

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
                self._episode_start[step.finished] = self._recorder.samples_per_env()[step.finished]
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
        return self._episode_start[env_id] if self._on_policy else None


class EpisodeCollectorConfig(SerialCollectorConfig):
    """Options of ``EpisodeSerialCollector``."""

    get_train_sample: bool = option(
        False, doc='return training samples, made of each episode, instead of episodes'
    )
    reward_shaping: bool = option(
        False, doc="give each episode to the policy's attribute `reward_shaping` first"
    )


@SERIAL_COLLECTOR_REGISTRY.register('episode')
class EpisodeSerialCollector(SerialCollector):
    """Collects ``n_episode`` complete episodes, an equal share from each env.

    Every episode of a call starts in it, and only as many are started as are returned: the share of each env is fixed
    in advance, and its first episodes count, so no episode length is favoured. With fewer episodes than envs the last
    envs are not used. An episode that an env declares abnormal is discarded and replaced by another. Nothing is carried
    over to the next call. A vector env that cannot wait also steps the envs that are done with their share: those steps
    count in ``envstep`` and in ``discarded``.
    """

    _cfg: EpisodeCollectorConfig
    unit = 'n_episode'

    def collect(
        self,
        n_episode: int | None = None,
        train_iter: int = 0,
        policy_kwargs: Mapping[str, Any] | None = None,
        *,
        random_collect: bool = False,
        record_random_collect: bool = True,
    ) -> list[Batch] | Batch:
        """Collects complete episodes.

        Args:
            n_episode: Number of episodes; by default, the policy's ``n_episode``.
            train_iter: Train iterations so far, stored in the column ``collect_iter``.
            policy_kwargs: Arguments of the policy's ``forward``, such as ``eps``.
            random_collect: Whether actions are random, before training.
            record_random_collect: Whether the metrics include episodes of random collection.

        Returns:
            The episodes in the order in which they ended, each with columns [T, ...]; only the last row is done. With
            ``get_train_sample``, one ``Batch`` of training samples: an on-policy policy makes them from each episode
            [T, 1, ...]; for other policies they are the rows, as n-step windows.

        Raises:
            EpisodeTooLongError: If an env does not end its episode.
            ValueError: If the number of episodes is unknown or less than 1.
            ConfigError: If reward shaping is on and the policy has no attribute ``reward_shaping``.
        """
        target = self._target(n_episode)
        quota = episode_quota(self._env.env_num, target)
        stamp = np.full(len(quota), train_iter, np.int32)
        settings = self._settings(policy_kwargs)
        start = perf_counter()
        self._begin_anew()
        episodes = self._play(quota, stamp, settings)
        self._is_fresh = bool(self._env.can_hold)
        collected: list[Batch] | Batch = self._shaped(episodes, self._policy)
        self._log.seconds += perf_counter() - start
        if random_collect and not record_random_collect:
            self._log.forget_recent()
        else:
            self._log.report(train_iter, self._more_metrics)
        return collected

    def _begin(self) -> None:
        super()._begin()
        self._is_fresh = True  # whether every env waits at the start of an episode

    def _begin_anew(self) -> None:
        """Starts a new episode in all envs, unless they are already at the start of one."""
        if not self._is_fresh:
            self.discarded += self._recorder.clear()
            self._log.forget(np.arange(self._env.env_num))
            self._env.reset()
            self._policy.reset(None)
        self._is_fresh = False

    def _play(self, quota: IntArray, stamp: Array, settings: Mapping[str, Any]) -> list[Batch]:
        """Plays the first ``quota`` [N] episodes of each env and returns them in the order in which they ended."""
        rows = np.zeros(len(quota), np.int64)  # of each env, [N]
        # rows of each env before its running episode, [N]
        self._episode_start = np.zeros(len(quota), np.int64)
        ended: list[tuple[int, int, int]] = []
        while quota.any():
            step = self._counted(self._rollout.step(self._acting(quota), **settings), quota > 0)
            self._record(step, stamp, None, 0)
            rows[step.timestep.env_id] += 1
            rows[step.abnormal] = self._episode_start[step.abnormal]
            for env in step.finished.tolist():
                ended.append((env, int(self._episode_start[env]), int(rows[env])))
                self._episode_start[env] = rows[env]
            quota[step.finished] -= 1
            self._share_out(quota)
            self._check_lengths()
        return self._recorder.take_episodes(ended)

    def _share_out(self, quota: IntArray) -> None:
        """Distributes the remaining episodes of dropped envs over the others."""
        alive = self._env.alive
        if len(alive) == len(quota):
            return
        owed = int(quota.sum() - quota[alive].sum())
        quota[~np.isin(np.arange(len(quota)), alive)] = 0
        if owed:
            quota[alive] += episode_quota(len(alive), owed)

    def _acting(self, quota: IntArray) -> IntArray | None:
        """Returns the ready envs with episodes left to play; None if all envs act."""
        if not self._env.can_hold or quota.all():
            return None
        ready: IntArray = self._env.ready
        return ready[quota[ready] > 0]

    def _counted(self, step: Step, owes: BoolArray) -> Step:
        """Removes the rows of envs that are done with their share, and counts them as discarded."""
        env_id = step.timestep.env_id
        keep, is_due = owes[env_id], owes[step.abnormal]
        if keep.all() and is_due.all():
            return step
        dropped = len(keep) - int(keep.sum())
        self._log.count(dropped)
        self.discarded += dropped + len(is_due) - int(is_due.sum())
        return rows_of(step, keep, step.abnormal[is_due])

    def _kept_samples(self, env_id: IntArray) -> IntArray:
        return self._episode_start[env_id]

    def _make_recorder(self, env_num: int, policy: Any = None) -> TrajectoryRecorder:
        return TrajectoryRecorder(env_num)

    def _shaped(self, episodes: Any, policy: Any) -> Any:
        """Returns episodes or, depending on the options, the policy's training samples of them."""
        if self._cfg.reward_shaping:
            shape = self._attribute('reward_shaping', None, policy)
            if not callable(shape):
                raise ConfigError(
                    "the policy has no attribute 'reward_shaping'",
                    where='policy.collect.collector.reward_shaping',
                    got=True,
                    expected='False',
                    remedy='Give it _get_reward_shaping(), which returns a function of an episode (a Batch) that returns'
                    ' it with other rewards.',
                )
            episodes = [shape(episode) for episode in episodes]
        return self._train_samples(episodes, policy) if self._cfg.get_train_sample else episodes

    def _train_samples(self, episodes: list[Batch], policy: Any) -> Batch:
        if self._attribute('on_policy', False, policy):
            blocks = (episode.map(lambda column: column[:, None]) for episode in episodes)
            return Batch.cat([policy.get_train_sample(block) for block in blocks])
        if self._attribute('nstep', 1, policy) == 1:
            return Batch.cat(episodes)
        return replay(episodes, super()._make_recorder(len(episodes), policy))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), 'is_fresh': self._is_fresh}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'is_fresh': FLAG})
        super().load_state_dict(state)
        self._is_fresh = state['is_fresh']


def replay(episodes: list[Batch], recorder: TrajectoryRecorder) -> Batch:
    """Returns the training samples that a recorder makes from episodes, each treated as an env."""
    length = np.array([len(episode) for episode in episodes])
    start = np.cumsum(length) - length
    rows = dict(Batch.cat(episodes).items())
    for t in range(int(length.max())):
        running = np.flatnonzero(length > t)
        now = {name: column[start[running] + t] for name, column in rows.items()}
        recorder.append(now, running, length[running] == t + 1, int(length.sum()))
    return recorder.take()
