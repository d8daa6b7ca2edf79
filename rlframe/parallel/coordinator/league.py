"""League: a player that is trained, its past selves, and the choice of its opponents."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlframe.errors import MessageError
from rlframe.parallel.coordinator.base_parallel_commander import RANDOM_PLAYER
from rlframe.utils import schema
from rlframe.utils.every import Every, interval
from rlframe.utils.field import Section, option
from rlframe.utils.schema import COUNT, FINITE, GENERATOR, TEXT, Schema, check_state, part
from rlframe.utils.seed import component_rng
from rlframe.utils.serialize import checked_bits

WIN, DRAW, LOSS = 1.0, 0.5, 0.0
"""Results of a game, as its score for one of its players."""
RESULTS = {'wins': WIN, 'draws': DRAW, 'losses': LOSS, 'win': WIN, 'draw': DRAW, 'loss': LOSS}
"""Words for results, in the facts about a task and about one of its parts."""
LEVELS = ('random', 'half', 'hardest')
"""Opponents of evaluations, by rising difficulty."""
LEVEL = schema.Kind(f'an int from 0 to {len(LEVELS) - 1}', lambda v: COUNT.fits(v) and v < len(LEVELS))


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
        # wins, draws and losses of the first player, decayed, and the number of games
        self._records: dict[tuple[str, str], tuple[list[float], int]] = {}

    def add(self, home: str, away: str, results: Iterable[float]) -> None:
        """Counts games in their order, by the results of ``home``; games of a player with itself are not counted."""
        if home == away:
            return
        pair = _pair(home, away)
        record, games = self._records.get(pair, ([0.0, 0.0, 0.0], 0))
        for result in results:
            own = result if pair[0] == home else 1 - result
            record = [count * self._decay for count in record]
            record[(WIN, DRAW, LOSS).index(own)] += 1
            games += 1
        self._records[pair] = record, games

    def games(self, home: str, away: str) -> int:
        """Returns the number of games of two players."""
        return self._records.get(_pair(home, away), ([], 0))[1]

    def win_rate(self, home: str, away: str) -> float:
        """Returns the share of games that ``home`` won, draws as half; 0.5 if there were too few."""
        pair = _pair(home, away)
        if home == away or self.games(home, away) < max(self._min_games, 1):
            return 0.5
        (wins, draws, losses), _ = self._records[pair]
        rate = (wins + 0.5 * draws) / (wins + draws + losses)
        return rate if pair[0] == home else 1 - rate

    def forget(self, player: str) -> None:
        """Removes a player and its games."""
        for pair in [pair for pair in self._records if player in pair]:
            del self._records[pair]

    def table(self, players: Sequence[str]) -> dict[str, Any]:
        """Returns the win rates of all pairs and their games, as plain values."""
        return {
            'players': list(players),
            'win_rate': [[self.win_rate(home, away) for away in players] for home in players],
            'games': [[self.games(home, away) for away in players] for home in players],
        }

    PAIR: Schema = {'players': schema.list_of(TEXT, 2), 'record': schema.list_of(FINITE, 3), 'games': COUNT}
    SCHEMA: Schema = {'pairs': schema.list_of(PAIR)}

    def state_dict(self) -> dict[str, Any]:
        """Returns the counts of all pairs."""
        records = self._records.items()
        return {'pairs': [dict(players=list(pair), record=record, games=n) for pair, (record, n) in records]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state from ``state_dict()``."""
        check_state(state, self.SCHEMA)
        self._records = {_pair(*each['players']): (each['record'], each['games']) for each in state['pairs']}


def _pair(one: str, other: str) -> tuple[str, str]:
    """Returns the key of two players, in either order."""
    return (one, other) if one <= other else (other, one)


def results_in(facts: Mapping[str, Any]) -> list[float]:
    """Returns the results of the first policy's games from the facts about a task.

    Args:
        facts: With ``game_result``, a list of ``wins``, ``draws`` and ``losses``, or one such list for each env.

    Raises:
        MessageError: If they are missing or unknown.
    """
    found = facts.get('game_result')
    rows = found if isinstance(found, list) else [None]
    words = [word for row in rows for word in (row if isinstance(row, list) else [row])]
    if not all(isinstance(word, str) and word in RESULTS for word in words):
        raise MessageError(
            'the results of the games are missing or unknown',
            where='facts.game_result',
            got=found,
            expected="a list of 'wins', 'draws' and 'losses' of the first policy",
        )
    return [RESULTS[str(word)] for word in words]


class Shares(Section):
    """Shares of games by the choice of the opponent, relative to their sum."""

    pfsp: float = option(0.5, range='[0, 1]', doc='share of games with past selves, chosen by their strength')
    sp: float = option(
        0.5, range='[0, 1]', doc='share of games with itself; the shares are relative to their sum'
    )


