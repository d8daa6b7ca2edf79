"""TaskLog: the counts of a parallel collector about its current task, and the information at its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from time import perf_counter, time
from typing import Any

import numpy as np

MOST_RETURNS = 10_000
"""Returns that the information about a task lists at most, the last ones."""
RESULTS = {'win': 'wins', 'draw': 'draws', 'loss': 'losses'}
"""Words for the result of a game in ``game_result``."""


class TaskLog:
    """Counts what a task produced.

    Args:
        is_evaluation: Whether it is an evaluation.
        env_num: Number of envs.
        expected_episodes: Number of episodes that were asked for; 0 if they were not counted in episodes.
        plays_games: Whether episodes are games, whose results belong to the information.
    """

    def __init__(
        self, is_evaluation: bool, env_num: int, expected_episodes: int, plays_games: bool = False
    ) -> None:
        self._plays_games = plays_games
        self.is_evaluation, self._env_num, self._expected = is_evaluation, env_num, expected_episodes
        self.train_iter = 0
        """Train iterations of the newest weights that acted."""
        self.parts = self.envstep = self.episodes = self.samples = 0
        """What was collected so far."""
        self.is_done = False
        """Whether the task was completed."""
        self._returns: deque[float] = deque(maxlen=MOST_RETURNS)
        self._results: deque[str] = deque(maxlen=MOST_RETURNS)
        self._start = perf_counter()

    def add(self, envstep: int, samples: int, returns: Sequence[float], results: Sequence[str] = ()) -> None:
        """Counts a part.

        Args:
            envstep: Env steps taken.
            samples: Training samples, or episodes as training data.
            returns: Return of each ended episode.
            results: Result of each ended game for the first active player: ``win``, ``draw`` or ``loss``.
        """
        self.parts += 1
        self.envstep += envstep
        self.samples += samples
        self.episodes += len(returns)
        self._returns.extend(returns)
        self._results.extend(RESULTS[result] for result in results)

    def add_evaluation(self, info: Mapping[str, Any], steps: int) -> None:
        """Counts an evaluation.

        Args:
            info: The second result of ``ISerialEvaluator.eval``.
            steps: Steps of the envs that it took, if ``info`` does not give the lengths of the episodes.
        """
        returns = [float(value) for value in info.get('eval_episode_return', ())]
        results: list[str] = []
        if 'win' in info:
            pairs = zip(info['win'], info['draw'], strict=True)
            results = ['win' if win else 'draw' if draw else 'loss' for win, draw in pairs]
        self.add(int(sum(info.get('eval_episode_len') or [steps])), 0, returns, results)

    def finish_info(self, collect_setting: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the facts about the task, under DI-engine's names."""
        duration = perf_counter() - self._start
        returns = list(self._returns)
        return {
            'eval_flag': self.is_evaluation,
            'env_num': self._env_num,
            'duration': duration,
            'train_iter': self.train_iter,
            'collector_done': self.is_done,
            'predefined_episode_count': self._expected,
            'real_episode_count': self.episodes,
            'step_count': self.envstep,
            'sample_count': self.samples,
            'avg_time_per_episode': duration / max(1, self.episodes),
            'avg_time_per_step': duration / max(1, self.envstep),
            'avg_time_per_train_sample': duration / max(1, self.samples),
            'avg_step_per_episode': self.envstep / max(1, self.episodes),
            'avg_sample_per_episode': self.samples / max(1, self.episodes),
            'reward_mean': float(np.mean(returns)) if returns else 0.0,
            'reward_std': float(np.std(returns)) if returns else 0.0,
            'reward_raw': returns,
            'finish_time': time(),
            'collect_setting': dict(collect_setting),
            **({'game_result': [list(self._results)]} if self._plays_games else {}),
        }


def plain_columns(info: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Returns the values of each episode of an evaluation as a message can hold them."""
    return {
        name: [_plain(value) for value in values] for name, values in info.items() if isinstance(values, list)
    }


def _plain(value: Any) -> Any:
    """Returns a number or a flag as it is, NaN as None, and anything else as text."""
    value = value.item() if hasattr(value, 'item') and getattr(value, 'ndim', 0) == 0 else value
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float) else str(value)[:100]
