"""DoctorHook: the training doctor, which looks for diseases of training at each evaluation."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.registry import HOOK_REGISTRY
from rlframe.utils.field import Field, ResolvedConfig
from rlframe.utils.schema import COUNT, DICT, NUMBER, check_state, dict_of, list_of, maybe, part
from rlframe.worker.hooks.checks import (
    HISTORY,
    STALLED,
    Check,
    DeadUnits,
    EntropyCollapse,
    Exam,
    ExplodingQ,
    LargeKL,
    Recent,
    threshold,
)
from rlframe.worker.hooks.run_hook import RunHook, RunView

TINY = 0.01
"""Largest absolute return of an episode below which rewards are too small, if they are not all 0."""
AT_THE_BOUND = 0.99
"""Absolute action, in units of half its range, from which it is saturated."""
FIRST_EPISODES, TRAINED_EPISODES = 10, 200
"""Training episodes from which the return of a random policy is taken, and after which scores are compared with it."""
FEW_UPDATES = 100
"""Train iterations without which a replay ratio is not judged."""


class RewardScale(Check):
    """Compares the mean absolute reward of an env step, and the returns of episodes, with the scale that networks learn well.

    Not checked if the policy normalises rewards or returns.

    Source:
        Henderson et al., Deep Reinforcement Learning that Matters (2018), section "Reward Scale".
    """

    name = 'reward_scale'
    field = threshold(
        100.0,
        range='(1, inf)',
        unit='reward per env step',
        doc='absolute mean above which rewards are too large; returns below 0.01 are too small',
    )

    def look(self, exam: Exam) -> str:
        lengths, returns = exam.run.evaluation.info.get('eval_episode_len', ()), exam.returns
        if exam.rescales_rewards or not returns or len(lengths) != len(returns):
            return ''
        if not getattr(exam.run.evaluator, 'scores_returns', True):
            return ''
        reward = float(
            np.mean([abs(value) / max(length, 1) for value, length in zip(returns, lengths, strict=True)])
        )
        largest = max(map(abs, returns))
        if reward <= self.limit and not 0 < largest < TINY:
            return ''
        seen = f'rewards are about {reward:.3g} per env step'
        remedy = 'policy.normalize_reward=True, or scale them to about 1 in a wrapper (env.wrappers)'
        return f'reward scale: {seen}, which networks learn badly. Set {remedy}'


class AllTruncated(Check):
    """Looks for evaluations in which every episode is cut by the time limit, with the same score each time.

    Then no episode reaches an end that the policy could learn from.

    Source:
        Pardo et al., Time Limits in Reinforcement Learning (2018).
    """

    name = 'truncated'
    field = threshold(
        20,
        range='[2, inf)',
        unit='evaluations',
        doc='in a row whose episodes were all cut by the time limit, with the same score',
    )

    def __init__(self, limit: float) -> None:
        super().__init__(limit)
        self._count = 0

    def look(self, exam: Exam) -> str:
        info, limit = exam.run.evaluation.info, exam.run.spec.max_episode_steps
        lengths, cut = info.get('eval_episode_len', ()), info.get('eval_episode_cut', ())
        all_cut = bool(lengths) and (
            all(cut) or (limit is not None and all(length >= limit for length in lengths))
        )
        same = len(exam.scores) < 2 or exam.scores[-1] == exam.scores[-2]
        self._count = self._count + 1 if all_cut and same else 0
        if self._count < self.limit:
            return ''
        explore = exam.advise('policy.other.eps', 'policy.learn.entropy_weight', 'policy.collect.noise_sigma')
        return (
            f'all episodes truncated: in {self._count} evaluations, every episode ran into the limit of {max(lengths):,} env'
            f' steps with the score {exam.scores[-1]:.4g}. Explore more{f": {explore}" if explore else ""}, raise the time limit'
            ' (env.wrappers), or give rewards on the way'
        )

    def state_dict(self) -> dict[str, Any]:
        return {'count': self._count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'count': COUNT})
        self._count = state['count']


class Saturation(Check):
    """Looks at the newest continuous actions of a policy whose score has not improved for three evaluations.

    Saturated: the share of their components at a bound of the action space. Good policies may saturate, too.

    Source:
        Seyde et al., Is Bang-Bang Control All You Need? (2021); Hausknecht & Stone, Deep RL in Parameterized Action Space (2016),
        section 4.2, on saturated actors.
    """

    name = 'saturation'
    field = threshold(
        0.95,
        range='(0, 1]',
        doc='share of action components at a bound, above which the actor is saturated',
    )

    def look(self, exam: Exam) -> str:
        actions = exam.recent.column('action')
        if actions is None or actions.dtype.kind != 'f' or not exam.has_stalled(STALLED):
            return ''
        share = float((np.abs(actions) >= AT_THE_BOUND).mean())
        if not share > self.limit:
            return ''
        rate = exam.advise('policy.learn.learning_rate_actor', 'policy.learn.learning_rate')
        return (
            f'saturated actions: {share:.0%} of the newest action components are at a bound, and no evaluation was better in'
            f' {STALLED}. Lower {rate}, set policy.normalize_obs=True, or scale the rewards down'
        )


class ReplayRatio(Check):
    """Compares updates per env step since the last evaluation with those of the config.

    The planned ratio is ``policy.learn.update_per_collect`` / ``policy.collect.n_sample``, or the first measured one if
    samples are not single env steps.

    Source:
        Fedus et al., Revisiting Fundamentals of Experience Replay (2020), section 3.1.
    """

    name = 'replay_ratio'
    field = threshold(
        2.0,
        range='(1, inf)',
        doc='factor by which updates per env step may differ from the config',
    )

    def __init__(self, limit: float) -> None:
        super().__init__(limit)
        self._envstep = self._train_iter = 0  # at the last measurement
        self._first: float | None = None

    def look(self, exam: Exam) -> str:
        progress = exam.run.progress
        updates, steps = progress.train_iter - self._train_iter, progress.envstep - self._envstep
        is_first = not self._train_iter
        if exam.option('policy.on_policy') or updates < FEW_UPDATES or not steps:
            return ''
        self._envstep, self._train_iter = progress.envstep, progress.train_iter
        if is_first:  # it includes the time in which the buffer was filled
            return ''
        ratio = updates / steps
        self._first = self._first or ratio
        planned = _planned_ratio(exam) or self._first
        if max(ratio / planned, planned / ratio) <= self.limit:
            return ''
        keys = exam.advise(
            'policy.learn.update_per_collect',
            'parallel.collector_num',
            'parallel.coordinator.max_updates_due',
        )
        return (
            f'replay-ratio drift: {ratio:.3g} updates per env step, planned were {planned:.3g}. Change {keys}'
        )

    def state_dict(self) -> dict[str, Any]:
        return {'envstep': self._envstep, 'train_iter': self._train_iter, 'first': self._first}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'envstep': COUNT, 'train_iter': COUNT, 'first': maybe(NUMBER)})
        self._envstep, self._train_iter, self._first = (
            state[name] for name in ('envstep', 'train_iter', 'first')
        )


def _planned_ratio(exam: Exam) -> float | None:
    """Returns the updates per env step of the config; None if it does not say."""
    updates, samples = exam.option('policy.learn.update_per_collect'), exam.option('policy.collect.n_sample')
    collector = exam.option('policy.collect.collector.type')
    is_steps = exam.option('policy.collect.unroll_len') == 1 and collector == 'sample'
    return updates / samples if is_steps and isinstance(updates, int) and updates and samples else None


class StaleWeights(Check):
    """Counts the train iterations between the weights that collected the newest data and the newest weights at that time.

    They come from the column ``collect_iter``; in parallel mode, from ``parallel/staleness``.

    Source:
        Espeholt et al., IMPALA (2018), section 5.2.2, on policy lag.
    """

    name = 'stale_weights'
    field = threshold(
        100.0,
        range='(0, inf)',
        unit='train iterations',
        doc='mean age of the weights that collected, above which data are stale',
    )

    def look(self, exam: Exam) -> str:
        measured = exam.recent.staleness()
        age = measured if math.isfinite(measured) else exam.metric('parallel/staleness')
        if not age > self.limit:
            return ''
        keys = exam.advise(
            'policy.collect.collector.max_in_flight', 'policy.collect.collector.num_collectors', 'parallel.collector_num',
            'policy.learn.update_per_collect',
        )  # fmt: skip
        return f'stale weights: the collectors acted with weights that are {age:.0f} train iterations old. Lower {keys}'


class BelowRandom(Check):
    """Compares the last scores with the return of the first training episodes, when the policy acted almost at random.

    These are the 10 or more that ended before the first evaluation after them; scores are judged after 200 training episodes.

    Source:
        Henderson et al., Deep Reinforcement Learning that Matters (2018), on baselines; the margin is 10 %.
    """

    name = 'below_random'
    field = threshold(
        5,
        range='[1, inf)',
        unit='evaluations',
        doc='in a row below the return of the first training episodes',
    )

    def __init__(self, limit: float) -> None:
        super().__init__(limit)
        self._random: float | None = None

    def look(self, exam: Exam) -> str:
        run = exam.run
        if run.spec.player_num > 1 or not getattr(run.evaluator, 'scores_returns', True):
            return ''
        if self._random is None:
            collected = math.nan if run.collector is None else run.collector.mean_return()
            found = collected if math.isfinite(collected) else exam.metric('rollout/ep_rew_mean')
            self._random = found if math.isfinite(found) and run.progress.episodes >= FIRST_EPISODES else None
        if self._random is None or run.progress.episodes < TRAINED_EPISODES:
            return ''
        last = exam.scores[-int(self.limit) :]
        if len(last) < self.limit or not max(last) < self._random - 0.1 * abs(self._random):
            return ''
        rate = exam.advise('policy.learn.learning_rate', 'policy.learn.learning_rate_actor')
        return (
            f'below random: the best of the last {len(last)} evaluations is {max(last):.4g}, and the first training episodes had'
            f' {self._random:.4g}. Lower {rate}, and check the sign of the reward and whether the env is the same in evaluation'
        )

    def state_dict(self) -> dict[str, Any]:
        return {'random': self._random}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'random': maybe(NUMBER)})
        self._random = state['random']


logger = logging.getLogger('rlframe.doctor')
CHECKS: tuple[type[Check], ...] = (
    EntropyCollapse,
    ExplodingQ,
    LargeKL,
    DeadUnits,
    RewardScale,
    AllTruncated,
    Saturation,
    ReplayRatio,
    StaleWeights,
    BelowRandom,
)
"""All checks, in the order of their warnings."""
STATE = {
    'scores': list_of(NUMBER),
    'evaluations': COUNT,
    'told': dict_of(COUNT),
    'found': dict_of(COUNT),
    'checks': dict_of(DICT),
    'recent?': DICT,
}


class DoctorConfig(ResolvedConfig):
    """Options of ``DoctorHook``."""

    repeat_every: int


@HOOK_REGISTRY.register('doctor')
class DoctorHook(RunHook):
    """Warns of collapsed, exploding or idle training, in one line that says what to change.

    Each finding is counted as the metric ``doctor/NAME``. The option of a check is its threshold; ``None`` switches the
    check off.
    """

    _cfg: DoctorConfig
    config = dict(
        repeat_every=Field(
            50,
            range='[1, inf)',
            unit='evaluations',
            doc='between two warnings of the same check',
            may_change=True,
        ),
        **{check.name: check.field for check in CHECKS},
    )

    in_parallel = True

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(cfg)
        limits = {check: self._cfg[check.name] for check in CHECKS}
        self._checks = [check(limit) for check, limit in limits.items() if limit is not None]
        self._recent = Recent()
        self._scores: list[float] = []
        self._evaluations = 0
        self._told: dict[str, int] = {}  # evaluation of the last warning of each check
        self._found: dict[str, int] = {}  # findings of each check

    def after_collect(self, run: RunView) -> None:
        self._recent.add(run.collected, run.progress.train_iter)

    def after_eval(self, run: RunView) -> None:
        if run.is_extra:
            return
        self._evaluations += 1
        self._scores = [*self._scores, float(run.evaluation.score)][-HISTORY:]
        exam = Exam(run, self._scores, self._recent)
        for check in self._checks:
            if line := check.look(exam):
                self._tell(run, check.name, line)

    def _tell(self, run: RunView, name: str, line: str) -> None:
        self._found[name] = self._found.get(name, 0) + 1
        run.log(f'doctor/{name}', self._found[name])
        if self._evaluations - self._told.get(name, -self._cfg.repeat_every) >= self._cfg.repeat_every:
            self._told[name] = self._evaluations
            logger.warning('doctor: %s', line)

    def state_dict(self) -> dict[str, Any]:
        return {
            'scores': list(self._scores),
            'evaluations': self._evaluations,
            'told': dict(self._told),
            'found': dict(self._found),
            'checks': {check.name: check.state_dict() for check in self._checks},
            'recent': self._recent.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, STATE)
        self._scores, self._evaluations = list(state['scores']), state['evaluations']
        self._told, self._found = dict(state['told']), dict(state['found'])
        for check in self._checks:
            if own := state['checks'].get(check.name):
                with part(f'checks.{check.name}'):
                    check.load_state_dict(own)
        if 'recent' in state:
            with part('recent'):
                self._recent.load_state_dict(state['recent'])
