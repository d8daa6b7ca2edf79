"""EvaluatedEpisodes: which episodes of an evaluation count, which of them were cut, and when it is over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.timestep import IntArray
from rlframe.worker.collector.episode_limit import EpisodeLimit
from rlframe.worker.collector.episode_log import Episodes
from rlframe.worker.collector.info_metrics import numbers_of
from rlframe.worker.evaluator.base_serial_evaluator import VectorEvalMonitor
from rlframe.worker.evaluator.eval_metric import INFO


class EvaluatedEpisodes:
    """Counts the episodes of one evaluation.

    Args:
        env_num: Number of envs, N.
        n_episode: Episodes to play.
        limit: Cuts episodes that are too long.
        can_begin_anew: Whether an env whose episode was cut can start the next one while others continue.
    """

    def __init__(self, env_num: int, n_episode: int, limit: EpisodeLimit, can_begin_anew: bool) -> None:
        self.monitor = VectorEvalMonitor(env_num, n_episode)
        self.counted: IntArray = self.monitor.unfinished()
        """The envs that are playing an episode that counts, [n]."""
        self._n_episode, self._limit, self._can_begin_anew = n_episode, limit, can_begin_anew
        self._lengths: list[list[int]] = [[] for _ in range(env_num)]
        self._is_cut: list[list[bool]] = [[] for _ in range(env_num)]
        self._numbers: list[list[dict[str, float]]] = [[] for _ in range(env_num)]  # of infos
        self._left: IntArray = np.zeros(0, np.int64)  # envs whose running episode does not count

    @property
    def is_over(self) -> bool:
        """Whether all episodes were played, or as many as the budget of env steps allowed."""
        return self.monitor.is_finished() or (self._limit.is_spent and not len(self.counted))

    def count(self, ended: Episodes) -> None:
        """Counts the episodes that the last step ended, including those that were cut."""
        cut = self._limit.cut
        if not len(ended.env_id):
            return
        for env_id, return_, length, info in zip(*ended, strict=True):
            if env_id in self.counted:
                self.monitor.update_reward(int(env_id), return_)
                self.monitor.update_info(int(env_id), _told(info))
                self._lengths[env_id].append(int(length))
                self._is_cut[env_id].append(bool(env_id in cut))
                self._numbers[env_id].append(numbers_of(info))
        if len(cut) and (self._limit.is_spent or not self._can_begin_anew):
            self._left = np.union1d(self._left, cut)
        self.counted = np.setdiff1d(self.monitor.unfinished(), self._left)

    def begin_anew(self) -> None:
        """Counts all envs again that owe an episode, after every env was reset."""
        self._left = self._left[:0]
        self.counted = self.monitor.unfinished()

    def result(self) -> dict[str, Any]:
        """Returns the values of every episode, in env order.

        Numbers of infos are under ``info/NAME``, NaN for an episode without that number.
        """
        numbers = [each for own in self._numbers for each in own]
        names = dict.fromkeys(name for each in numbers for name in each)
        return {
            'eval_episode_return': self.monitor.get_episode_return(),
            'eval_episode_len': [length for own in self._lengths for length in own],
            'eval_episode_cut': [is_cut for own in self._is_cut for is_cut in own],
            **(self.monitor.get_episode_info() or {}),
            **{INFO + name: [each.get(name, math.nan) for each in numbers] for name in names},
        }

    def progress(self) -> str:
        """Returns the progress of the evaluation."""
        return f'{self.monitor.get_current_episode()} of {self._n_episode} episodes, {self._limit.env_step:,} env steps'

    def warning(self) -> str:
        """Returns a warning about cut episodes, or an empty string."""
        cut = sum(is_cut for own in self._is_cut for is_cut in own)
        if not cut:
            return ''
        played = self.monitor.get_current_episode()
        if self._limit.is_spent:
            return (
                f'the evaluation ended after {self._limit.env_step:,} env steps (evaluator.max_env_step):'
                f' {played} of {self._n_episode} episodes count, {cut} of them cut, with their return so far'
            )
        return (
            f'{cut} of {played} evaluated episodes did not end within {self._limit.max_episode_len:,} env steps'
            ' (evaluator.max_episode_len) and count with their return so far. If the env never ends an episode,'
            " env.wrappers=[dict(type='TimeLimit', max_episode_steps=1000)] ends it"
        )


def _told(info: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an env's information on a whole episode: ``episode_info`` and ``is_success``."""
    told = dict(info.get('episode_info') or {})
    if 'is_success' in info:
        told['is_success'] = float(np.asarray(info['is_success']).item())
    return told
