"""T-REX: ranks, pairs of snippets, the loss by hand, and that better states earn more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from gymnasium import spaces

from rlframe.data import Batch, EnvSpec
from rlframe.errors import ConfigError
from rlframe.reward_model.ranked import Snippets, preference_loss, ranked_episodes
from rlframe.reward_model.trex import TREX

SPEC = EnvSpec(spaces.Box(-99, 99, (2,), np.float32), spaces.Discrete(2), name='Line-v0')


def episode(number: int, length: int, reward: float) -> Batch:
    """Returns an episode whose observations are (number, step)."""
    obs = np.stack([np.full(length, number), np.arange(length)], 1).astype(np.float32)
    return Batch(
        obs=obs,
        next_obs=obs + np.array([0, 1], np.float32),
        action=np.zeros(length, np.int64),
        reward=np.full(length, reward / length, np.float32),
        terminated=np.arange(length) == length - 1,
        truncated=np.zeros(length, bool),
    )


def joined(*episodes: Batch) -> Batch:
    return Batch.cat(list(episodes))


def numbers(ranks: list[list[Batch]]) -> list[list[int]]:
    return [[int(each['obs'][0, 0]) for each in rank] for rank in ranks]


def test_episodes_are_ranked_by_their_returns() -> None:
    data = joined(episode(0, 4, 2.0), episode(1, 2, -1.0), episode(2, 8, 2.0), episode(3, 2, 5.0))
    assert numbers(ranked_episodes(data, SPEC)) == [[1], [0, 2], [3]]


def test_several_data_may_be_the_ranks() -> None:
    worst, best = joined(episode(0, 4, 9.0), episode(1, 2, 3.0)), joined(episode(2, 8, 2.0))
    assert numbers(ranked_episodes([worst, best], SPEC, by_order=True)) == [[0, 1], [2]]


def test_episodes_of_one_rank_are_refused() -> None:
    with raises(ConfigError):
        ranked_episodes(joined(episode(0, 4, 2.0), episode(1, 2, 2.0)), SPEC)


def test_the_first_snippet_of_a_pair_is_of_the_better_episode() -> None:
    ranks = [[episode(0, 5, 0), episode(1, 3, 0)], [episode(2, 7, 0)], [episode(3, 4, 0), episode(4, 9, 0)]]
    rank_of = np.array([0, 0, 1, 2, 2])
    snippets = Snippets(ranks, 50)
    assert snippets.length == 3  # of the shortest episode
    better, worse = (snippets.rows['obs'][rows] for rows in snippets.pairs(500, np.random.default_rng(0)))
    for parts in (better, worse):
        assert (np.diff(parts[:, :, 0], axis=1) == 0).all()  # of one episode
        assert (np.diff(parts[:, :, 1], axis=1) == 1).all()  # consecutive
    higher, lower = (rank_of[parts[:, 0, 0].astype(int)] for parts in (better, worse))
    assert (higher > lower).all()
    assert {(1, 0), (2, 0), (2, 1)} == set(zip(higher.tolist(), lower.tolist(), strict=True))


def test_the_loss_is_the_likelihood_of_the_ranking() -> None:
    better, worse = np.array([1.0, -2.0]), np.array([0.5, 3.0])
    wanted = -np.log(np.exp(better) / (np.exp(better) + np.exp(worse))).mean()
    assert preference_loss(torch.from_numpy(better), torch.from_numpy(worse)).item() == pytest.approx(wanted)


def made(**options: Any) -> TREX:
    data = joined(*(episode(number, 6, number) for number in range(5)))
    return TREX(
        {
            'data': data,
            'updates': 100,
            'ensemble': 2,
            'hidden_size_list': [16],
            'learning_rate': 1e-2,
            **options,
        },
        SPEC,
        seed=0,
    )


def test_states_of_better_episodes_earn_more_and_a_loaded_model_pays_the_same() -> None:
    model, other = made(form='logit'), made(form='logit')
    assert model.learn()['accuracy'] > 0.9
    paid = [model.reward(episode(number, 6, 0)).mean() for number in range(5)]
    assert paid == sorted(paid)
    assert np.mean(paid) == pytest.approx(0, abs=1e-5)  # standardised over the ranked episodes
    other.load_state_dict(model.state_dict())
    assert other.learn() == {}
    np.testing.assert_array_equal(other.reward(episode(2, 6, 0)), model.reward(episode(2, 6, 0)))
