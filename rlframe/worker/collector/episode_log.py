"""EpisodeLog: counts returns and lengths of episodes, so that no env has to."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.timestep import IntArray
from rlframe.worker.collector.rollout import Step

WINDOW = 100
"""Episodes that a windowed mean is taken over."""


class Episode(NamedTuple):
    """One finished episode."""

    env_id: int
    return_: float
    """Undiscounted sum of rewards, or the env's own ``info['eval_episode_return']`` where it gives one."""
    length: int
    """Env steps."""
    info: Mapping[str, Any]
    """What the env said at the last step."""


class EpisodeLog:
    """Sums up the episodes of N envs as they are stepped.

    Args:
        env_num: Number of envs, N.
    """

    def __init__(self, env_num: int) -> None:
        self._return = np.zeros(env_num)
        self._length = np.zeros(env_num, np.int64)
        self._window: deque[tuple[float, int, float]] = deque(maxlen=WINDOW)  # return, length, success
        self._recent: list[Episode] = []  # since the last summary

    @property
    def lengths(self) -> IntArray:
        """Env steps of each env's running episode, [N]."""
        return self._length

    def update(self, step: Step) -> list[Episode]:
        """Counts the rows of a step and returns the episodes that it ended."""
        env_id = step.timestep.env_id
        if len(env_id) == len(self._return) and len(step.abnormal) == 0 and (env_id[:-1] < env_id[1:]).all():
            self._return += step.timestep.reward
            self._length += 1
        else:
            self._return[env_id] += step.timestep.reward
            self._length[env_id] += 1
            self.forget(step.abnormal)
        if not step.done.any():
            return []
        rows = np.flatnonzero(step.done).tolist()
        finished = [self._finish(int(env_id[row]), step.timestep.info[row]) for row in rows]
        self.forget(env_id[rows])
        self._recent += finished
        self._window.extend((e.return_, e.length, float(e.info.get('is_success', np.nan))) for e in finished)
        return finished

    def _finish(self, env: int, info: Mapping[str, Any]) -> Episode:
        own = info.get('eval_episode_return')
        total = self._return[env] if own is None else np.asarray(own).item()
        return Episode(env, float(total), int(self._length[env]), info)

    def forget(self, env_id: IntArray) -> None:
        """Begins anew to count the episodes of these envs."""
        self._return[env_id] = 0.0
        self._length[env_id] = 0

    def forget_recent(self) -> None:
        """Forgets the episodes that ended since the last summary."""
        for _ in range(min(len(self._recent), len(self._window))):
            self._window.pop()
        self._recent = []

    def has_recent(self) -> bool:
        """Whether an episode ended since the last summary."""
        return bool(self._recent)

    def window_mean(self) -> float:
        """Returns the mean return of the last ``WINDOW`` episodes, NaN where none ended."""
        return float(np.mean([entry[0] for entry in self._window])) if self._window else float('nan')

    def summary(self) -> dict[str, float]:
        """Returns means over the window and over the episodes since the last summary, and forgets the latter."""
        returns = np.array([episode.return_ for episode in self._recent])
        window = np.array(self._window).reshape(-1, 3)
        values = {
            'rollout/ep_rew_mean': window[:, 0].mean(),
            'rollout/ep_len_mean': window[:, 1].mean(),
            'rollout/interval_rew_mean': returns.mean(),
            'rollout/interval_rew_std': returns.std(),
            'rollout/interval_rew_min': returns.min(),
            'rollout/interval_rew_max': returns.max(),
            'rollout/interval_episodes': float(len(returns)),
        }
        if not np.isnan(window[:, 2]).all():
            values['rollout/success_rate'] = float(np.nanmean(window[:, 2]))
        self._recent = []
        return {tag: float(value) for tag, value in values.items()}

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of all counts."""
        recent = [(e.env_id, e.return_, e.length) for e in self._recent]
        window = np.array(self._window, np.float64).reshape(-1, 3)
        return {
            'return': self._return.copy(),
            'length': self._length.copy(),
            'window': window,
            'recent': recent,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        self._return, self._length = state['return'].copy(), state['length'].copy()
        self._window = deque(((float(r), int(n), float(s)) for r, n, s in state['window']), maxlen=WINDOW)
        self._recent = [Episode(int(env), float(r), int(n), {}) for env, r, n in state['recent']]
