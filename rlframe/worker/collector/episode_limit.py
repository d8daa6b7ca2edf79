"""EpisodeLimit: cuts episodes that are too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlframe.data.timestep import EnvSpec, IntArray

if TYPE_CHECKING:
    from rlframe.worker.collector.rollout import Step

DEFAULT_LENGTH = 27_000
"""Maximum env steps of an evaluated episode without a time limit: half an hour of Atari, the usual limit there."""


class EpisodeLimit:
    """Marks steps as truncated when an episode reaches the maximum length, or a budget of env steps is spent.

    Args:
        spec: Spec of the envs; an env with its own time limit gets no other one by default.
        env_num: Number of envs, N.
        max_episode_len: Longest episode in env steps; None: none for envs with a time limit, else ``DEFAULT_LENGTH``.
        max_env_step: Env steps, over all envs, after which all episodes end; None: no limit.
    """

    def __init__(
        self, spec: EnvSpec, env_num: int, max_episode_len: int | None = None, max_env_step: int | None = None
    ) -> None:
        if max_episode_len is None and spec.max_episode_steps is None:
            max_episode_len = DEFAULT_LENGTH
        self.max_episode_len, self.max_env_step = max_episode_len, max_env_step
        self.env_step = 0
        """Env steps so far, over all envs."""
        self.cut: IntArray = np.zeros(0, np.int64)
        """The envs whose episode was cut in the last step, [n]."""
        self._lengths = np.zeros(env_num, np.int64)

    @property
    def is_spent(self) -> bool:
        """Whether the budget of env steps is spent."""
        return self.max_env_step is not None and self.env_step >= self.max_env_step

    def begin(self) -> None:
        """Counts new episodes in all envs."""
        self._lengths[:] = 0

    def apply(self, step: Step) -> Step:
        """Counts a step and returns it, with the rows of cut episodes marked as truncated."""
        env_id = step.timestep.env_id
        self.env_step += len(env_id)
        self._lengths[env_id] += 1
        if self.is_spent:
            is_over = ~step.done
        elif self.max_episode_len is not None:
            is_over = (self._lengths[env_id] >= self.max_episode_len) & ~step.done
        else:
            is_over = np.zeros(len(env_id), np.bool_)
        self.cut = env_id[is_over]
        if len(self.cut):
            timestep = step.timestep._replace(truncated=step.timestep.truncated | is_over)
            done = timestep.done
            step = step._replace(timestep=timestep, done=done, finished=env_id[done])
        self._lengths[step.finished] = self._lengths[step.abnormal] = 0
        return step
