"""Checks of the training doctor that look at the policy: entropy, values, divergence, dead units."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rlframe.data.observation import has_mask
from rlframe.data.timestep import Array, Batch
from rlframe.scores import reaches
from rlframe.utils.field import Field
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import COUNT, NUMBER, array, check_state, dict_of
from rlframe.utils.seed import preserved_rng
from rlframe.worker.hooks.run_hook import RunView

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


def dead_share(face: Any, obs: Array) -> float:
    """Returns the share of dead units of the layer that has most of them; NaN if the network has no ReLUs.

    Args:
        face: Eval face of a policy that acts without a memory and without drawing numbers.
        obs: Observations, [n, ...].
    """
    from torch.overrides import TorchFunctionMode

    layers: list[torch.Tensor] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if getattr(func, '__name__', '') in ('relu', 'relu_') and result.dim() > 1:
                is_dead = (result <= 0).all(0)  # [units, ...]
                layers.append(is_dead.flatten(1).all(1) if is_dead.dim() > 1 else is_dead)
            return result

    with preserved_rng(), Watch():
        face.forward(obs, np.arange(len(obs)))
    return max((float(layer.float().mean()) for layer in layers), default=float('nan'))


ROWS = 512
"""Rows of the newest data that checks look at."""
COLUMNS = 'obs', 'action', 'reward', 'collect_iter'
"""Columns that checks look at."""
HISTORY = 50
"""Scores that checks look back at."""


class Recent:
    """Refers to the newest blocks of collected rows, as many as ``ROWS`` rows need."""

    def __init__(self) -> None:
        self._blocks: deque[Batch] = deque()
        self._rows = self._train_iter = 0

    def add(self, data: Any, train_iter: int) -> None:
        """Notes a block that was just collected; data of other kinds than columns are ignored."""
        if not isinstance(data, Batch):
            return
        self._train_iter = train_iter
        self._blocks.append(data)
        self._rows += len(data)
        while self._rows - len(self._blocks[0]) >= ROWS:
            self._rows -= len(self._blocks.popleft())

    def column(self, name: str) -> Array | None:
        """Returns a column of the newest rows, [n, ...]; None if there are no rows or they have no such array."""
        blocks = [block for block in self._blocks if len(block)]
        if not blocks or not all(name in block and isinstance(block[name], np.ndarray) for block in blocks):
            return None
        columns: list[Array] = [block[name] for block in blocks]
        if len({(column.shape[1:], column.dtype) for column in columns}) > 1:
            return None
        return np.concatenate(columns)[-ROWS:]

    def staleness(self) -> float:
        """Returns the age in train iterations of the weights that collected the newest block; NaN if unknown."""
        has = self._blocks and 'collect_iter' in self._blocks[-1]
        stamps = self._blocks[-1]['collect_iter'][-ROWS:] if has else ()
        return self._train_iter - float(np.mean(stamps)) if len(stamps) else math.nan

    def state_dict(self) -> dict[str, Any]:
        """Returns the columns that checks read, and how many of their rows the newest block has."""
        columns = {name: column for name in COLUMNS if (column := self.column(name)) is not None}
        newest = min(len(self._blocks[-1]), ROWS) if self._blocks else 0
        return {'columns': columns, 'newest': newest, 'train_iter': self._train_iter}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'columns': dict_of(array()), 'newest': COUNT, 'train_iter': COUNT})
        self._train_iter = state['train_iter']
        rows = Batch(state['columns']) if state['columns'] else None
        self._rows = 0 if rows is None else len(rows)
        older = self._rows - state['newest']
        self._blocks = deque([] if rows is None else [rows[:older], rows[older:]])


class Exam:
    """What is known at an evaluation.

    Args:
        run: The run.
        scores: All scores so far, the newest last; at most ``HISTORY`` of them.
        recent: The newest collected rows.
    """

    def __init__(self, run: RunView, scores: Sequence[float], recent: Recent) -> None:
        self.run, self.scores, self.recent = run, scores, recent
        self.metrics: Mapping[str, float] = run.metrics()
        """Last value of each metric."""

    def metric(self, *tags: str) -> float:
        """Returns the first of these metrics that the run has; NaN if it has none."""
        return next((self.metrics[tag] for tag in tags if tag in self.metrics), math.nan)

    def option(self, key: str) -> Any:
        """Returns an option by its dotted key; None if the config has no such option."""
        section: Any = self.run.cfg
        for name in key.split('.'):  # without counting it as read
            section = dict.get(section, name) if isinstance(section, dict) else None
        return section

    def advise(self, *keys: str) -> str:
        """Returns those of these options that the config has, each with its value; options that are off only if all are."""
        known = [key for key in keys if self._has(key)]
        known = [key for key in known if self.option(key) is not None] or known
        return ' or '.join(f'{key} (now {self.option(key)!r})' for key in known)

    def _has(self, key: str) -> bool:
        *path, name = key.split('.')
        section = self.option('.'.join(path))
        return isinstance(section, dict) and name in section

    def has_stalled(self, evaluations: int) -> bool:
        """Whether the goal is out of reach and none of the last evaluations is better than all before them."""
        if len(self.scores) <= evaluations or self.is_solved:
            return False
        return max(self.scores[-evaluations:]) <= max(self.scores[:-evaluations])

    @property
    def is_solved(self) -> bool:
        """Whether the last score reaches the goal of the config or of the env."""
        stated: list[Any] = [self.run.evaluator.stop_value, self.run.spec.reward_threshold]
        goals = [float(goal) for goal in stated if _is_number(goal)]
        return bool(goals) and reaches(self.scores[-1], min(goals))

    @property
    def rescales_rewards(self) -> bool:
        """Whether the policy normalises rewards or returns, so that their scale does not matter."""
        return bool(self.option('policy.normalize_reward') or self.option('policy.learn.value_norm'))

    @property
    def returns(self) -> list[float]:
        """Returns of the episodes of this evaluation; empty if it played none."""
        return [float(value) for value in self.run.evaluation.info.get('eval_episode_return', ())]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


STALLED = 3
"""Evaluations without a better one, after which a symptom that a good policy may have, too, is reported."""


def threshold(default: float, range: str, doc: str, unit: str = '') -> Field:
    """Declares the option of a check, whose value None switches it off."""
    return Field(default, type=(type(default), type(None)), range=range, unit=unit, doc=doc, may_change=True)


class Check(ABC):
    """Looks for one disease of training at each evaluation.

    Args:
        limit: Threshold, the value of the option of its name.
    """

    name: ClassVar[str]
    """Name of its option and of its metric."""
    field: ClassVar[Field]
    """Its option."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    @abstractmethod
    def look(self, exam: Exam) -> str:
        """Returns one line: what was seen, and what to change; an empty string if all is well."""

    def state_dict(self) -> dict[str, Any]:
        """Returns what it remembers of earlier evaluations."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {})


class EntropyCollapse(Check):
    """Looks at ``train/entropy`` of a stochastic policy whose score has not improved for three evaluations.

    Collapsed: the entropy is below ``limit`` of its maximum (discrete actions), or the standard deviation of a Gaussian with this
    entropy is below ``limit`` half-ranges of an action (continuous ones).

    Source:
        Mnih et al., Asynchronous Methods for Deep RL (2016), section 4, on the entropy bonus.
    """

    name = 'entropy'
    field = threshold(
        0.02,
        range='[0, 1]',
        doc='share of the largest entropy, or standard deviation of continuous actions, below which the policy has collapsed',
    )

    def look(self, exam: Exam) -> str:
        entropy = exam.metric('train/entropy')
        space: Any = exam.run.spec.action_space
        if math.isnan(entropy) or has_mask(exam.run.spec.observation_space) or not exam.has_stalled(STALLED):
            return ''  # with a mask, the largest entropy differs from state to state
        largest = _largest_entropy(space)
        if largest is None:
            share = math.exp(min(entropy / math.prod(space.shape), 50) - 0.5 * math.log(2 * math.pi * math.e))
        else:
            share = entropy / largest
        if share >= self.limit:
            return ''
        kind = 'entropy share' if largest is not None else 'standard deviation'
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


class ExplodingQ(Check):
    """Compares ``train/q_value`` and ``train/target_q_value`` with the largest value that the seen rewards and returns allow.

    The bound is the larger of the largest absolute reward / (1 - discount) and the largest absolute return; for SAC, the entropy
    bonus is added. Normalised rewards are not checked.

    Source:
        van Hasselt et al., Deep Reinforcement Learning and the Deadly Triad (2018), section 3: "soft divergence".
    """

    name = 'q_value'
    field = threshold(
        3.0,
        range='[1, inf)',
        doc='times the largest possible value, above which Q-values have diverged',
    )

    def __init__(self, limit: float) -> None:
        super().__init__(limit)
        self._reward = self._return = 0.0  # largest absolute ones so far

    def look(self, exam: Exam) -> str:
        rewards = exam.recent.column('reward')
        if rewards is not None and rewards.dtype.kind == 'f':
            self._reward = max(self._reward, float(np.abs(rewards).max()))
        self._return = max([self._return, *map(abs, exam.returns)])
        value = max(abs(exam.metric('train/q_value')), abs(exam.metric('train/target_q_value')))
        bound = self._bound(exam)
        if exam.rescales_rewards or not bound or not value > self.limit * bound:
            return ''
        rate = exam.advise('policy.learn.learning_rate', 'policy.learn.learning_rate_critic')
        slower = exam.advise('policy.learn.target_update_freq', 'policy.learn.target_theta')
        return (
            f'exploding Q: the mean Q-value is {value:.3g}, and the rewards allow {bound:.3g} at most. Lower {rate}, set'
            f' policy.learn.grad_clip_norm, or let the target network follow more slowly: {slower}'
        )

    def _bound(self, exam: Exam) -> float:
        discount = (
            exam.option('policy.discount_factor') or exam.option('policy.collect.discount_factor') or 0.0
        )
        horizon = 1 / (1 - discount) if discount < 1 else 1.0
        bonus = abs(np.nan_to_num(exam.metric('train/alpha') * exam.metric('train/entropy')))
        return float(max(self._reward * horizon, self._return) + bonus * horizon)

    def state_dict(self) -> dict[str, Any]:
        return {'reward': self._reward, 'return': self._return}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'reward': NUMBER, 'return': NUMBER})
        self._reward, self._return = state['reward'], state['return']


class LargeKL(Check):
    """Looks at ``train/approx_kl``, the mean divergence of a policy update from the policy that collected the data.

    Source:
        Schulman et al., Proximal Policy Optimization (2017), table 1: targets between 0.003 and 0.03 nats.
    """

    name = 'kl'
    field = threshold(
        0.1,
        range='(0, inf)',
        unit='nats',
        doc='mean divergence of an update, above which updates are too large',
    )

    def look(self, exam: Exam) -> str:
        divergence = exam.metric('train/approx_kl')
        if not divergence > self.limit:
            return ''
        lower = exam.advise('policy.learn.learning_rate', 'policy.learn.epoch_per_collect')
        return (
            f'KL blow-up: updates move the policy by {divergence:.2g} nats (0.003 to 0.03 is usual). Lower {lower}, or set'
            ' policy.learn.target_kl=0.03'
        )


class DeadUnits(Check):
    """Looks at the units behind ReLUs while a policy of rlframe acts on the newest observations: dead ones are always 0.

    Recurrent policies, and those of several players, are not checked.

    Source:
        Lyle et al., Understanding Plasticity in Neural Networks (2023); Sokar et al., The Dormant Neuron Phenomenon in Deep
        Reinforcement Learning (2023), definition 3.1, with a threshold of 0.
    """

    name = 'dead_units'
    field = threshold(
        0.9,
        range='(0, 1]',
        doc='share of the units of a hidden layer that output 0 for every observation, above which it is dying',
    )

    def look(self, exam: Exam) -> str:
        run, obs = exam.run, exam.recent.column('obs')
        if run.policy is None or obs is None or len(obs) < 64 or run.spec.player_num > 1:
            return ''
        if not type(run.policy).__module__.startswith('rlframe.') or run.policy.is_recurrent:
            return ''  # acting could change it
        share = dead_share(run.policy.eval_mode, obs)
        if not share > self.limit:
            return ''
        rate = exam.advise('policy.learn.learning_rate', 'policy.learn.learning_rate_actor')
        return (
            f'dead units: {share:.0%} of the units of a hidden layer output 0 for all of {len(obs)} observations. Lower {rate},'
            ' set policy.normalize_obs=True, or policy.model.activation=tanh'
        )
