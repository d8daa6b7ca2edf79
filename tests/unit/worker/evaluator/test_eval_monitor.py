"""The monitor counts the first quota episodes of each env, and films the worst, median and best."""

from __future__ import annotations

import numpy as np
import torch
from error_texts import raises

from rlframe.worker import VectorEvalMonitor


def test_only_the_first_quota_episodes_count_and_fewer_than_envs_are_played_in_the_first_envs() -> None:
    monitor = VectorEvalMonitor(3, 2)
    assert monitor.unfinished().tolist() == [0, 1]
    for env_id, reward in ((2, 9.0), (0, torch.tensor([1.0])), (0, 100.0)):
        monitor.update_reward(env_id, reward)
    assert not monitor.is_finished() and monitor.unfinished().tolist() == [1]
    monitor.update_reward(1, np.array(2.0))
    assert monitor.is_finished() and monitor.get_episode_return() == [1.0, 2.0]
    assert monitor.get_current_episode() == 2 and monitor.get_latest_reward(0) == 1.0
    with raises(ValueError):
        monitor.get_latest_reward(2)
    with raises(ValueError):
        monitor.get_video()
    with raises(ValueError):
        VectorEvalMonitor(0, 1)


def test_infos_are_lists_per_name_and_means_of_numbers() -> None:
    monitor = VectorEvalMonitor(2, 2)
    assert monitor.get_episode_info() is None
    monitor.update_info(0, {'goals': torch.tensor(3), 'map': 'a', 'only_here': 1})
    monitor.update_info(0, {'goals': 99, 'map': 'never'})
    monitor.update_info(1, {'goals': np.array([4]), 'map': 'b'})
    assert monitor.get_episode_info() == {'goals': [3, 4], 'goals_mean': 3.5, 'map': ['a', 'b']}


def clip_of(returns: list[float], lengths: list[int] | None = None) -> list[tuple[int, int]]:
    """Returns number and length of the clips that are chosen; picture value = number of the episode."""
    monitor = VectorEvalMonitor(1, len(returns))
    for i, reward in enumerate(returns):
        for _ in range(lengths[i] if lengths else 1):
            monitor.update_video({0: np.full((2, 5, 3), i, np.uint8)})
        monitor.update_reward(0, reward)
    monitor.update_video({0: np.zeros((2, 5, 3), np.uint8)})
    video = monitor.get_video()
    assert video.dtype == np.uint8 and video.shape[2:] == (3, 2, 5)
    return [int(clip[0, 0, 0, 0]) for clip in video]


def test_video_shows_worst_median_and_best() -> None:
    assert clip_of([5.0]) == [0]
    assert clip_of([5.0, 1.0]) == [1, 0]
    assert clip_of([3.0, 1.0, 2.0]) == [1, 2, 0]
    assert clip_of([3.0, 1.0, 2.0, 0.0]) == [3, 1, 2, 0]
    assert clip_of([5.0, 4.0, 3.0, 2.0, 1.0, 0.0]) == [5, 3, 2, 0]
    five = clip_of([4.0, 3.0, 2.0, 1.0, 0.0])
    assert five[0] == 4 and five[-1] == 0 and 2 in five and len(five) == 4


def test_shorter_clips_end_with_their_last_picture() -> None:
    monitor = VectorEvalMonitor(2, 2)
    for t in range(3):
        monitor.update_video(
            {0: np.full((3, 2, 2), t, np.uint8)} | ({1: np.full((3, 2, 2), 9, np.uint8)} if t == 0 else {})
        )
    monitor.update_reward(0, 1.0)
    monitor.update_reward(1, 0.0)
    assert monitor.get_video()[:, :, 0, 0, 0].tolist() == [[9, 9, 9], [0, 1, 2]]
