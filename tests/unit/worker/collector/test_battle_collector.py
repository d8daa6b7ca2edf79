"""Every move of a game appears exactly once, with its player's next obs; its rewards are what the player was paid."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from error_texts import raises
from fakes import FakeBoard, ScriptedPolicy, ShuffledEnvManager, counting_manager, frames_of
from games import (
    NUMBER,
    PLAYER,
    SEED,
    TIME,
    BrokenTurns,
    Script,
    TurnGame,
    counting_players,
    expected_moves,
    games_of,
    turn_games,
)

from rlframe.data import Batch
from rlframe.envs import BaseEnvManager
from rlframe.errors import ConfigError, IncompatibleError
from rlframe.worker import (
    BattleEpisodeSerialCollector,
    BattleSampleSerialCollector,
    SampleSerialCollector,
)


class Player(ScriptedPolicy):
    """Chooses at random among the legal actions, and says which call the action is of."""

    def __init__(self, seed: int = 0, **facts: Any) -> None:
        super().__init__(**facts)
        self._rng = np.random.default_rng(seed)

    def forward(self, obs: Any, env_id: Any, **settings: Any) -> Batch:
        assert len(obs) and obs.flags.c_contiguous
        output = super().forward(obs, env_id, **settings)
        mask = obs['action_mask'] if obs.dtype.names else np.ones((len(obs), 3))
        chance = self._rng.random(mask.shape)
        return output.replace(action=np.where(mask > 0, chance, -1).argmax(1))


def sampler(
    env_num: int = 3,
    players: int = 2,
    alone: bool = True,
    cfg: Any = None,
    shuffled: bool = False,
    **facts: Any,
) -> tuple[BattleSampleSerialCollector, Any]:
    options = {k: facts.pop(k) for k in ('leaves', 'longest', 'masked') if k in facts}
    manager: Any = turn_games(env_num, players=players, **options)
    if shuffled:
        manager = ShuffledEnvManager(manager, 3)
    policies = [Player(i, **facts).collect_mode for i in range(1 if alone else players)]
    return BattleSampleSerialCollector(cfg or {}, manager, policies[0] if alone else policies), manager


def plain(obs: Any) -> Any:
    return obs['observation'] if obs.dtype.names else obs


def check_rows(
    rows: Batch, player: int, players: int, manager: Any, **script: Any
) -> dict[tuple[int, int], int]:
    """Compares rows with the scripts of their games and returns how many there are of each."""
    obs, next_obs = plain(rows['obs']), plain(rows['next_obs'])
    assert (obs[:, PLAYER] == player).all() and (next_obs[:, PLAYER] == player).all()
    assert (plain(rows['told']) == obs).all()
    seen: dict[tuple[int, int], int] = {}
    for i in range(len(rows)):
        key = (int(obs[i, NUMBER]), int(obs[i, SEED]))
        k = seen.get(key, 0)
        seen[key] = k + 1
        got = (
            int(obs[i, TIME]),
            int(next_obs[i, TIME]),
            float(rows['reward'][i]),
            bool(rows['terminated'][i]),
            bool(rows['truncated'][i]),
        )
        assert got == expected_moves(key[1], players, **script)[player][k], (key, player, k)
        assert key == (int(next_obs[i, NUMBER]), int(next_obs[i, SEED]))
        assert rows['env_id'][i] == rows['acted'][i] == player * manager.env_num + key[0]
    return seen


@pytest.mark.parametrize(
    ('players', 'leaves', 'alone', 'masked', 'shuffled'),
    [
        (2, False, False, False, False),
        (3, False, True, True, True),
        (4, True, False, True, False),
    ],
)
def test_moves_of_scripted_games_are_those_that_looking_at_the_script_gives(
    players: int, leaves: bool, alone: bool, masked: bool, shuffled: bool
) -> None:
    script = {'leaves': leaves, 'longest': 12}
    collector, manager = sampler(3, players, alone, shuffled=shuffled, masked=masked, **script)
    taken: list[list[Batch]] = [[] for _ in range(players)]
    infos: list[list[Any]] = [[] for _ in range(players)]
    for n_sample in (1, 7, 2, 20):
        data, told = collector.collect(n_sample)
        assert [len(own) for own in data] == [n_sample] * players
        for player in range(players):
            taken[player].append(data[player])
            infos[player] += told[player]
    rest = collector.collect(1, drop_extra=False)
    for player in range(players):
        taken[player].append(rest[0][player])
        infos[player] += rest[1][player]
    games = games_of(manager)
    assert collector.envstep == sum(game.frames for game in games)
    finished = [seed for game in games for seed in game.played[:-1]]
    assert len(finished) > 5
    for player in range(players):
        seen = check_rows(Batch.cat(taken[player]), player, players, manager, **script)
        for game in games:
            for seed in game.played[:-1]:  # every move of a game that ended, exactly once
                moves = expected_moves(seed, players, **script)[player]
                assert seen.get((game.number, seed), 0) == len(moves)
        returns = sorted(info['eval_episode_return'] for info in infos[player])
        assert returns == sorted(
            float(Script(s, players, **script).reward[:, player].sum()) for s in finished
        )


def test_results_tell_who_won() -> None:
    _, infos = BattleEpisodeSerialCollector({}, turn_games(3), Player(n_episode=60).collect_mode).collect()
    results = set()
    for first, second in zip(*infos, strict=True):
        difference = first['eval_episode_return'] - second['eval_episode_return']
        expected = (
            ('draw', 'draw') if difference == 0 else ('win', 'loss') if difference > 0 else ('loss', 'win')
        )
        assert (first['result'], second['result']) == expected
        results.add(first['result'])
        assert first['eval_episode_len'] == second['eval_episode_len'] >= 1
    assert results == {'win', 'draw', 'loss'}


def test_only_recorded_players_are_returned() -> None:
    collector, _ = sampler(2, 3, cfg={'record': [False, True, False]})
    data, infos = collector.collect(20)
    assert data[0] == data[2] == [] and len(data[1]) == 20 and len(infos) == 3
    assert collector.training_data((data, infos)) is data[1]
    both, _ = sampler(2, 2)
    collected = both.collect(5)
    assert len(both.training_data(collected)) == 10


def test_policies_are_asked_for_active_players_only_and_told_which_games_begin_anew() -> None:
    policies = [Player(i) for i in range(2)]
    manager = turn_games(3)
    collector = BattleSampleSerialCollector({}, manager, [policy.collect_mode for policy in policies])
    answers: list[list[int]] = [[], []]
    for policy, own in zip(policies, answers, strict=True):
        forward = policy.forward
        policy.forward = lambda obs, ids, f=forward, o=own, **s: o.extend(ids.tolist()) or f(obs, ids, **s)
    collector.reset_policy([policy.collect_mode for policy in policies])
    before = len(policies[0].resets)
    collector.collect(40)
    assert sum(map(len, answers)) == collector.envstep
    assert [set(own) for own in answers] == [{0, 1, 2}, {3, 4, 5}]
    begun = [ids for ids in policies[0].resets[before:]]
    assert begun == policies[1].resets[before:] and all(len(ids) % 2 == 0 for ids in begun)
    assert {tuple(ids) for ids in begun} >= {(0, 3), (1, 4), (2, 5)}


def test_each_player_s_rows_are_made_for_his_own_policy() -> None:
    policies = [Player(0, nstep=1, n_sample=5), Player(1, nstep=2, discount_factor=0.5)]
    manager = turn_games(2)
    data, _ = BattleSampleSerialCollector({}, manager, [p.collect_mode for p in policies]).collect()
    assert len(data[0]) == len(data[1]) == 5
    assert 'value_gamma' not in data[0] and 'value_gamma' in data[1]


def test_n_step_windows_span_a_player_s_own_moves() -> None:
    collector, _ = sampler(3, 2, nstep=3, discount_factor=0.5)
    data, _ = collector.collect(60)
    for player in range(2):
        rows = data[player]
        for i in range(len(rows)):
            seed, time = int(rows['obs'][i, SEED]), int(rows['obs'][i, TIME])
            moves = expected_moves(seed, 2)[player]
            k = [move[0] for move in moves].index(time)
            window = moves[k : k + 3]
            assert rows['reward'][i] == sum(0.5**j * move[2] for j, move in enumerate(window))
            assert rows['next_obs'][i, TIME] == window[-1][1]
            assert rows['value_gamma'][i] == 0.5 ** len(window)


def test_moves_that_wait_when_a_step_is_void_are_in_no_row_and_no_return() -> None:
    manager = BaseEnvManager([partial(BrokenTurns, TurnGame(i, players=3), 'Turns') for i in range(2)])
    collector = BattleSampleSerialCollector({}, manager, Player().collect_mode)
    data, infos = collector.collect(60)
    void = {
        seed
        for game in games_of(manager)
        for seed in game.played[::2]
        if Script(seed, 3, False, 9).length >= 3
    }
    whole = [s for game in games_of(manager) for s in game.played[:-1] if s not in void]
    assert len(void) > 4 and collector.discarded > len(void)
    for player in range(3):
        assert (data[player]['obs'][np.isin(data[player]['obs'][:, SEED], list(void))][:, TIME] < 2).all()
        check_rows(data[player], player, 3, manager)
        returns = sorted(info['eval_episode_return'] for info in infos[player])
        assert returns == sorted(float(Script(seed, 3, False, 9).reward[:, player].sum()) for seed in whole)


def test_episodes_are_an_equal_share_of_each_env_whatever_their_length_without_abnormal_ones() -> None:
    def info(number: int, episode: int, step: int, done: bool) -> dict[str, Any]:
        return {'abnormal': True} if (number, episode, step) == (2, 0, 3) else {}

    lengths = [lambda episode: 1, lambda episode: 30, lambda episode: 7]
    manager = counting_players(3, lengths=lengths, info=info)
    collector = BattleEpisodeSerialCollector({}, manager, ScriptedPolicy().collect_mode)
    episodes, infos = collector.collect(7)
    for player in range(2):
        begun = [tuple(episode['obs'][0].astype(int).tolist()) for episode in episodes[player]]
        assert sorted(begun) == [*((0, i, 0) for i in range(3)), (1, 0, 0), (1, 1, 0), (2, 1, 0), (2, 2, 0)]
        assert [len(episode) for episode in episodes[player]] == [[1, 30, 7][place[0]] for place in begun]
        assert len(infos[player]) == 7
    assert frames_of(manager) == 3 + 60 + 14 + 3 and collector.carried == 0
    assert collector.envstep == 3 + 60 + 14 + 2, 'an abnormal step does not count'
    episodes, infos = collector.collect(2)
    assert [len(own) for own in episodes] == [len(own) for own in infos] == [2, 2]


def test_metrics_tell_of_each_player() -> None:
    board = FakeBoard()
    collector = BattleSampleSerialCollector({}, turn_games(3), Player().collect_mode, board)
    _, infos = collector.collect(100, train_iter=100)
    for player in range(2):
        last = infos[player][-100:]
        mean = np.mean([info['eval_episode_return'] for info in last])
        assert board.last(f'rollout/player_{player}_rew_mean') == pytest.approx(mean)
        wins = np.mean([info['result'] == 'win' for info in last])
        assert board.last(f'rollout/player_{player}_win_rate') == pytest.approx(wins)
    assert board.last('rollout/draw_rate') == pytest.approx(np.mean([i['result'] == 'draw' for i in last]))
    assert board.last('rollout/ep_rew_mean') == pytest.approx(board.last('rollout/player_0_rew_mean'))


def test_policies_switches_and_envs_that_do_not_fit_are_refused() -> None:
    policies = [Player().collect_mode] * 3
    with raises(IncompatibleError):
        BattleSampleSerialCollector({}, turn_games(2), policies)
    for record in ([True], [False, False]):
        with raises(IncompatibleError):
            BattleSampleSerialCollector({'record': record}, turn_games(2), policies[0])
    with raises(IncompatibleError):
        SampleSerialCollector({}, turn_games(2), Player().collect_mode)
    with raises(IncompatibleError):
        BattleSampleSerialCollector({}, counting_manager(2), Player().collect_mode)
    with raises(ConfigError):
        policy = Player(on_policy=True).collect_mode
        BattleSampleSerialCollector({}, turn_games(2), policy).collect(6)
