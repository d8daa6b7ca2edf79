"""Payoff: win rates from the results of games."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.errors import MessageError
from rlframe.parallel.coordinator.league import DRAW, LOSS, WIN, Payoff, results_in

PLAYERS = ('a', 'b', 'c')
GAMES = st.lists(
    st.tuples(
        st.sampled_from(PLAYERS),
        st.sampled_from(PLAYERS),
        st.lists(st.sampled_from([WIN, DRAW, LOSS]), max_size=4),
    ),
    max_size=30,
)
Games = list[tuple[str, str, list[float]]]
few = settings(max_examples=40, deadline=None)


@few
@given(games=GAMES, decay=st.floats(0.1, 1.0), min_games=st.integers(1, 5))
def test_a_win_rate_is_the_mean_result_with_decaying_weights(
    games: Games, decay: float, min_games: int
) -> None:
    payoff = Payoff(decay, min_games)
    seen: list[float] = []  # of a against b
    for home, away, results in games:
        payoff.add(home, away, results)
        if (home, away) in (('a', 'b'), ('b', 'a')):
            seen += [result if home == 'a' else 1 - result for result in results]
    weights = [decay**age for age in reversed(range(len(seen)))]
    mean = sum(w * r for w, r in zip(weights, seen, strict=True)) / sum(weights) if seen else 0.5
    assert payoff.win_rate('a', 'b') == pytest.approx(mean if len(seen) >= min_games else 0.5)
    assert payoff.games('a', 'b') == payoff.games('b', 'a') == len(seen)
    for home, away in itertools.product(PLAYERS, repeat=2):
        assert payoff.win_rate(home, away) + payoff.win_rate(away, home) == 1


def test_a_forgotten_player_has_no_games() -> None:
    payoff = Payoff(min_games=1)
    payoff.add('a', 'b', [WIN])
    payoff.add('c', 'a', [WIN])
    payoff.forget('b')
    assert payoff.games('a', 'b') == 0 and payoff.games('a', 'c') == 1 and payoff.win_rate('a', 'b') == 0.5


@pytest.mark.parametrize(
    ('facts', 'results'),
    [
        ({'game_result': ['wins', 'losses', 'draws']}, [1, 0, 0.5]),
        ({'game_result': [['wins', 'losses'], [], ['draws']]}, [1, 0, 0.5]),
        ({'game_result': [['win'], 'loss', ['draw']]}, [1, 0, 0.5]),
        ({'game_result': []}, []),
    ],
)
def test_results_are_read_from_facts(facts: dict[str, Any], results: list[float]) -> None:
    assert results_in(facts) == results


@pytest.mark.parametrize(
    'facts',
    [{}, {'game_result': ['victory']}, {'game_result': 7}],
)
def test_missing_or_unknown_results_are_named(facts: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match=r'facts\.game_result'):
        results_in(facts)
