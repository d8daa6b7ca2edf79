"""DoctorHook: the training doctor, which looks for diseases of training at each evaluation."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.data.observation import has_mask
from rlframe.registry import HOOK_REGISTRY
from rlframe.scores import reaches
from rlframe.utils.field import Section, option
from rlframe.utils.schema import COUNT, NUMBER, dict_of, list_of
from rlframe.worker.hooks.run_hook import RunHook, RunView

logger = logging.getLogger('rlframe.doctor')

HISTORY = 50
"""Scores that checks look back at."""
STALLED = 3
"""Evaluations without a better one, after which a symptom that a good policy may have, too, is reported."""
TINY = 0.01
"""Largest absolute return of an episode below which rewards are too small, if they are not all 0."""


class Exam:
    """The facts at an evaluation.

    Args:
        run: The run.
        scores: All scores so far, the newest last; at most ``HISTORY`` of them.
        largest_reward: Largest absolute mean reward of an env step in an evaluated episode so far; 0 if unknown.
        largest_return: Largest absolute return of an evaluated episode so far; 0 if unknown.
    """

    def __init__(
        self, run: RunView, scores: Sequence[float], largest_reward: float, largest_return: float
    ) -> None:
        self.run, self.scores = run, scores
        self.largest_reward, self.largest_return = largest_reward, largest_return
        self._metrics = run.metrics()

    def metric(self, tag: str) -> float:
        """Returns the last value of a metric; NaN if the run has no such metric."""
        return self._metrics.get(tag, math.nan)

    def option(self, key: str) -> Any:
        """Returns an option by its dotted key; None if the config has no such option."""
        section: Any = self.run.cfg
        for name in key.split('.'):
            # dict.get does not count the option as read
            section = dict.get(section, name) if isinstance(section, dict) else None
        return section

    def advise(self, *keys: str) -> str:
        """Lists the options that the config has, each with its value; options that are off are listed only if all are off."""
        known = [key for key in keys if key.rpartition('.')[2] in (self.option(key.rpartition('.')[0]) or ())]
        known = [key for key in known if self.option(key) is not None] or known
        return ' or '.join(f'{key} (now {self.option(key)!r})' for key in known)

    @property
    def has_stalled(self) -> bool:
        """Whether the goal is not reached, and none of the last ``STALLED`` scores is better than all before them."""
        if len(self.scores) <= STALLED or self.is_solved:
            return False
        return max(self.scores[-STALLED:]) <= max(self.scores[:-STALLED])

    @property
    def is_solved(self) -> bool:
        """Whether the last score reaches the goal of the config or of the env."""
        stated: list[Any] = [self.run.evaluator.stop_value, self.run.spec.reward_threshold]
        goals = [float(goal) for goal in stated if isinstance(goal, int | float) and math.isfinite(goal)]
        return bool(goals) and reaches(self.scores[-1], min(goals))

    @property
    def rescales_rewards(self) -> bool:
        """Whether the policy normalises rewards or returns, so that their scale does not matter."""
        return bool(self.option('policy.normalize_reward') or self.option('policy.learn.value_norm'))


def entropy_collapse(exam: Exam, limit: float) -> str:
    """Looks at ``train/entropy`` of a stochastic policy whose score has not improved for three evaluations.

    Collapsed: the entropy is below ``limit`` of its maximum (discrete actions), or the standard deviation of a Gaussian with this
    entropy is below ``limit`` half-ranges of an action (continuous ones).

    Source:
        Mnih et al., Asynchronous Methods for Deep RL (2016), section 4, on the entropy bonus.
    """
    entropy = exam.metric('train/entropy')
    space: Any = exam.run.spec.action_space
    # with a mask, the largest entropy differs from state to state
    if math.isnan(entropy) or has_mask(exam.run.spec.observation_space) or not exam.has_stalled:
        return ''
    largest = _largest_entropy(space)
    if largest is None:
        kind = 'standard deviation'
        share = math.exp(min(entropy / math.prod(space.shape), 50) - 0.5 * math.log(2 * math.pi * math.e))
    else:
        kind = 'entropy share'
        share = entropy / largest
    if share >= limit:
        return ''
    return (
        f'entropy collapse: the policy hardly explores ({kind} {max(share, 0.0):.2g}), and no evaluation was better in'
        f' {STALLED}. Raise {exam.advise("policy.learn.entropy_weight", "policy.learn.target_entropy")}, or lower'
        f' {exam.advise("policy.learn.learning_rate", "policy.learn.learning_rate_actor")}'
    )


def _largest_entropy(space: Any) -> float | None:
    """Returns the entropy of uniform actions, in nats; None if actions are continuous."""
    if hasattr(space, 'nvec'):
        return float(np.log(space.nvec).sum()) or 1.0
    if hasattr(space, 'n'):
        sizes = np.asarray(space.n)
        is_binary = type(space).__name__ == 'MultiBinary'
        return math.prod(space.shape) * math.log(2) if is_binary else math.log(max(int(sizes), 2))
    return None


def exploding_q(exam: Exam, limit: float) -> str:
    """Compares ``train/q_value`` and ``train/target_q_value`` with the largest value that the returns of evaluations allow.

    The bound is the larger of the largest absolute return and the largest reward of an env step, averaged over an episode, /
    (1 - discount); for SAC, the entropy bonus is added. Normalised rewards are not checked.

    Source:
        van Hasselt et al., Deep Reinforcement Learning and the Deadly Triad (2018), section 3: "soft divergence".
    """
    discount = exam.option('policy.discount_factor') or exam.option('policy.collect.discount_factor') or 0.0
    horizon = 1 / (1 - discount) if discount < 1 else 1.0
    bonus = abs(np.nan_to_num(exam.metric('train/alpha') * exam.metric('train/entropy')))
    bound = float(max(exam.largest_reward * horizon, exam.largest_return) + bonus * horizon)
    value = max(abs(exam.metric('train/q_value')), abs(exam.metric('train/target_q_value')))
    if exam.rescales_rewards or not bound or not value > limit * bound:
        return ''
    rate = exam.advise('policy.learn.learning_rate', 'policy.learn.learning_rate_critic')
    slower = exam.advise('policy.learn.target_update_freq', 'policy.learn.target_theta')
    return (
        f'exploding Q: the mean Q-value is {value:.3g}, and the returns so far allow about {bound:.3g}. Lower {rate}, set'
        f' policy.learn.grad_clip_norm, or let the target network follow more slowly: {slower}'
    )


def large_kl(exam: Exam, limit: float) -> str:
    """Looks at ``train/approx_kl``, the mean divergence of a policy update from the policy that collected the data.

    Source:
        Schulman et al., Proximal Policy Optimization (2017), table 1: targets between 0.003 and 0.03 nats.
    """
    divergence = exam.metric('train/approx_kl')
    if not divergence > limit:
        return ''
    lower = exam.advise('policy.learn.learning_rate', 'policy.learn.epoch_per_collect')
    return (
        f'KL blow-up: updates move the policy by {divergence:.2g} nats (0.003 to 0.03 is usual). Lower {lower}, or set'
        ' policy.learn.target_kl=0.03'
    )


def reward_scale(exam: Exam, limit: float) -> str:
    """Compares the mean absolute reward of an env step, and the returns of episodes, with the scale that networks learn well.

    Not checked if the policy normalises rewards or returns.

    Source:
        Henderson et al., Deep Reinforcement Learning that Matters (2018), section "Reward Scale".
    """
    rewards = _reward_per_step(exam.run)
    if exam.rescales_rewards or not rewards or not getattr(exam.run.evaluator, 'scores_returns', True):
        return ''
    reward = float(np.mean(rewards))
    if reward <= limit and not 0 < max(map(abs, _returns(exam.run))) < TINY:
        return ''
    return (
        f'reward scale: rewards are about {reward:.3g} per env step, which networks learn badly. Set'
        ' policy.normalize_reward=True, or scale them to about 1 in a wrapper (env.wrappers)'
    )


def _returns(run: RunView) -> list[float]:
    """Returns the returns of the episodes of this evaluation; an empty list if it played none."""
    return [float(value) for value in run.evaluation.info.get('eval_episode_return', ())]


def _reward_per_step(run: RunView) -> list[float]:
    """Returns the absolute mean reward of an env step in each of these episodes; an empty list if lengths are unknown."""
    lengths = run.evaluation.info.get('eval_episode_len', ())
    return [abs(value) / max(length, 1) for value, length in zip(_returns(run), lengths, strict=False)]


CHECKS: dict[str, Callable[[Exam, float], str]] = {
    'entropy': entropy_collapse,
    'q_value': exploding_q,
    'kl': large_kl,
    'reward_scale': reward_scale,
}
"""The doctor's checks, in the order of its warnings, by the name of their threshold option and metric.

