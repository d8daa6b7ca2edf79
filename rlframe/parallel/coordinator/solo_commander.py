"""SoloCommander: trains one policy; OneVsOneCommander: trains one in a league."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from easydict import EasyDict

from rlframe.errors import ConfigError, MessageError
from rlframe.parallel.coordinator.base_parallel_commander import (
    MAIN,
    BaseParallelCommander,
    ParallelCommanderConfig,
    Running,
    Situation,
)
from rlframe.parallel.coordinator.league import League, LeagueConfig, results_in
from rlframe.parallel.transport.messages import Task
from rlframe.registry import PARALLEL_COMMANDER_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.schema import COUNT, FINITE, FLAG, INT, NUMBER, Schema, check_state, part

STATE: Schema = {
    'latest': NUMBER,
    'best': NUMBER,
    'is_best': FLAG,
    'has_filled': FLAG,
    'has_learner': FLAG,
    'evaluated_last': {'due_iter': INT, 'due_seconds': FINITE, 'due_envstep?': INT, 'train_iter': INT},
}


class Evaluated(NamedTuple):
    """When the last evaluation began."""

    due_iter: int = -1
    """Train iterations when the last evaluation was due; -1 before the first."""
    due_seconds: float = 0.0
    """Seconds at that moment."""
    due_envstep: int = 0
    """Env steps at that moment."""
    train_iter: int = -1
    """Train iterations at the last evaluation, the final one included."""


class SoloConfig(ParallelCommanderConfig):
    """Options of ``SoloCommander``."""

    lockstep: bool = option(
        False,
        doc='whether collection and training take turns, as in serial mode: slower, and the same results on every machine',
    )
    parts: int = option(
        0,
        range='[0, inf)',
        unit='parts',
        doc='length of a task of a collector, in parts of data; 0: until an evaluation is due',
    )


@PARALLEL_COMMANDER_REGISTRY.register('solo')
class SoloCommander(BaseParallelCommander):
    """Trains one policy: one learner, any number of collectors, and evaluations that take the place of a collector.

    Collectors get work once a learner has its task and has published weights. The first task fills the buffer at random
    if the config asks for it. Evaluations are due as in ``ISerialEvaluator.should_eval``; only one runs at a time. A mean
    return that reaches ``stop_value`` ends training, unless the policy was not trained yet.
    """

    _cfg: SoloConfig

    def __init__(self, cfg: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(cfg, **kwargs)
        self.lockstep = self._cfg.lockstep
        self._has_filled = self._random_collect_size == 0
        self._has_learner = False
        self._evaluated_last = Evaluated()
        self._evaluated_before = Evaluated()  # restored if the running evaluation fails

    @classmethod
    def check_config(cls, cfg: SoloConfig) -> list[ConfigError]:
        errors = super().check_config(cfg)
        if cfg.learner_task_space > 1:
            facts: Any = dict(where='learner_task_space', got=cfg.learner_task_space, expected='0 or 1')
            remedy = 'A learner may have several ranks.'
            errors.append(ConfigError('one policy is trained by one learner', **facts, remedy=remedy))
        if cfg.lockstep and cfg.eval_interval is not None:
            facts = dict(where='eval_interval', got=cfg.eval_interval, expected='None')
            remedy, what = 'Set policy.eval.evaluator.eval_freq.', 'evaluations must not depend on time'
            errors.append(ConfigError(f'in lockstep, {what}', **facts, remedy=remedy))
        return errors

    def _next_learner_job(self, situation: Situation) -> Task | None:
        if situation.is_over or self._has('learn'):
            return None
        self._has_learner = True
        name = self._name_task('learn')
        settings = {'lockstep': self.lockstep}
        return Task(name, 'learn', [MAIN], [True], MAIN, settings=settings)

    def _next_collector_job(self, situation: Situation) -> Task | None:
        has_to_wait = self.lockstep and (self._tasks_of('collector') or situation.updates_due)
        if not self._has_learner or situation.version < 0 or has_to_wait:
            return None
        if not self._has_filled:
            if self._has('collect_at_random'):
                return None
            name = self._name_task('random')
            return Task(name, 'collect_at_random', [MAIN], [True], MAIN, self._random_collect_size, 1)
        if self._takes_evaluation(situation):
            return self._evaluation_job(situation)
        return None if situation.spent else self._collect_job(situation)

    def _evaluation_job(self, situation: Situation) -> Task:
        return Task(self._name_task('evaluate'), 'evaluate', [MAIN], [False], newer_than=situation.version)

    def _collect_job(self, situation: Situation) -> Task:
        parts, version = (1, situation.version) if self.lockstep else (self._cfg.parts, -1)
        name = self._name_task('collect')
        settings = self.settings(situation)
        return Task(name, 'collect', [MAIN], [True], MAIN, parts=parts, newer_than=version, settings=settings)

    # evaluations

    def _takes_evaluation(self, situation: Situation) -> bool:
        """Returns whether an evaluation is to begin, and notes that it does."""
        if not self._wants_evaluation(situation):
            return False
        last = self._evaluated_before = self._evaluated_last
        if self._is_due(situation):
            last = Evaluated(situation.train_iter, situation.seconds, situation.envstep)
        self._evaluated_last = last._replace(train_iter=situation.train_iter)
        return True

    def _wants_evaluation(self, situation: Situation) -> bool:
        if self._has('evaluate'):
            return False
        is_final = situation.is_over and self._evaluated_last.train_iter != situation.train_iter
        return is_final or (self._is_due(situation) and not (situation.spent and situation.updates_due))

    def _is_due(self, situation: Situation) -> bool:
        """Returns whether an evaluation is due: the first time, then at intervals."""
        last = self._evaluated_last
        if situation.train_iter == last.due_iter:
            return False
        if self._cfg.eval_interval is not None:
            return last.due_iter < 0 or situation.seconds - last.due_seconds >= self._cfg.eval_interval
        every = self._eval_freq
        before = every.now(max(last.due_iter, 0), last.due_envstep)
        passed = every.now(situation.train_iter, situation.envstep) - before
        return situation.train_iter == 0 or passed >= every.after(before)

    def _part_collected(self, running: Running, facts: Mapping[str, Any], situation: Situation) -> bool:
        if running.job.kind == 'collect_at_random':
            self._has_filled = True
        return running.job.kind == 'collect' and self._wants_evaluation(situation)

    def _collector_ended(self, running: Running, facts: Mapping[str, Any] | None) -> None:
        if running.job.kind != 'evaluate':
            return
        if facts is None:
            self._evaluated_last = self._evaluated_before
        else:
            self._evaluated(running, facts)

    def _evaluated(self, running: Running, facts: Mapping[str, Any]) -> None:
        """Judges the result of an evaluation."""
        self.latest = score_in(facts)
        self.is_best = self.latest > self.best
        self.best = max(self.best, self.latest)
        self.stopped = self.stopped or (self.reached(self.latest) and was_trained(running, facts))

    def is_complete(self, situation: Situation) -> bool:
        """Returns whether nothing remains to be done, the last evaluation included."""
        evaluated = self._evaluated_last.train_iter == situation.train_iter
        return self.stopped or (super().is_complete(situation) and evaluated)

    @property
    def kept_policies(self) -> list[str]:
        return sorted({MAIN, *super().kept_policies})

    # state

    def state_dict(self) -> dict[str, Any]:
        evaluated_last = self._evaluated_before if self._has('evaluate') else self._evaluated_last
        return {
            **super().state_dict(),
            'latest': self.latest,
            'best': self.best,
            'is_best': self.is_best,
            'has_filled': self._has_filled,
            'has_learner': self._has_learner,
            'evaluated_last': evaluated_last._asdict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, STATE)
        super().load_state_dict(state)
        self.latest, self.best, self.is_best = state['latest'], state['best'], state['is_best']
        self._has_filled, self._has_learner = state['has_filled'], state['has_learner']
        self._evaluated_last = Evaluated(**state['evaluated_last'])


def score_in(facts: Mapping[str, Any]) -> float:
    """Returns the score of an evaluation.

    Raises:
        MessageError: If the facts have none.
    """
    score: Any = facts.get('score')
    if not NUMBER.fits(score):
        raise MessageError(
            'an evaluation has a score', where='facts.score', got=score, expected='a number, the mean return'
        )
    return float(score)


def was_trained(running: Running, facts: Mapping[str, Any]) -> bool:
    """Returns whether the evaluated weights are those of a trained policy."""
    return bool(facts.get('train_iter', running.train_iter) > 0)


class OneVsOneConfig(SoloConfig):
    """Options of ``OneVsOneCommander``."""

    parts: int = option(
        8,
        range='[1, inf)',
        unit='parts',
        doc='length of a task of a collector, in parts of data, all against the same opponent',
    )
    league: LeagueConfig


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
            facts: Any = dict(where='league.branch_probs', got=dict(shares), expected='a share above 0')
            errors.append(ConfigError('no opponents: all shares are 0', **facts))
        return errors

    def _collect_job(self, situation: Situation) -> Task:
        match = self.league.next_match()
        job = super()._collect_job(situation)
        return dataclasses.replace(job, policies=list(match.players), active=list(match.active))

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
        opponent = running.job.policies[1]
        score = score_in(facts)
        results = results_in(facts)
        level = self.league.level_of(opponent)
        self.latest = score
        self.is_best = (level, score) > (self._best_level, self.best) and not math.isnan(score)
        if self.is_best:
            self._best_level, self.best = level, score
        has_reached = self.reached(score) if level == 0 and self.stop_value is not None else None
        has_beaten_all = self.league.evaluated(opponent, results, has_reached)
        may_stop = self.stop_value is not None and was_trained(running, facts)
        self.stopped = self.stopped or (has_beaten_all and may_stop)

    def _learned(self, running: Running, situation: Situation) -> str | None:
        return self.league.take_snapshot(situation.train_iter, situation.envstep)

    @property
    def kept_policies(self) -> list[str]:
        return sorted({*super().kept_policies, *(past.name for past in self.league.past_selves)})

    @property
    def goal(self) -> str:
        rate = self._cfg.league.eval_win_rate
        return f'{super().goal}, then a win rate of {rate:g} against past selves' if super().goal else ''

    def metrics(self) -> dict[str, float]:
        return self.league.metrics()

    def table(self) -> dict[str, Any]:
        return self.league.table()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), 'best_level': self._best_level, 'league': self.league.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'best_level': COUNT, 'league': League.SCHEMA})
        super().load_state_dict(state)
        self._best_level = state['best_level']
        with part('league'):
            self.league.load_state_dict(state['league'])
