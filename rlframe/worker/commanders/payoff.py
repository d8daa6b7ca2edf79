"""Payoff and Elo: win rates and ratings of the players of a league."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlframe.errors import MessageError
from rlframe.utils import schema
from rlframe.utils.schema import COUNT, FINITE, TEXT, Schema, check_state

WIN, DRAW, LOSS = 1.0, 0.5, 0.0
"""Results of a game, as its score for one of its players."""
RESULTS = {'wins': WIN, 'draws': DRAW, 'losses': LOSS, 'win': WIN, 'draw': DRAW, 'loss': LOSS}
"""Words for results, of a parallel collector and of a battle collector."""


class Payoff:
    """Win rates between players, in which recent games count more.

    With every game of two players, the counts of their earlier games are multiplied by ``decay``, since a player that is
    trained changes. A draw counts as half a win. The win rates of two players always add up to 1.

    Args:
        decay: Weight of a game relative to the next one.
        min_games: Number of games of two players below which their win rate counts as unknown, which is 0.5.
    """

    def __init__(self, decay: float = 0.99, min_games: int = 8) -> None:
        self._decay, self._min_games = decay, min_games
        self._records: dict[tuple[str, str], list[float]] = {}  # wins, draws and losses of the first, decayed
        self._games: dict[tuple[str, str], int] = {}

    def add(self, home: str, away: str, results: Iterable[float]) -> None:
        """Counts games in their order.

        Args:
            home: A player.
            away: Its opponent; games of a player with itself are not counted.
            results: For each game ``WIN``, ``DRAW`` or ``LOSS`` of ``home``.
        """
        if home == away:
            return
        pair = _pair(home, away)
        record = self._records.setdefault(pair, [0.0, 0.0, 0.0])
        for result in results:
            own = result if pair[0] == home else 1 - result
            record[:] = [count * self._decay for count in record]
            record[(WIN, DRAW, LOSS).index(own)] += 1
            self._games[pair] = self._games.get(pair, 0) + 1

    def games(self, home: str, away: str) -> int:
        """Returns the number of games of two players."""
        return self._games.get(_pair(home, away), 0)

    def win_rate(self, home: str, away: str) -> float:
        """Returns the share of games that ``home`` won, draws as half; 0.5 if there were too few."""
        pair = _pair(home, away)
        if home == away or self.games(home, away) < max(self._min_games, 1):
            return 0.5
        wins, draws, losses = self._records[pair]
        rate = (wins + 0.5 * draws) / (wins + draws + losses)
        return rate if pair[0] == home else 1 - rate

    def forget(self, player: str) -> None:
        """Removes a player and its games."""
        for pair in [pair for pair in self._records if player in pair]:
            del self._records[pair], self._games[pair]

    def table(self, players: Sequence[str]) -> dict[str, Any]:
        """Returns the win rates of all pairs and their games, as plain values."""
        return {
            'players': list(players),
            'win_rate': [[self.win_rate(home, away) for away in players] for home in players],
            'games': [[self.games(home, away) for away in players] for home in players],
        }

    SCHEMA: Schema = {
        'pairs': schema.list_of(
            {
                'players': schema.list_of(TEXT, 2),
                'record': schema.list_of(FINITE, 3),
                'games': COUNT,
            }
        )
    }

    def state_dict(self) -> dict[str, Any]:
        """Returns the counts of all pairs."""
        pairs = [
            {'players': list(pair), 'record': list(record), 'games': self._games.get(pair, 0)}
            for pair, record in self._records.items()
        ]
        return {'pairs': pairs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state from ``state_dict()``."""
        check_state(state, self.SCHEMA)
        pairs = {_pair(*saved['players']): saved for saved in state['pairs']}
        self._records = {pair: list(saved['record']) for pair, saved in pairs.items()}
        self._games = {pair: saved['games'] for pair, saved in pairs.items()}


def _pair(one: str, other: str) -> tuple[str, str]:
    """Returns the key of two players, in either order."""
    return (one, other) if one <= other else (other, one)


class Elo:
    """Elo ratings: a difference of 400 means that the stronger player is expected to win 10 games for each it loses.

    What one player gains in a game, the other one loses.

    Args:
        step: Most points that a game can change, ``K``.

    Source:
        Elo, The Rating of Chessplayers, Past and Present (1978), with the logistic curve.
    """

    def __init__(self, step: float = 16.0) -> None:
        self._step = step
        self.ratings: dict[str, float] = {}
        """Rating of each player; 0 at the beginning."""

    def expected(self, home: str, away: str) -> float:
        """Returns the score that ``home`` is expected to have in a game."""
        difference = self.ratings.get(away, 0.0) - self.ratings.get(home, 0.0)
        odds: float = 10.0 ** (difference / 400.0)
        return 1.0 / (1.0 + odds)

    def add(self, home: str, away: str, results: Iterable[float]) -> None:
        """Counts games in their order; see ``Payoff.add``."""
        if home == away:
            return
        for result in results:
            change = self._step * (result - self.expected(home, away))
            self.ratings[home] = self.ratings.get(home, 0.0) + change
            self.ratings[away] = self.ratings.get(away, 0.0) - change

    SCHEMA = schema.dict_of(FINITE)

    def state_dict(self) -> dict[str, float]:
        """Returns the ratings."""
        return dict(self.ratings)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the ratings from ``state_dict()``."""
        check_state(state, self.SCHEMA)
        self.ratings = {name: float(rating) for name, rating in state.items()}


def results_in(facts: Mapping[str, Any]) -> list[float]:
    """Returns the results of the first policy's games from the facts about a task.

    Args:
        facts: Either ``game_result``, a list of ``wins``, ``draws`` and ``losses``, or one such list for each env; or
            ``win``, ``draw`` and ``loss`` as a battle evaluator returns them: for each game, one of them is 1.

    Raises:
        MessageError: If there is neither.
    """
    if 'game_result' in facts:
        return [_result(word) for word in _flat(facts['game_result'])]
    try:
        wins, draws = ([float(value) for value in facts[name]] for name in ('win', 'draw'))
        return [WIN if win else DRAW if draw else LOSS for win, draw in zip(wins, draws, strict=True)]
    except (KeyError, TypeError, ValueError):
        raise MessageError(
            'the results of the games are missing',
            where='facts.game_result',
            got=sorted(facts),
            expected="a list of 'wins', 'draws' and 'losses' of the first policy",
        ) from None


def _flat(value: Any) -> Iterable[Any]:
    """Returns the items of a list of items or of lists."""
    rows = value if isinstance(value, list | tuple) else [value]
    return [item for row in rows for item in (row if isinstance(row, list | tuple) else [row])]


def _result(word: Any) -> float:
    if isinstance(word, str) and word in RESULTS:
        return RESULTS[word]
    raise MessageError(
        'unknown result of a game',
        where='facts.game_result',
        got=word,
        expected="'wins', 'draws' or 'losses'",
    )
