"""Exactly the episodes that were asked for, whole, of every length as often as it occurs, and no env step unaccounted for."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
from error_texts import raises
from fakes import (
    EPISODE,
    NUMBER,
    STEP,
    CountingEnv,
    ScriptedPolicy,
    ShuffledEnvManager,
    counting_manager,
    frames_of,
    vector_manager,
)
from test_sample_collector import assert_paired

from rlframe.data import Batch
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.vector_env import GymVectorEnvManager
from rlframe.errors import ConfigError
from rlframe.worker import EpisodeSerialCollector, SampleSerialCollector


def make(
    env_num: int = 3, cfg: Any = None, env: dict[str, Any] | None = None, board: Any = None, **facts: Any
) -> tuple[EpisodeSerialCollector, ScriptedPolicy, Any]:
    manager, policy = counting_manager(env_num, **(env or {})), ScriptedPolicy(**facts)
    return EpisodeSerialCollector(cfg or {}, manager, policy.collect_mode, board), policy, manager


def assert_whole(episode: Batch, length: int | None = None) -> tuple[int, int]:
    """Fails unless these are all steps of one episode in order; returns its env and its number."""
    assert_paired(episode)
    assert episode['obs'][:, STEP].tolist() == list(range(len(episode)))
    done = episode['terminated'] | episode['truncated']
    assert done.tolist() == [False] * (len(episode) - 1) + [True]
    assert length is None or len(episode) == length
    (place,) = {(int(row[NUMBER]), int(row[EPISODE])) for row in episode['obs']}
    return place


def quota(env_num: int, n_episode: int, env: int) -> int:
    return n_episode // env_num + (env < n_episode % env_num)


def test_the_first_episodes_of_each_env_come_back_and_frames_are_conserved() -> None:
    rng = np.random.default_rng(0)
    for case in range(6):
        env_num = int(rng.integers(1, 6))
        lengths = [int(n) for n in rng.integers(1, 9, size=4)]
        manager: Any = counting_manager(env_num, lengths=lengths)
        if case % 2:
            manager = ShuffledEnvManager(manager, case)
        collector = EpisodeSerialCollector({}, manager, ScriptedPolicy().collect_mode)
        seen = dict.fromkeys(range(env_num), 0)
        returned = 0
        for _ in range(3):
            n_episode = int(rng.integers(1, 12))
            episodes = collector.collect(n_episode)
            assert isinstance(episodes, list) and len(episodes) == n_episode
            places = [assert_whole(episode) for episode in episodes]
            for env in range(env_num):
                share = quota(env_num, n_episode, env)
                own = sorted(number for i, number in places if i == env)
                # a reset between calls would skip a number: nothing is begun that is not returned
                assert own == list(range(seen[env], seen[env] + share))
                seen[env] += share
            for episode, (_, number) in zip(episodes, places, strict=True):
                assert len(episode) == lengths[min(number, 3)]
            returned += sum(len(episode) for episode in episodes)
            assert frames_of(manager) == collector.envstep == returned
            assert collector.carried == collector.discarded == 0


def test_episodes_come_in_the_order_in_which_they_ended() -> None:
    collector, _, _ = make(3, None, {'lengths': [lambda e: 9, lambda e: 2, lambda e: 5]})
    places = [assert_whole(episode) for episode in collector.collect(7)]
    assert places == [(1, 0), (1, 1), (2, 0), (0, 0), (2, 1), (0, 1), (0, 2)]


@pytest.mark.parametrize('autoreset', ['NEXT_STEP', 'SAME_STEP'])
def test_a_vector_env_that_cannot_wait_discards_what_its_idle_envs_do(autoreset: str) -> None:
    lengths = [2, 7, 3, 5, 1]
    make = [partial(CountingEnv, i, lambda episode, i=i: lengths[(episode + i) % 5]) for i in range(3)]
    manager = vector_manager(make, autoreset)
    collector = EpisodeSerialCollector({}, manager, ScriptedPolicy().collect_mode)
    envs = [env.unwrapped for env in manager._env.unwrapped.envs]
    returned = 0
    for n_episode in (2, 1, 8, 3, 8, 1, 2, 3):
        before = [env.episode for env in envs]
        episodes = collector.collect(n_episode)
        places = [assert_whole(episode) for episode in episodes]
        for env in range(3):
            own = [number for i, number in places if i == env]
            assert len(own) == quota(3, n_episode, env)
            assert own == list(range(own[0], own[0] + len(own))) if own else True, 'none is skipped'
            assert not own or own[0] <= before[env] + 1, 'its first episodes'
        assert [len(e) for e in episodes] == [lengths[(number + env) % 5] for env, number in places]
        returned += sum(len(episode) for episode in episodes)
        stepped = sum(env.frames for env in envs)
        assert stepped == collector.envstep == returned + collector.discarded
        assert collector.carried == 0
    assert collector.discarded > 0


def abnormal_at(*places: tuple[int, int, int]) -> dict[str, Any]:
    return {'info': lambda n, e, s, done: {'abnormal': (n, e, s) in places}}


def test_an_abnormal_episode_is_replaced_and_its_steps_are_discarded() -> None:
    bad = abnormal_at((1, 0, 4), (0, 1, 1), (2, 1, 6))
    collector, policy, manager = make(3, None, {'lengths': 6} | bad)
    episodes = collector.collect(6)
    places = {assert_whole(episode, 6) for episode in episodes}
    assert places == {(0, 0), (0, 2), (1, 1), (1, 2), (2, 0), (2, 2)}
    assert collector.discarded == 4 + 1 + 6
    assert frames_of(manager) == 36 + collector.discarded
    assert [1] in policy.resets
    assert len(collector.collect(3)) == 3 and collector.discarded == 11


def test_after_a_failure_the_next_call_begins_anew_and_accounts_for_every_frame() -> None:
    collector, policy, manager = make(2, None, {'lengths': [3, 5]})
    step, calls = manager.step, []

    def fail_once(action: Any, env_id: Any) -> Any:
        calls.append(env_id)
        if len(calls) == 5:
            raise RuntimeError('boom')
        return step(action, env_id)

    manager.step = fail_once
    with pytest.raises(RuntimeError, match='boom'):
        collector.collect(6)
    episodes = collector.collect(4)
    for episode in episodes:
        assert_whole(episode)
    assert policy.resets[-1] is not None and None in policy.resets[1:]
    returned = sum(len(episode) for episode in episodes)
    assert frames_of(manager) == returned + collector.discarded
    assert collector.envstep == returned + collector.discarded


def test_train_samples_are_those_of_a_sample_collector() -> None:
    facts = {'nstep': 3, 'discount_factor': 0.9}
    env = {'lengths': [4, 7, 1, 5]}
    collector, _, manager = make(3, {'get_train_sample': True}, env, **facts)
    samples = collector.collect(12)
    frames = frames_of(manager)
    manager = counting_manager(3, **env)
    sampler = SampleSerialCollector({}, manager, ScriptedPolicy(**facts).collect_mode)
    expected = sampler.collect(400)

    def rows(batch: Batch) -> dict[tuple[float, ...], dict[str, list[Any]]]:
        return {
            tuple(row['obs'].reshape(-1, 3)[0].tolist()): {
                name: np.asarray(v).tolist() for name, v in row.items()
            }
            for row in batch
        }

    got, others = rows(samples), rows(expected)
    assert len(got) == len(samples)
    assert all(others[key] == row for key, row in got.items())
    assert len(samples) == frames == 3 * 17


def test_an_on_policy_policy_makes_samples_of_each_whole_episode() -> None:
    collector, policy, _ = make(2, {'get_train_sample': True}, {'lengths': [3, 5]}, on_policy=True)
    samples = collector.collect(4)
    assert [block['reward'].shape for block in policy.blocks] == [(3, 1), (3, 1), (5, 1), (5, 1)]
    assert isinstance(samples, Batch) and len(samples) == 16
    assert_paired(samples)


@pytest.mark.parametrize('get_train_sample', [False, True])
def test_rewards_are_shaped_before_samples_are_made(get_train_sample: bool) -> None:
    def shape(episode: Batch) -> Batch:
        assert_whole(episode, 4)
        return episode.replace(reward=np.full_like(episode['reward'], len(episode)))

    cfg = {'reward_shaping': True, 'get_train_sample': get_train_sample}
    facts = {'nstep': 2, 'discount_factor': 0.5}
    collected = make(2, cfg, {'lengths': 4}, reward_shaping=shape, **facts)[0].collect(2)
    reward = collected['reward'] if get_train_sample else Batch.cat(collected)['reward']
    assert sorted(reward) == ([4.0] * 2 + [6.0] * 6 if get_train_sample else [4.0] * 8)
    with raises(ConfigError):
        make(2, cfg, {'lengths': 4})[0].collect(2)


def test_a_loaded_collector_goes_on_exactly() -> None:
    def build() -> EpisodeSerialCollector:
        manager = GymVectorEnvManager.from_factory(GymEnvFactory({'env_id': 'CartPole-v1'}), 3)
        return EpisodeSerialCollector({}, manager, ScriptedPolicy().collect_mode)

    collector = build()
    for n_episode in (2, 5, 3, 1):
        collector.collect(n_episode)
        state = copy.deepcopy(collector.state_dict())
        other = build()
        other.load_state_dict(state)
        expected, got = collector.collect(5), other.collect(5)
        assert other.discarded == collector.discarded
        for one, two in zip(expected, got, strict=True):
            for name, column in one.items():
                np.testing.assert_array_equal(two[name], column)


def test_envs_that_live_play_what_a_dropped_one_owes() -> None:
    collector, _, manager = make(3, None, {'lengths': 4})
    step = manager.step

    def lose_env_1(action: Any, env_id: Any) -> Any:
        answer = step(action, env_id)
        if 1 in manager.alive and answer.obs[0][STEP] == 3:
            manager._alive = manager._ready = np.array([0, 2])
        return answer

    manager.step = lose_env_1
    episodes = collector.collect(7)
    assert len(episodes) == 7
