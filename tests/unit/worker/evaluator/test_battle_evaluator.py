"""A policy is measured from every seat equally often, over exactly the episodes that were fixed beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_texts import raises
from fakes import FakeBoard, ScriptedPolicy, ShuffledEnvManager, counting_manager
from games import PLAYER, SEED, Nim, Script, counting_players, games_of, turn_games

from rlframe.data import Batch
from rlframe.envs import BaseEnvManager
from rlframe.envs.player_env import player_env
from rlframe.errors import EnvContractError, IncompatibleError
from rlframe.policy.parts.random_policy import random_opponent
from rlframe.utils.seed import EVALUATE, env_seed
from rlframe.worker import BattleInteractionSerialEvaluator, InteractionSerialEvaluator


class Watched(ScriptedPolicy):
    """Remembers what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def forward(self, obs: Any, env_id: Any, **settings: Any) -> Batch:
        self.seen += [row.copy() for row in obs]
        return super().forward(obs, env_id, **settings)


class Perfect(ScriptedPolicy):
    """Plays Nim as well as can be."""

    def forward(self, obs: Any, env_id: Any, **settings: Any) -> Batch:
        return Batch(action=np.maximum(obs.argmax(1) % 4 - 1, 0))


def make(manager: Any, *policies: Any, board: Any = None, **cfg: Any) -> BattleInteractionSerialEvaluator:
    modes = [getattr(policy, 'eval_mode', policy) for policy in policies]
    given = modes[0] if len(modes) == 1 else modes
    return BattleInteractionSerialEvaluator({'n_episode': 12} | cfg, manager, given, board)


@pytest.mark.parametrize(
    ('players', 'env_num', 'n_episode', 'shuffled'), [(2, 4, 12, False), (2, 1, 5, False), (3, 4, 18, True)]
)
def test_the_first_policy_sits_everywhere_equally_often_and_returns_are_its_own(
    players: int, env_num: int, n_episode: int, shuffled: bool
) -> None:
    manager: Any = turn_games(env_num, players=players)
    manager = ShuffledEnvManager(manager, 1) if shuffled else manager
    policies = [Watched() for _ in range(players)]
    _, info = make(manager, *policies).eval(n_episode=n_episode)
    seeds = [env_seed(0, 0, k, EVALUATE) for k in range(n_episode)]
    counted = {seed: k for k, seed in enumerate(seeds)}
    in_order = [k for env in range(env_num) for k in range(env, n_episode, env_num)]
    assert info['seat'] == [k % players for k in in_order]
    for k, seat, mine in zip(in_order, info['seat'], info['eval_episode_return'], strict=True):
        total = Script(seeds[k], players, False, 9).reward.sum(0)
        assert mine == total[seat]
    for j, policy in enumerate(policies):
        for row in policy.seen:
            if int(row[SEED]) in counted:
                assert row[PLAYER] == (j + counted[int(row[SEED])]) % players
        expected = [Script(seeds[k], players, False, 9).reward[:, (j + k) % players].sum() for k in in_order]
        assert info[f'return_{j}'] == expected
    played = [seed for game in games_of(manager) for seed in game.played if seed in counted]
    assert sorted(played) == sorted(seeds)


def test_wins_draws_and_losses_are_those_of_the_first_policy() -> None:
    _, info = make(turn_games(4, players=3), *[ScriptedPolicy()] * 3).eval(n_episode=60)
    for i in range(60):
        own, others = info['return_0'][i], [info['return_1'][i], info['return_2'][i]]
        expected = (own > max(others), own == max(others), own < max(others))
        assert (info['win'][i], info['draw'][i], info['loss'][i]) == expected
    assert all(0 < info[f'{name}_mean'] < 1 for name in ('win', 'draw', 'loss'))


def nim_manager(env_num: int, sticks: int = 8) -> BaseEnvManager:
    return BaseEnvManager([lambda: player_env(Nim(sticks), 'Nim')] * env_num)


def test_a_perfect_player_beats_itself_from_the_better_seat_only() -> None:
    board = FakeBoard()
    _, info = make(nim_manager(3), Perfect(), Perfect(), board=board).eval(n_episode=20)
    assert info['win_mean'] == info['loss_mean'] == 0.5 and np.mean(info['eval_episode_return']) == 0
    # 8 is lost for the first
    assert all(win == seat for win, seat in zip(info['win'], info['seat'], strict=True))
    assert board.last('eval/win_rate') == 0.5 and board.last('eval/loss_rate') == 0.5
    assert board.last('eval/win_rate_seat_0') == 0 and board.last('eval/win_rate_seat_1') == 1


def test_the_random_opponent_plays_the_same_in_every_evaluation() -> None:
    manager = nim_manager(3)
    opponent = random_opponent(manager.spec.player, 5)
    evaluator = make(manager, Perfect(), opponent)
    lengths = [evaluator.eval(n_episode=16)[1]['eval_episode_len'] for _ in range(2)]
    assert lengths[0] == lengths[1] and len(set(lengths[0])) > 1
    other = make(manager, Perfect(), random_opponent(manager.spec.player, 6)).eval(n_episode=16)[1]
    assert other['eval_episode_len'] != lengths[0]


def test_an_abnormal_episode_is_played_again_in_the_same_seat() -> None:
    def info(number: int, episode: int, step: int, done: bool) -> dict[str, Any]:
        return {'abnormal': True} if (number, episode) in ((1, 0), (1, 1), (2, 1)) and step == 2 else {}

    manager = counting_players(3, lengths=4, info=info, reward=lambda *place: 1.0)
    evaluator = make(manager, ScriptedPolicy(), ScriptedPolicy())
    _, result = evaluator.eval(n_episode=12)
    assert result['seat'] == [k % 2 for env in range(3) for k in range(env, 12, 3)]
    assert result['eval_episode_return'] == [4.0] * 12 and result['eval_episode_len'] == [4] * 12
    assert result['return_0'] == result['return_1'] == [4.0] * 12
    with raises(EnvContractError):
        always = counting_players(2, info=lambda *place: {'abnormal': True})
        make(always, ScriptedPolicy(), max_abnormal=3).eval()


def test_wrong_numbers_of_players_are_refused() -> None:
    with raises(IncompatibleError):
        make(turn_games(2), *[ScriptedPolicy()] * 3).eval()
    with raises(IncompatibleError):
        make(counting_manager(2), ScriptedPolicy(), ScriptedPolicy()).eval()
    with raises(IncompatibleError):
        InteractionSerialEvaluator({'n_episode': 2}, turn_games(2), ScriptedPolicy().eval_mode).eval()
