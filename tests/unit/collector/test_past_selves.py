"""Games against past selves: who plays them, with which weights, whose moves are recorded."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from fakes import ScriptedPolicy, ShuffledEnvManager
from games import SEED, turn_games
from runs import differences

from rlframe.data import Batch
from rlframe.worker import BattleSampleSerialCollector
from rlframe.worker.collector.joint_policy import PastSelves


class Witness(ScriptedPolicy):
    """Notes of each move the env, the player, the game and the weight that it was made with; its weight is its state."""

    def __init__(self, moves: list[tuple[int, int, int, int]], env_num: int, **facts: Any) -> None:
        super().__init__(**facts)
        self.moves, self.env_num = moves, env_num

    def forward(self, obs: Any, env_id: Any, **settings: Any) -> Batch:
        for row, slot in zip(obs, env_id.tolist(), strict=True):
            self.moves.append((slot % self.env_num, slot // self.env_num, int(row[SEED]), self.state))
        output = super().forward(obs, env_id, **settings)
        return output.replace(weight=np.full(len(obs), self.state))

    def process_transition(self, obs: Any, output: Batch, timestep: Any) -> Any:
        return super().process_transition(obs, output, timestep) | {'weight': output['weight']}


class League:
    """A collector of games with past selves, and who made which move with which weight."""

    def __init__(
        self, env_num: int = 6, players: int = 2, shuffled: bool = False, seed: int = 0, **options: Any
    ):
        self.own: list[Any] = []
        self.others: list[Any] = []
        self.learner = Witness(self.own, env_num, n_sample=10)
        given = dict(snapshot_freq=10, keep=3, newest_share=0.5) | options
        policy = PastSelves(
            self.learner.collect_mode, self.opponent, rng=np.random.default_rng(seed), **given
        )
        manager: Any = turn_games(env_num, players=players)
        if shuffled:
            manager = ShuffledEnvManager(manager, 3)
        self.env_num, self.policy = env_num, policy
        self.collector = BattleSampleSerialCollector({}, manager, policy)

    def opponent(self) -> Any:
        witness = Witness(self.others, self.env_num)

        def forward(obs: Any, env_id: Any) -> Batch:  # takes no settings
            return Batch(action=witness.forward(obs, env_id)['action'])

        return witness.eval_mode._replace(forward=forward)

    def play(self, train_iters: Any) -> list[Any]:
        rows = []
        for train_iter in train_iters:
            self.learner.state = train_iter
            rows.append(self.collector.collect(train_iter=train_iter, policy_kwargs={'eps': 0.5})[0])
        return rows

    def weights(self) -> list[int]:
        return [face.state_dict()['state'] for face in self.policy.snapshots]


@pytest.mark.parametrize(('players', 'shuffled'), [(2, True), (3, False)])
def test_opponents_have_old_weights_and_only_the_learners_moves_are_recorded(
    players: int, shuffled: bool
) -> None:
    league = League(players=players, shuffled=shuffled)
    assert league.play(range(5)) and not league.others, 'there is no snapshot yet'
    rows = league.play(range(5, 45))
    assert {weight for *_, weight in league.others} == {10, 20, 30, 40}, 'never the weights of the moment'
    assert league.weights() == [40, 20, 30], 'the newest three'
    recorded = [
        (int(w), tuple(o.tolist()))
        for own in rows
        for batch in own
        for w, o in zip(batch['weight'], batch['obs'], strict=True)
    ]
    assert len(set(recorded)) == len(recorded) == 40 * 10 * players
    made = {(env, player, seed) for env, player, seed, _ in league.own}
    for own in rows:
        for player, batch in enumerate(own):
            assert (batch['told'] == batch['obs']).all()
            for slot, obs in zip(batch['acted'].tolist(), batch['obs'], strict=True):
                assert (
                    slot // league.env_num == player
                    and (slot % league.env_num, player, int(obs[SEED])) in made
                )


def test_who_plays_is_fixed_for_a_game_and_drawn_anew_for_each() -> None:
    league = League(env_num=8, newest_share=0.25)
    league.play([0, *range(10, 60)])
    games: dict[tuple[int, int], dict[int, set[str]]] = {}
    for who, moves in (('learner', league.own), ('past', league.others)):
        for env, player, seed, _ in moves:
            games.setdefault((env, seed), {}).setdefault(player, set()).add(who)
    later = [seats for seats in games.values() if len(seats) == 2]
    assert len(later) > 40 and all(len(who) == 1 for seats in later for who in seats.values())
    kinds = [tuple(seats[p].copy().pop() for p in (0, 1)) for seats in later]
    share = {kind: kinds.count(kind) / len(kinds) for kind in set(kinds)}
    assert ('past', 'past') not in share
    assert share['learner', 'learner'] == pytest.approx(0.25, abs=0.15)
    assert share['learner', 'past'] == pytest.approx(share['past', 'learner'], abs=0.2)


def test_a_state_is_a_copy() -> None:
    league = League()
    league.play(range(0, 37))
    state = league.collector.state_dict()
    before = copy.deepcopy(state)
    league.play(range(37, 52))
    assert differences(before, state) == [] and league.weights() == [40, 50, 30]
