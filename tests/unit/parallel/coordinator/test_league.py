"""League: past selves, the choice of opponents, and evaluations of rising difficulty."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.errors import CheckpointStateError
from rlframe.parallel.coordinator.base_parallel_commander import RANDOM_PLAYER, Situation
from rlframe.parallel.coordinator.league import DRAW, LOSS, WIN, League, pfsp_probs
from rlframe.parallel.coordinator.solo_commander import OneVsOneCommander

READY = Situation(version=0)
few = settings(max_examples=40, deadline=None)


def commander(stop_value: float | None = None, **league: Any) -> OneVsOneCommander:
    options = {'snapshot_freq': 10, 'payoff': dict(min_win_rate_games=1), **league}
    own = OneVsOneCommander(dict(league=options), eval_freq=5, stop_value=stop_value)
    own.get_learner_task('l', Situation())
    return own


def league_of(wins: dict[int, float], **options: Any) -> League:
    """Returns a league with past selves of these train iterations, against which the main player has these win rates."""
    league = commander(strong_win_rate=None, **options).league
    for train_iter, rate in wins.items():
        assert league.take_snapshot(train_iter) is not None
        league.played(('main', f'main_{train_iter}'), [rate])
    return league


# the choice of opponents


@few
@given(
    rates=st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=6), p=st.integers(0, 4)
)
def test_past_selves_are_chosen_by_the_formula_of_pfsp(rates: list[float], p: int) -> None:
    weights = [(1 - Fraction(rate)) ** p for rate in rates]
    total = sum(weights)
    expected = [w / total if total else Fraction(1, len(rates)) for w in weights]
    assert pfsp_probs(rates, p).tolist() == pytest.approx([float(w) for w in expected])


class Dice:
    """A generator that returns the given numbers in turn."""

    def __init__(self, *numbers: float) -> None:
        self._numbers = list(numbers)

    def random(self) -> float:
        return self._numbers.pop(0)


def test_a_match_is_drawn_with_exactly_these_probabilities() -> None:
    league = league_of({10: DRAW, 20: LOSS, 30: WIN})
    count = 1000
    drawn = []
    assert commander().league.opponent_probs() == {'main': 1}
    for k in range(count):
        league._rng = Dice((k + 0.5) / count, 0.9)  # type: ignore[assignment]  # an even grid instead of random numbers
        drawn.append(league.next_match().players[1])
    shares = {name: drawn.count(name) / count for name in league.opponent_probs()}
    assert shares == pytest.approx(league.opponent_probs(), abs=1 / count)
    assert league.opponent_probs() == pytest.approx(
        {'main': 0.5, 'main_10': 0.1, 'main_20': 0.4, 'main_30': 0}
    )


def test_only_the_main_player_records_and_it_takes_both_seats() -> None:
    league = league_of({10: LOSS}, branch_probs=dict(pfsp=1, sp=0))
    matches = {league.next_match() for _ in range(50)}
    assert {(match.players, match.active) for match in matches} == {
        (('main', 'main_10'), (True, False)),
        (('main_10', 'main'), (False, True)),
    }
    league = league_of({}, branch_probs=dict(pfsp=1, sp=0))
    assert league.next_match() == (('main', 'main'), (True, True))


def test_results_count_for_the_seat_that_had_them() -> None:
    league = league_of({10: LOSS})
    league.played(('main_10', 'main'), [LOSS])
    assert league.payoff.games('main', 'main_10') == 2
    assert league.payoff.win_rate('main', 'main_10') > 0.5  # the win was later
    league.played(('main', 'main_5'), [WIN])  # dropped meanwhile
    assert league.table()['players'] == ['main', 'main_10']


# past selves


def test_a_snapshot_comes_early_if_every_past_self_is_beaten() -> None:
    league = commander(strong_win_rate=0.7).league
    assert league.take_snapshot(5) is None  # there is none to beat
    assert league.take_snapshot(10) == 'main_10'
    league.played(('main', 'main_10'), [WIN])
    assert league.take_snapshot(14) is None
    assert league.take_snapshot(15) == 'main_15'
    assert league.take_snapshot(20) is None  # main_15 was not beaten yet
    assert league.take_snapshot(25) is not None


def test_the_easiest_past_self_is_dropped_and_its_weights_too() -> None:
    own = commander(keep=2, strong_win_rate=None)
    league = own.league
    for train_iter, result in ((10, LOSS), (20, WIN)):
        league.take_snapshot(train_iter)
        league.played(('main', f'main_{train_iter}'), [result])
    assert own.kept_policies == ['main', 'main_10', 'main_20']
    league.take_snapshot(30)
    assert own.kept_policies == ['main', 'main_10', 'main_30']
    assert league.payoff.games('main', 'main_20') == 0


def test_the_newest_past_self_is_not_dropped() -> None:
    league = league_of({10: LOSS, 20: DRAW}, keep=2)
    league.take_snapshot(30)  # unknown, hence easier than main_10
    league.played(('main', 'main_30'), [LOSS])
    league.take_snapshot(40)
    assert league.table()['players'] == ['main', 'main_30', 'main_40']


def test_weights_of_a_running_task_are_kept() -> None:
    own = commander(keep=1, strong_win_rate=None, branch_probs=dict(pfsp=1, sp=0))
    own.league.take_snapshot(10)
    evaluation = own.get_collector_task('c', READY)
    collect = own.get_collector_task('d', READY)
    assert evaluation is not None and collect is not None and 'main_10' in collect.policies
    own.league.take_snapshot(20)
    assert own.kept_policies == ['main', 'main_10', 'main_20']
    own.notify_fail_collector_task(collect.task)
    assert own.kept_policies == ['main', 'main_20']


def test_the_learner_s_progress_takes_snapshots() -> None:
    own = commander()
    assert own.update_learner_info('learn_1', {}, READY._replace(train_iter=9)) is None
    snapshot = own.update_learner_info('learn_1', {}, READY._replace(train_iter=11))
    assert snapshot == 'main_11'


def test_games_count_when_their_data_arrive_even_if_the_task_fails_afterwards() -> None:
    own = commander(strong_win_rate=None, branch_probs=dict(pfsp=1.0, sp=0.0), payoff=dict(decay=1.0))
    own.league.take_snapshot(10)
    evaluate(own, 0, ['wins'], 1.0)
    seats = set()
    for task in range(12):
        job = own.get_collector_task('c', READY)
        assert job is not None and set(job.policies) == {'main', 'main_10'}
        seats.add(tuple(job.policies))
        for _ in range(
            2
        ):  # of which the collector reports the results of the active policy, whatever its seat
            own.judge_collector_finish(job.task, {'results': ['win', 'win', 'draw']}, READY)
        if task % 2:
            own.finish_collector_task(job.task, {'game_result': [['wins', 'wins', 'draws'] * 2]})
        else:
            own.notify_fail_collector_task(job.task)
    assert len(seats) == 2 and own.league.payoff.games('main', 'main_10') == 72
    assert own.league.payoff.win_rate('main', 'main_10') == pytest.approx(2.5 / 3)


# evaluations


def evaluate(own: OneVsOneCommander, train_iter: int, results: list[str], score: float) -> tuple[str, bool]:
    """Runs the evaluation that is due; returns its opponent and whether training is over."""
    job = own.get_collector_task('c', READY._replace(train_iter=train_iter))
    assert job is not None and job.kind == 'evaluate'
    assert job.policies[0] == 'main' and job.active == [False, False]
    facts = {'score': score, 'game_result': results, 'train_iter': train_iter}
    return job.policies[1], own.finish_collector_task(job.task, facts)


def test_training_ends_when_the_hardest_opponent_is_beaten() -> None:
    own = commander(stop_value=0.9, strong_win_rate=None, snapshot_freq=10)
    wins, losses = ['wins'] * 4, ['losses'] * 4
    assert evaluate(own, 0, wins, 0.8) == (RANDOM_PLAYER, False)  # below the stop value
    assert evaluate(own, 5, wins, 1.0) == (RANDOM_PLAYER, False)
    assert evaluate(own, 10, wins, 1.0) == (RANDOM_PLAYER, False)  # there is no past self yet
    for train_iter in (10, 20, 30):
        own.league.take_snapshot(train_iter)
    assert evaluate(own, 40, losses, 1.0) == ('main_20', False)
    assert evaluate(own, 45, wins, 0.0) == ('main_20', False)  # half of the training
    own.league.played(('main', 'main_10'), [LOSS])
    own.league.played(('main', 'main_30'), [WIN])
    assert evaluate(own, 50, losses, 1.0) == ('main_10', False)
    own.league.played(('main', 'main_10'), [WIN] * 4)
    assert evaluate(own, 55, wins, 0.0) == ('main_20', True)  # by now the hardest
    assert own.stopped and own.get_collector_task('c', READY) is None


def test_without_a_stop_value_training_goes_on() -> None:
    own = commander(strong_win_rate=None)
    own.league.take_snapshot(10)
    opponents = [evaluate(own, 10 * k, ['wins'], 1.0) for k in range(4)]
    assert opponents == [(RANDOM_PLAYER, False), *[('main_10', False)] * 3]


def test_the_best_score_is_that_of_the_highest_level() -> None:
    own = commander(stop_value=1.0, strong_win_rate=None)
    own.league.take_snapshot(10)
    best = []
    for k, (score, result) in enumerate([(1.0, 'wins'), (-0.5, 'losses'), (-1.0, 'losses'), (0.0, 'draws')]):
        evaluate(own, 5 * k, [result], score)
        best.append(own.is_best)
        state, own = json.loads(json.dumps(own.state_dict())), commander(stop_value=1.0, strong_win_rate=None)
        own.load_state_dict(state)  # level and best score are kept
    assert best == [True, True, False, True] and own.best == 0.0


# reports, states, options


def test_the_table_and_the_metrics_are_plain() -> None:
    league = league_of({10: DRAW, 20: LOSS})
    league.evaluated(RANDOM_PLAYER, [WIN, LOSS])
    table = league.table()
    assert json.loads(json.dumps(table)) == table
    assert table['players'] == ['main', 'main_10', 'main_20'] == list(table['opponent_probs'])
    assert table['win_rate'][0] == [0.5, 0.5, 0.0] and table['win_rate'][2] == [1.0, 0.5, 0.5]
    metrics = league.metrics()
    assert all(isinstance(value, float) for value in metrics.values())
    assert metrics['league/past_selves'] == 2 and metrics['league/win_rate_mean'] == 0.25
    assert metrics['league/win_rate_min'] == 0 and metrics['league/eval_win_rate_random'] == 0.5


def test_the_seed_decides_the_matches() -> None:
    one, same, other = (
        OneVsOneCommander(dict(league=dict(snapshot_freq=1)), seed=seed).league for seed in (1, 1, 2)
    )
    drawn = []
    for league in (one, same, other):
        league.take_snapshot(1)
        drawn.append([league.next_match() for _ in range(40)])
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ('path', 'value'),
    [
        (('rng', 'bit_generator'), 'Dice'),
        (('level',), 3),
        (('payoff', 'pairs'), None),
        (('past_selves',), [{'name': 'main_1'}]),
    ],
)
def test_a_damaged_state_is_named(path: tuple[str, ...], value: Any) -> None:
    state = commander().state_dict()
    section = state['league']
    for name in path[:-1]:
        section = section[name]
    section[path[-1]] = value
    with pytest.raises(CheckpointStateError, match=rf'league\.{path[0]}'):
        commander().load_state_dict(state)