class PayoffConfig(Section):
    """Options of the payoff table."""

    decay: float = option(
        0.99, range='(0, 1]', doc='weight of a game in win rates, relative to the next game'
    )
    min_win_rate_games: int = option(
        8, range='[1, inf)', unit='games', doc='number of games below which a win rate counts as 0.5'
    )


class LeagueConfig(Section):
    """Options of a league."""

    branch_probs: Shares
    hardness: float = option(
        2.0,
        range='[0, inf)',
        doc='exponent p of the weight (1 - win rate) ** p by which past selves are chosen; 0: all alike',
    )
    snapshot_freq: int | str = interval(1000, 'longest interval between two past selves')
    strong_win_rate: float | None = option(
        0.7,
        range='[0, 1]',
        doc='win rate against every past self with which the next one is taken after half of snapshot_freq; None: never',
    )
    keep: int = option(
        20,
        range='[1, inf)',
        unit='past selves',
        doc='number of past selves that are kept; the one most often beaten is dropped',
    )
    payoff: PayoffConfig
    eval_win_rate: float = option(
        0.7,
        range='[0, 1]',
        doc='win rate, draws as half, with which an evaluation counts as won',
        may_change=True,
    )
    eval_opening: int = option(
        1,
        range='[0, inf)',
        unit='moves',
        doc='random moves of each player at the start of an evaluated game against a past self; without any, all such games are the same two',
        may_change=True,
    )


class Match(NamedTuple):
    """Who plays a game of two."""

    players: tuple[str, str]
    active: tuple[bool, bool]
    """Whose moves are training data."""


class PastSelf(NamedTuple):
    """A player with the weights that the main player had."""

    name: str
    train_iter: int


