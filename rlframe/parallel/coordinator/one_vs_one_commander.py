"""OneVsOneCommander: trains a policy of a game of two in a league."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from rlframe.errors import ConfigError
from rlframe.parallel.coordinator.league import League, LeagueConfig, results_in
from rlframe.parallel.coordinator.running_tasks import Running, Situation, Snapshot
from rlframe.parallel.coordinator.solo_commander import MAIN, SoloCommander, SoloConfig, score_in, was_trained
from rlframe.parallel.transport.messages import Task
from rlframe.registry import PARALLEL_COMMANDER_REGISTRY
from rlframe.scores import number_text
from rlframe.utils.field import option
from rlframe.utils.schema import COUNT, Schema, check_state, part


class OneVsOneConfig(SoloConfig):
    """Options of ``OneVsOneCommander``."""

    parts: int = option(
        8,
        range='[1, inf)',
        unit='parts',
        doc='length of a task of a collector, in parts of data, all against the same opponent',
    )
    league: LeagueConfig


OPPONENTS = ('a random player', 'its past self of half the training', 'its hardest past self')
"""Opponents of evaluations in words, in the order of ``LEVELS``."""


@PARALLEL_COMMANDER_REGISTRY.register('one_vs_one')
class OneVsOneCommander(SoloCommander):
    """Trains one policy against itself and its past selves; see ``League``.

    Evaluations climb from a random player to the hardest past self. The random player is beaten by a mean return of at
    least ``stop_value``, or without one by the win rate; past selves are beaten by the win rate. Training ends when the
    hardest one was beaten, and only if there is a stop value. The best policy is the one with the highest score at the
    highest level.
    """

    _cfg: OneVsOneConfig
    config = dict(collector_task_space=2)

    def __init__(self, cfg: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(cfg, **kwargs)
        self.league = League(self._cfg.league, MAIN, self._seed)
        """Players and their win rates."""
        self._best_level = 0

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        errors = super().check_config(cfg)
        shares = cfg.league.branch_probs
        if shares.pfsp + shares.sp <= 0:
            errors.append(
                ConfigError(
                    'no opponents: all shares are 0',
                    where='league.branch_probs',
                    got=dict(shares),
                    expected='a share above 0',
                )
            )
        return errors

    def _collect_job(self, situation: Situation) -> Task:
        match = self.league.next_match()
        return dataclasses.replace(
            super()._collect_job(situation), policies=list(match.players), active=list(match.active)
        )

    def _evaluation_job(self, situation: Situation) -> Task:
        opponent = self.league.next_evaluation(situation.train_iter)
        job = super()._evaluation_job(situation)
        return dataclasses.replace(job, policies=[MAIN, opponent], active=[False, False])

    def _part_collected(self, running: Running, facts: Mapping[str, Any], situation: Situation) -> bool:
        opponents = [name for name in running.job.policies if name != MAIN]
        if running.job.kind == 'collect' and opponents:
            results = results_in({'game_result': facts.get('results', [])})
            self.league.played((MAIN, opponents[0]), results)
        return super()._part_collected(running, facts, situation)

    def _evaluated(self, running: Running, facts: Mapping[str, Any]) -> None:
        opponent, score, results = running.job.policies[1], score_in(facts), results_in(facts)
        level = self.league.level_of(opponent)
        self.latest = score
        self.is_best = (level, score) > (self._best_level, self.best) and not math.isnan(score)
        if self.is_best:
            self._best_level, self.best = level, score
        has_reached = self.reached(score) if level == 0 and self.stop_value is not None else None
        has_beaten_all = self.league.evaluated(opponent, results, has_reached)
        may_stop = self.stop_value is not None and was_trained(running, facts)
        self.stopped = self.stopped or (has_beaten_all and may_stop)

    def _learned(self, running: Running, situation: Situation) -> Snapshot | None:
        return self.league.take_snapshot(situation.train_iter)

    @property
    def kept_policies(self) -> list[str]:
        return sorted({*super().kept_policies, *(past.name for past in self.league.past_selves)})

    @property
    def goal(self) -> str:
        rate = self._cfg.league.eval_win_rate
        return f'{super().goal}, then a win rate of {rate:g} against past selves' if super().goal else ''

    def describe(self, score: float) -> str:
        """Returns a score as text; the best one with the opponent, as those against others do not compare."""
        if not math.isfinite(score):
            return ''
        return number_text(score) + (f' against {OPPONENTS[self._best_level]}' if score == self.best else '')

    def metrics(self) -> dict[str, float]:
        return self.league.metrics()

    def table(self) -> dict[str, Any]:
        return self.league.table()

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            'best_level': self._best_level,
            'league': self.league.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, STATE)
        super().load_state_dict(state)
        self._best_level = state['best_level']
        with part('league'):
            self.league.load_state_dict(state['league'])


STATE: Schema = {'best_level': COUNT, 'league': League.SCHEMA}