A check returns one line that says what was seen and what to change, or an empty string.
"""


class DoctorConfig(Section):
    """Options of ``DoctorHook``: the threshold of each check, None to switch it off, and how often it warns."""

    entropy: float | None = option(
        0.02,
        range='[0, 1]',
        doc='share of the largest entropy, or standard deviation of continuous actions, below which the policy has collapsed',
        may_change=True,
    )
    q_value: float | None = option(
        3.0,
        range='[1, inf)',
        doc='times the largest possible value, above which Q-values have diverged',
        may_change=True,
    )
    kl: float | None = option(
        0.1,
        range='(0, inf)',
        unit='nats',
        doc='mean divergence of an update, above which updates are too large',
        may_change=True,
    )
    reward_scale: float | None = option(
        100.0,
        range='(1, inf)',
        unit='reward per env step',
        doc='absolute mean above which rewards are too large; returns below 0.01 are too small',
        may_change=True,
    )
    repeat_every: int = option(
        50,
        range='[1, inf)',
        unit='evaluations',
        doc='interval between two warnings of the same check',
        may_change=True,
    )


@HOOK_REGISTRY.register('doctor')
class DoctorHook(RunHook):
    """Warns of collapsed or exploding training, in one line that says what to change.

    Each finding is counted as the metric ``doctor/NAME``. The option of a check is its threshold; ``None`` switches the
    check off.
    """

    _cfg: DoctorConfig
    saved = {
        'scores': list_of(NUMBER),
        'evaluations': COUNT,
        'warned_at': dict_of(COUNT),
        'found': dict_of(COUNT),
        'largest_reward': NUMBER,
        'largest_return': NUMBER,
    }

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(cfg)
        self._scores: list[float] = []
        self._evaluations = 0
        self._warned_at: dict[str, int] = {}  # evaluation of the last warning of each check
        self._found: dict[str, int] = {}  # findings of each check
        self._largest_reward = self._largest_return = 0.0

    def after_eval(self, run: RunView) -> None:
        if run.is_extra:
            return
        self._evaluations += 1
        self._scores = [*self._scores, float(run.evaluation.score)][-HISTORY:]
        self._largest_reward = max([self._largest_reward, *_reward_per_step(run)])
        self._largest_return = max([self._largest_return, *map(abs, _returns(run))])
        exam = Exam(run, self._scores, self._largest_reward, self._largest_return)
        for name, check in CHECKS.items():
            limit = self._cfg[name]
            if limit is not None and (line := check(exam, limit)):
                self._report(run, name, line)

    def _report(self, run: RunView, name: str, line: str) -> None:
        self._found[name] = self._found.get(name, 0) + 1
        run.log(f'doctor/{name}', self._found[name])
        if self._evaluations - self._warned_at.get(name, -self._cfg.repeat_every) >= self._cfg.repeat_every:
            self._warned_at[name] = self._evaluations
            logger.warning('doctor: %s', line)