class League:
    """Trains one player, the main player, against itself and against its past selves.

    Opponents are chosen by prioritised fictitious self-play. Evaluations have opponents of rising difficulty: a random
    player, the past self of half of the training, and the past self that the main player beats least often.

    Source:
        Vinyals et al., Grandmaster level in StarCraft II using multi-agent reinforcement learning (2019), Methods,
        "Prioritized fictitious self-play".
    """

    def __init__(self, cfg: LeagueConfig, main: str, seed: int = 0) -> None:
        self._cfg = cfg
        self.main = main
        """Name of the main player."""
        self.past_selves: list[PastSelf] = []
        """In the order of their making."""
        self.payoff = Payoff(self._cfg.payoff.decay, self._cfg.payoff.min_win_rate_games)
        """Win rates in games for training."""
        self.level = 0
        """Index in ``LEVELS`` of the next evaluation's opponent, if there is a past self."""
        self._last_snapshot = 0
        self._eval_win_rates: dict[str, float] = {}
        self._rng = component_rng(seed, 'league')

    # games for training

    def opponent_probs(self) -> dict[str, float]:
        """Returns the probability of each opponent of the main player, itself included."""
        shares = self._cfg.branch_probs
        if not self.past_selves:
            return {self.main: 1.0}
        names = [past.name for past in self.past_selves]
        rates = [self.payoff.win_rate(self.main, name) for name in names]
        chosen = pfsp_probs(rates, self._cfg.hardness)
        with_past = shares.pfsp / (shares.pfsp + shares.sp)
        probs = {name: float(with_past * prob) for name, prob in zip(names, chosen, strict=True)}
        return {self.main: 1.0 - with_past, **probs}

    def next_match(self) -> Match:
        """Draws an opponent for the main player, and its seat."""
        probs = self.opponent_probs()
        bounds = np.cumsum(list(probs.values()))
        drawn = int(np.searchsorted(bounds / bounds[-1], self._rng.random(), side='right'))
        opponent = list(probs)[drawn]
        is_second = bool(self._rng.random() < 0.5)
        if opponent == self.main:
            return Match((self.main, self.main), (True, True))
        if is_second:
            return Match((opponent, self.main), (False, True))
        return Match((self.main, opponent), (True, False))

    def played(self, players: Sequence[str], results: Sequence[float]) -> None:
        """Counts games for training, by the results of the first player; those of a dropped past self are ignored."""
        if {self.main, *(past.name for past in self.past_selves)}.issuperset(players):
            self.payoff.add(players[0], players[1], results)

    # past selves

    def take_snapshot(self, train_iter: int, envstep: int = 0) -> str | None:
        """Returns the name of the snapshot that is due, which is a player from now on, or None."""
        every = Every.of(self._cfg.snapshot_freq)
        now = every.now(train_iter, envstep)
        passed = now - self._last_snapshot
        length = every.after(self._last_snapshot)
        is_early = 2 * passed >= length and self._is_strong()
        if passed <= 0 or not (is_early or passed >= length):
            return None
        name = f'{self.main}_{train_iter}'
        self._last_snapshot = now
        self.past_selves.append(PastSelf(name, train_iter))
        if len(self.past_selves) > self._cfg.keep:
            dropped = max(self.past_selves[:-1], key=self._ease)
            self.past_selves.remove(dropped)
            self.payoff.forget(dropped.name)
        return name

    def _is_strong(self) -> bool:
        """Returns whether the main player beats every past self."""
        least = self._cfg.strong_win_rate
        if least is None or not self.past_selves:
            return False
        return all(self._ease(past) >= least for past in self.past_selves)

    def _ease(self, past: PastSelf) -> float:
        return self.payoff.win_rate(self.main, past.name)

    # evaluations

    def next_evaluation(self, train_iter: int) -> str:
        """Returns the opponent of an evaluation of the main player."""
        if self.level == 0 or not self.past_selves:
            return RANDOM_PLAYER
        if LEVELS[self.level] == 'half':
            return min(self.past_selves, key=lambda past: abs(past.train_iter - train_iter / 2)).name
        return min(reversed(self.past_selves), key=self._ease).name

    def level_of(self, opponent: str) -> int:
        """Returns the level of an evaluation against an opponent."""
        return 0 if opponent == RANDOM_PLAYER else self.level

    def evaluated(self, opponent: str, results: Sequence[float], has_won: bool | None = None) -> bool:
        """Counts the games of an evaluation by the results of the main player; after a won one, the next opponent is harder.

        Without ``has_won``, the win rate decides. Returns whether it was won against the hardest opponent.
        """
        level = self.level_of(opponent)
        win_rate = float(np.mean(results)) if results else 0.0
        self._eval_win_rates[LEVELS[level]] = win_rate
        won = win_rate >= self._cfg.eval_win_rate if has_won is None else has_won
        if won:
            self.level = max(self.level, min(level + 1, len(LEVELS) - 1))
        return won and level == len(LEVELS) - 1

    # reports

    def metrics(self) -> dict[str, float]:
        """Returns the state of the league in numbers; the names do not depend on the players."""
        rates = [self._ease(past) for past in self.past_selves]
        values = {
            'league/past_selves': float(len(rates)),
            'league/eval_level': float(self.level),
            **{f'league/eval_win_rate_{name}': rate for name, rate in self._eval_win_rates.items()},
        }
        if rates:
            values |= {'league/win_rate_mean': float(np.mean(rates)), 'league/win_rate_min': min(rates)}
        return values

    def table(self) -> dict[str, Any]:
        """Returns the payoff of all players and the next opponent's probabilities, as plain values."""
        players = [self.main, *(past.name for past in self.past_selves)]
        return {
            **self.payoff.table(players),
            'opponent_probs': self.opponent_probs(),
            'eval_win_rate': dict(self._eval_win_rates),
        }

    # state

    SCHEMA: Schema = {
        'past_selves': schema.list_of({'name': TEXT, 'train_iter': COUNT}),
        'payoff': Payoff.SCHEMA,
        'level': LEVEL,
        'last_snapshot': COUNT,
        'eval_win_rates': schema.dict_of(FINITE),
        'rng': GENERATOR,
    }

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that later decisions depend on, the random generator included."""
        return {
            'past_selves': [past._asdict() for past in self.past_selves],
            'payoff': self.payoff.state_dict(),
            'level': self.level,
            'last_snapshot': self._last_snapshot,
            'eval_win_rates': dict(self._eval_win_rates),
            'rng': copy.deepcopy(self._rng.bit_generator.state),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state from ``state_dict()``."""
        check_state(state, self.SCHEMA)
        self.past_selves = [PastSelf(**saved) for saved in state['past_selves']]
        with part('payoff'):
            self.payoff.load_state_dict(state['payoff'])
        self.level, self._last_snapshot = state['level'], state['last_snapshot']
        self._eval_win_rates = dict(state['eval_win_rates'])
        with part('rng'):
            self._rng.bit_generator.state = copy.deepcopy(checked_bits(state['rng']))


def pfsp_probs(win_rates: Sequence[float], hardness: float = 2.0) -> npt.NDArray[np.float64]:
    """Returns the probabilities of opponents in prioritised fictitious self-play.

    Args:
        win_rates: Against each opponent, [n].
        hardness: Exponent p of the weights f_hard(x) = (1 - x) ** p.

    Returns:
        [n]; all equal if every weight is 0, as when every opponent is always beaten.

    Source:
        Vinyals et al. (2019), Methods: f_hard.
    """
    weights: npt.NDArray[np.float64] = (1 - np.asarray(win_rates, np.float64)) ** hardness
    total = float(weights.sum())
    return weights / total if total > 1e-10 else np.full_like(weights, 1 / len(weights))
