"""An evaluation is the mean over exactly the first quota episodes, which its monitor counts and films; it is repeatable and ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from error_texts import raises
from fakes import FakeBoard, ScriptedPolicy, ShuffledEnvManager, counting_manager, envs_of, vector_manager
from zoo import IdentityEnv

from rlframe.envs import BaseEnvManager
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import EnvContractError
from rlframe.utils.seed import EVALUATE, SCORE, env_seed
from rlframe.worker import InteractionSerialEvaluator, VectorEvalMonitor


def make(
    manager: Any, board: Any = None, policy: Any = None, seed: int = 0, purpose: str = EVALUATE, **cfg: Any
) -> Any:
    policy = policy or ScriptedPolicy()
    return InteractionSerialEvaluator(
        {'n_episode': 4} | cfg, manager, policy.eval_mode, board, seed=seed, purpose=purpose
    )


def test_mean_is_over_exactly_the_first_quota_episodes_of_lengths_1_to_300() -> None:
    lengths = np.random.default_rng(0).permutation(np.r_[1, 300, np.geomspace(1, 100, 30).astype(int)])
    per_env = lengths.reshape(8, 4)
    manager = counting_manager(
        8,
        lengths=[lambda episode, own=own: int(own[episode % 4]) for own in per_env],
        reward=lambda n, e, s: 1.0,
    )
    evaluator = make(ShuffledEnvManager(manager, 1))
    for n_episode, quotas in ((8, [1] * 8), (19, [3, 3, 3, 2, 2, 2, 2, 2]), (3, [1, 1, 1, 0, 0, 0, 0, 0])):
        first = [envs_of(manager)[i].episode + 1 for i in range(8)]
        expected = [int(per_env[i][(first[i] + k) % 4]) for i in range(8) for k in range(quotas[i])]
        _, info = evaluator.eval(n_episode=n_episode)
        assert info['eval_episode_return'] == info['eval_episode_len'] == expected
        assert evaluator.latest == np.mean(expected)


def test_an_env_beyond_its_quota_is_not_stepped_and_one_that_must_be_does_not_count() -> None:
    manager = counting_manager(2, lengths=[lambda e: 2, lambda e: 50], reward=lambda n, e, s: 1.0 + n)
    _, info = make(manager).eval(n_episode=2)
    assert info['eval_episode_return'] == [2.0, 100.0] and envs_of(manager)[0].frames == 2
    factory = GymEnvFactory({'env_id': 'CartPole-v1'})
    vector = vector_manager([factory.create] * 3)
    _, info = make(vector).eval(n_episode=3)
    _, alone = make(BaseEnvManager.from_factory(factory, 3)).eval(n_episode=3)
    assert info == alone


def test_every_evaluation_plays_the_same_episodes_and_none_twice() -> None:
    manager = BaseEnvManager([IdentityEnv] * 3)
    evaluator = make(manager, seed=5)
    runs = [evaluator.eval(n_episode=7)[1]['eval_episode_return'] for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
    counting = counting_manager(3, lengths=2)
    make(counting, seed=5).eval(n_episode=7)
    seeds = [seed for env in envs_of(counting) for seed in env.seeds]
    assert len(set(seeds)) == len(seeds) and None not in seeds
    assert envs_of(counting)[1].seeds[:2] == [env_seed(5, 0, k, EVALUATE) for k in (1, 4)]
    score = counting_manager(3, lengths=2)
    make(score, seed=5, purpose=SCORE).eval(n_episode=7)
    assert not set(seeds) & {seed for env in envs_of(score) for seed in env.seeds}


def test_an_abnormal_episode_is_played_again_and_does_not_count() -> None:
    manager = counting_manager(
        2, lengths=4, reward=lambda n, e, s: 1.0, info=lambda n, e, s, d: {'abnormal': e in (0, 2) and s == 2}
    )
    _, info = make(manager).eval(n_episode=4)
    assert info['eval_episode_return'] == [4.0] * 4 and info['eval_episode_len'] == [4] * 4


def test_an_always_abnormal_env_is_an_error_and_no_hang() -> None:
    void = ShuffledEnvManager(counting_manager(2, info=lambda n, e, s, d: {'abnormal': n == 1}))
    with raises(EnvContractError):
        make(void, max_abnormal=10).eval()


def test_what_episodes_told_is_returned_with_means() -> None:
    board = FakeBoard()
    manager = counting_manager(
        2,
        lengths=3,
        info=lambda n, e, s, d: {'is_success': n == 1, 'episode_info': {'goals': n + e}} if d else {},
    )
    _, info = make(manager, board).eval(train_iter=3, envstep=30)
    assert info['is_success'] == [0.0, 0.0, 1.0, 1.0] and info['is_success_mean'] == 0.5
    assert info['goals'] == [0, 1, 1, 2] and info['goals_mean'] == 1.0
    assert board.last('eval/success_rate') == 0.5 and board.last('eval/episodes') == 4
    assert board.last('eval/mean_ep_length') == 3
    returns = info['eval_episode_return']
    assert board.last('eval/max_reward') == max(returns) and board.last('eval/min_reward') == min(returns)
    assert {step for _, _, step in board.scalars} == {30}


def test_videos_come_at_their_frequency_and_when_forced() -> None:
    board = FakeBoard()
    evaluator = make(counting_manager(2, lengths=3), board, render={'render_freq': 10})
    for train_iter in (0, 5, 10, 15):
        evaluator.eval(train_iter=train_iter, envstep=100 + train_iter)
    assert [step for _, _, step in board.videos] == [100, 110]
    evaluator.eval(train_iter=16, envstep=116, force_render=True)
    tag, video, _ = board.videos[-1]
    assert tag == 'eval/video' and video.shape == (4, 4, 3, 4, 6) and video.dtype == np.uint8
    assert (video[:, :, 0, 0, 0] % 10 == [0, 1, 2, 3]).all(), (
        'the pictures that the policy acted on, and the last'
    )
    by_envstep = make(counting_manager(2), board, render={'render_freq': 50, 'mode': 'envstep'})
    for envstep in (1000, 1040, 1050):
        by_envstep.eval(train_iter=1, envstep=envstep)
    assert [step for _, _, step in board.videos[-2:]] == [1000, 1050]


def test_policy_settings_are_passed_on_and_missing_parts_are_named() -> None:
    policy = ScriptedPolicy()
    make(counting_manager(2), policy=policy).eval(policy_kwargs={'greed': 1})
    assert policy.given_settings[0] == {'greed': 1}
    for evaluator in (
        InteractionSerialEvaluator({'n_episode': 2}),
        InteractionSerialEvaluator({}, counting_manager(1), policy.eval_mode),
    ):
        with raises(ValueError):
            evaluator.eval()
    with raises(ValueError):
        InteractionSerialEvaluator({}).reset_policy()


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
