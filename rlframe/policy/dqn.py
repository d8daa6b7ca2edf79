"""DQN with double, dueling, n-step and prioritized replay as switches, and the body of all policies of its kind."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Literal

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Array, Batch, FloatArray, IntArray, TimeStep
from rlframe.errors import ConfigError
from rlframe.policy.base_policy import (
    N_SAMPLE,
    CollectConfig,
    LearnConfig,
    OtherConfig,
    Policy,
    PolicyConfig,
)
from rlframe.policy.parts.actions import IMPOSSIBLE, mask_of, masked, random_allowed
from rlframe.policy.parts.optim import ADAM_EPS, Optimizer, Targets
from rlframe.policy.parts.options import (
    BATCH_SIZE,
    DISCOUNT_FACTOR,
    HIDDEN_SIZES,
    UPDATE_PER_COLLECT,
    ImageModel,
    Schedule,
    check_schedule,
    grad_clip_norm,
    learning_rate,
    refused,
    schedule_of,
)
from rlframe.policy.parts.sequences import Rows
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

SettingsOf = Callable[[Mapping[str, Any], int, int], Mapping[str, Any]]
"""Maps the settings of collection, the place of a collector and their number to the settings of that collector."""
LEAST_BONUS = -1.0
"""Lower bound of what the log-policy adds to a reward, before its weight."""

INPUTS = 'obs', 'next_obs', 'action', 'reward', 'terminated', 'value_gamma', 'IS'
"""Columns of transitions that an update reads, where there are such."""


def _has_priorities(policy: type[Any], cfg: Any) -> ConfigError | None:
    """Refuses importance weights if there are no priorities."""
    if cfg.priority or not cfg.priority_IS_weight:
        return None
    return ConfigError('policy.priority_IS_weight=True needs policy.priority=True')


class TDConfig(PolicyConfig):
    """Options of every policy that learns values from a replay buffer by temporal differences."""

    priority: bool = option(
        False, doc='whether TD errors become the priorities of the replay buffer', rule=_has_priorities
    )
    priority_IS_weight: bool = option(  # noqa: N815  # DI-engine's name of the option
        False, doc='whether losses are weighted by importance sampling', rule=_has_priorities
    )
    discount_factor: float = option(DISCOUNT_FACTOR)
    nstep: int = option(1, range='[1, inf)', unit='env steps', doc='rewards summed before bootstrapping')


class QOther(OtherConfig):
    """Section ``other`` of policies that act by action values."""

    eps: Schedule = option(
        dict(type='exp', start=0.95, end=0.1, decay=10000),
        range='[0, 1]',
        doc='probability of a random action; a schedule over env steps',
        check=check_schedule,
        may_change=True,
    )
    eps_ladder: float = option(
        0.0,
        range='[0, inf)',
        doc='how far eps differs between N collectors: that of collector i is eps ** (1 + eps_ladder * i / (N - 1)); Ape-X'
        ' has 7, with a constant eps of 0.4',
        may_change=True,
    )


class QConfig(PolicyConfig):
    """Options of policies that act by action values."""

    other: QOther


class DQNModel(ImageModel):
    """Section ``model`` of a DQN."""

    encoder_hidden_size_list: list[int] = option(HIDDEN_SIZES.having([128, 128, 64]))
    dueling: bool = option(True, doc='whether value and advantage have separate heads')
    noisy: bool = option(
        False,
        doc='whether the heads are noisy layers, which explore by noise in their weights; eps is then best 0',
    )


class DQNLearn(LearnConfig):
    """Section ``learn`` of a DQN."""

    update_per_collect: int = option(UPDATE_PER_COLLECT)
    batch_size: int = option(BATCH_SIZE)
    learning_rate: Schedule = option(learning_rate(1e-3, 'Adam'))
    target_update_freq: int | None = option(
        100,
        range='[1, inf)',
        unit='train iterations',
        doc='interval between hard updates of the target network',
        may_change=True,
    )
    target_theta: float | None = option(
        None, range='(0, 1]', doc='share of a soft update after each iteration, instead', may_change=True
    )
    grad_clip_norm: float | None = option(grad_clip_norm())
    adam_eps: float = option(ADAM_EPS)
    kappa: float | None = option(
        None,
        range='(0, inf)',
        doc='error from which the loss grows linearly; None: it is the squared error. Categorical losses have none',
        may_change=True,
    )


class DQNCollect(CollectConfig):
    """Section ``collect`` of a DQN."""

    n_sample: int | None = option(N_SAMPLE.having(8))


class DQNConfig(TDConfig, QConfig):
    """Options of a DQN."""

    discount_factor: float = option(DISCOUNT_FACTOR.having(0.97))
    double: bool = option(
        True,
        doc='whether the online network picks the action that the target network values; without effect if'
        ' entropy_tau is set',
    )
    entropy_tau: float | None = option(
        None,
        range='(0, inf)',
        doc="temperature of the soft policy in Munchausen's targets; None: ordinary targets",
        may_change=True,
    )
    m_alpha: float = option(
        0.9,
        range='[0, 1]',
        doc="weight of the log-policy that Munchausen's targets add to the reward, of n-step returns to the first one;"
        ' without effect if entropy_tau is None',
        may_change=True,
    )
    first_priority: Literal['largest', 'error'] = option(
        'largest',
        doc="priority of new transitions: 'largest' is the largest so far, 'error' the TD error that their collector computes",
    )
    model: DQNModel
    learn: DQNLearn
    collect: DQNCollect


class Returns(ABC):
    """What a network says of the return of an action, beside its mean.

    Args:
        policy: The policy that has the network.
    """

    def __init__(self, policy: QPolicy) -> None:
        self._policy = policy

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        """Returns errors about options of the policy."""
        return []

    @abstractmethod
    def expected(self, output: torch.Tensor) -> torch.Tensor:
        """Converts the network's output, [B, A, M], to action values, float32 [B, A]."""

    @abstractmethod
    def loss(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, Metrics]:
        """Returns the loss of each transition, what becomes its priority, float32 [B] each, and the values to log."""

    @abstractmethod
    def target(self, rows: Rows) -> torch.Tensor:
        """Returns what each transition says of the return of its action, float32 [B, M]."""


class QPolicy(Policy):
    """Body of policies whose network values every action.

    They take the best action or, while they collect, with probability ``eps`` a random one, and learn from replayed transitions
    as DQN does. A subclass says what the network outputs in place of action values (``return_kind``), or learns in its own way.
    """

    _cfg: QConfig
    supports_action_mask = True
    compiled_parts = ('loss',)
    inputs: tuple[str, ...] = INPUTS
    return_kind: type[Returns] | None = None
    """What the network says of the return of an action; None: its mean."""

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        """Refuses combinations that mean nothing."""
        errors = super().check_config(cfg)
        if cls.return_kind is not None:
            errors += cls.return_kind.check_config(cfg)
        if 'target_theta' not in cfg.learn:  # it has no target network
            return errors
        learn: DQNLearn = cfg.learn
        if (learn.target_update_freq is None) == (learn.target_theta is None):
            given = f'target_update_freq ({learn.target_update_freq}) and target_theta ({learn.target_theta})'
            message = f'set one of {given}, and the other to None'
            errors.append(ConfigError(message, where='learn.target_theta'))
        if cfg.first_priority == 'error' and (cfg.entropy_tau is not None or not cls._errors_are_known()):
            message = f'the priorities of {cls.__name__} are not the TD errors that collectors compute'
            errors.append(refused(cfg, 'first_priority', message, "'largest'"))
        return errors

    @classmethod
    def _errors_are_known(cls) -> bool:
        """Whether ``_first_priority`` computes the errors of its loss."""
        return cls.loss is QPolicy.loss and cls.return_kind is None

    @cached_property
    def _returns(self) -> Returns | None:
        return None if self.return_kind is None else self.return_kind(self)

    # acting

    def default_model(self) -> str:
        return 'q_net'

    def init_eval(self) -> None:
        self._noisy = bool(self._cfg.model.get('noisy'))

    def init_collect(self) -> None:
        space = self._action_space
        self._action_num, self._first_action = int(space.n), int(space.start)
        self._action_dtype = np.min_scalar_type(max(self._action_num - 1, 0))

    def _acting_output(self, obs: Any) -> tuple[torch.Tensor, int]:
        return self.model(obs), int(self._action_space.n)

    def chosen(self, output: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Selects the network's output for an action in each row: [B, A, ...] to [B, ...]."""
        action = action.long()
        if output.dim() == 2:
            return output.gather(1, action.unsqueeze(1)).squeeze(1)
        return output[torch.arange(len(action), device=action.device), action]

    def expected(self, output: torch.Tensor) -> torch.Tensor:
        """Converts the network's output to action values, float32 [B, A]."""
        return output if self._returns is None else self._returns.expected(output)

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the action of the highest value, counted from 0, int64 [B], as a part of a torch graph."""
        return self.expected(self.model(obs)).argmax(1)

    def q_value(self, obs: Array) -> torch.Tensor:
        """Returns the value of each action, -inf if a mask forbids it, float32 [n, A]."""
        with torch.inference_mode():
            tensor = self.tensor(obs)
            value = self.expected(self.model(tensor))
            value = masked(value, mask_of(tensor)) if self._has_mask else value
            return value if self._on_cpu else value.cpu()

    def _best_allowed(self, obs: Array) -> Array:
        """Returns the allowed action of the highest ``q_value``, whatever a subclass makes of that, counted from 0, [n]."""
        value = self.q_value(obs)
        if self._has_mask:
            value = masked(value, torch.from_numpy(mask_of(obs)))
        best: Array = value.numpy().argmax(1)
        return best

    def forward_collect(self, obs: Array, env_id: IntArray, eps: float = 0.0, **settings: Any) -> Batch:
        action = self._best_allowed(obs)
        if eps > 0 and self._has_mask:
            draw = self.rng.random(len(action)) / eps
            action = np.where(draw < 1, random_allowed(mask_of(obs), draw % 1), action)
        elif eps > 0:
            # A number below eps, divided by eps, is again uniform in [0, 1), so it also picks the random action. Few
            # numbers are below eps, and after a network's forward each NumPy call costs several times as much as an
            # iteration of this loop: with two vectorised draws, one that tests and one that picks, a forward takes
            # 5-7 us longer for 8 envs, and a round of collection in 8 CartPoles 3-8 %, in 64 CartPoles 0-3 %. Median
            # CPU time of 40 interleaved blocks per form, one thread, with eps 0.1 and 0.95.
            scale = self._action_num / eps
            for i, draw in enumerate(self.rng.random(len(action)).tolist()):
                if draw * scale < self._action_num:
                    action[i] = draw * scale
        return self._output(action)

    def forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        if self._noisy:
            self.model.eval()
        action = self._best_allowed(obs)
        if self._noisy:
            self.model.train()
        return self._output(action)

    def _output(self, action: Array) -> Batch:
        """Returns actions that are counted from 0, [n], as the env counts them, and in its type."""
        if self._action_space.start:
            action = action + int(self._action_space.start)
        return Batch.unchecked({'action': action.astype(self._action_space.dtype, copy=False)}, len(action))

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        rows = super().process_transition(obs, output, timestep)
        action = rows['action'] - self._first_action if self._first_action else rows['action']
        rows['action'] = action.astype(self._action_dtype)
        return rows

    def get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {'eps': self._eps(info['envstep'])}

    @cached_property
    def _eps(self) -> Callable[[float], float]:
        """The probability of a random action as a function of env steps."""
        return schedule_of(self._cfg.other.eps)

    def _get_settings_of(self) -> SettingsOf | None:
        return self._settings_of if self._cfg.other.eps_ladder else None

    def _settings_of(self, settings: Mapping[str, Any], place: int, count: int) -> Mapping[str, Any]:
        """Returns the settings of one of several collectors, whose eps form a ladder.

        Source:
            Horgan et al., Distributed Prioritized Experience Replay (2018), section 4.1.
        """
        share = place / (count - 1) if count > 1 else 0.0
        return {**settings, 'eps': settings['eps'] ** (1 + self._cfg.other.eps_ladder * share)}

    def _monitor_vars(self) -> list[str]:
        return [*super()._monitor_vars(), 'q_value', 'target_q_value']

    # learning

    def init_learn(self) -> None:
        cfg: Any = self._cfg  # a DQNConfig
        self.targets = Targets(cfg, copy.deepcopy(self.model), [self.model], self.device)
        self.target_model = self.targets.network
        self.learned.append(self.targets)
        self._optimizer = self.optimizers['model'] = Optimizer(self.model, cfg.learn)
        self._target_update_freq = cfg.learn.target_update_freq
        self._target_theta = cfg.learn.target_theta
        self._double, self._kappa = cfg.double, cfg.learn.kappa
        self._tau, self._bonus_weight = cfg.entropy_tau, cfg.m_alpha
        # a subclass may change the loss of each transition; otherwise their mean is one operation
        is_own = type(self).loss is QPolicy.loss
        self._reduction = 'mean' if is_own and not self.targets.has_weights else 'none'

    def forward_learn(self, data: Batch) -> Metrics | Iterable[Callable[[], Metrics]]:
        freq = self._target_update_freq
        is_turn = freq is None or (self.targets.updates + 1) % freq == 0
        metrics = self.update_tensors(self.columns(data), is_turn)
        self.targets.updates += 1
        return metrics | self._optimizer.metrics()

    def update_tensors(self, rows: Rows, is_turn: bool) -> Metrics:
        """Updates the network, and the target network if it is its turn; only reads and changes tensors.

        Called for each batch; overridden for another kind of update, such as with several optimizers.
        """
        loss, error, metrics = self.loss(rows)
        if self.targets.has_weights:
            loss = loss * rows['IS']
        loss = loss.mean() if loss.dim() else loss
        self._optimizer.step(loss)
        if is_turn:
            self._update_target()
        return self.targets.with_priority(metrics | {'total_loss': loss.detach()}, error)

    def loss(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, Metrics]:
        """Returns the loss of each transition, its TD error and the values to log; called for each batch.

        The loss is float32 [B], or the mean of it where neither weights nor a subclass need more; the TD error, or another
        measure whose absolute value becomes the priority, is float32 [B].
        """
        if self._returns is not None:
            return self._returns.loss(rows)
        value = self.chosen(self.valued(self.model, rows, 'obs'), rows['action'])  # [B]
        target = self.target(rows)
        loss = td_loss(value, target, self._kappa, self._reduction)
        value = value.detach()
        return loss, target - value, {'q_value': value.mean(), 'target_q_value': target.mean()}

    def target(self, rows: Rows) -> torch.Tensor:
        """Returns the value that each transition says its action has, float32 [B]; called by ``loss``.

        Policies that learn a distribution return [B, M]: its probabilities or quantiles.
        """
        if self._returns is not None:
            return self._returns.target(rows)
        with torch.no_grad():
            return self.reward(rows) + self.targets.discount(rows) * self.next_output(rows)

    def valued(self, model: Any, rows: Rows, column: str) -> torch.Tensor:
        """Returns the output of a network for a column of observations, [B, A, ...]."""
        output: torch.Tensor = model(rows[column])
        return output

    def reward(self, rows: Rows) -> torch.Tensor:
        """Returns the reward of each transition, float32 [B], with Munchausen's bonus for likely actions; called by ``target``."""
        reward: torch.Tensor = rows['reward']
        if self._tau is None:
            return reward
        value = self.expected(self.valued(self.target_model, rows, 'obs'))
        _, log_policy = soft_policy(value, self._tau, mask_of(rows['obs']))
        bonus = self.chosen(log_policy, rows['action']).clamp(LEAST_BONUS, 0)
        return reward + self._bonus_weight * bonus

    def next_output(self, rows: Rows) -> torch.Tensor:
        """Returns the target network's output for the best action in the next state, or the soft mean of all, [B, ...]."""
        next_obs = rows['next_obs']
        output = self.valued(self.target_model, rows, 'next_obs')  # [B, A, ...]
        if self._tau is not None:
            policy, log_policy = soft_policy(self.expected(output), self._tau, mask_of(next_obs))
            if output.dim() == 3:
                policy, log_policy = policy.unsqueeze(2), log_policy.unsqueeze(2)
            return (policy * (output - log_policy)).sum(1)
        if not self._double and not self._has_mask and output.dim() == 2:
            return output.amax(1)
        value = self.expected(self.model(next_obs) if self._double else output)
        best = (masked(value, mask_of(next_obs)) if self._has_mask else value).argmax(1)
        return self.chosen(output, best)

    def _get_priority_of(self) -> Callable[[Batch], Any] | None:
        if self._cfg.get('first_priority') != 'error':
            return None
        return self._normalizer.learning(self._first_priority)

    def _first_priority(self, data: Batch) -> FloatArray:
        """Returns the absolute TD error of new transitions, float32 [M], by the network that acts alone.

        Source:
            Horgan et al., Distributed Prioritized Experience Replay (2018), section 3.
        """
        rows, discount_factor = self.columns(data), self._cfg.get('discount_factor')
        with torch.inference_mode():
            value = self.chosen(self.model(rows['obs']), rows['action'])
            reached = masked(self.model(rows['next_obs']), mask_of(rows['next_obs'])).amax(1)
            discount = rows.get('value_gamma', discount_factor) * ~rows['terminated']
            error: FloatArray = (rows['reward'] + discount * reached - value).abs().cpu().numpy()
        return error

    def _update_target(self) -> None:
        if self._target_theta is None:
            self.targets.copy()
        else:
            self.targets.follow(self._target_theta)

    def reset_targets(self) -> None:
        self.targets.copy()


def td_loss(
    value: torch.Tensor, target: torch.Tensor, kappa: float | None, reduction: str = 'none'
) -> torch.Tensor:
    """Returns the squared errors of values, or their Huber losses, half as large at first and linear from kappa on."""
    if kappa is None:
        return torch.nn.functional.mse_loss(value, target, reduction=reduction)
    return torch.nn.functional.huber_loss(value, target, reduction=reduction, delta=kappa)


def soft_policy(
    value: torch.Tensor, tau: float, mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the probability of each action by softmax(value / tau), and tau times its logarithm, [B, A] each.

    Args:
        value: Action values, float32 [B, A].
        tau: Temperature.
        mask: Allowed actions, bool [B, A]; a forbidden one has probability 0 and a finite logarithm.

    Source:
        Vieillard et al., Munchausen Reinforcement Learning (2020), section 3.
    """
    log_prob = torch.log_softmax(masked(value, mask, IMPOSSIBLE) / tau, 1)
    return log_prob.exp(), tau * log_prob


@POLICY_REGISTRY.register('dqn')
class DQNPolicy(QPolicy):
    """Deep Q-network.

    Source:
        Mnih et al., Human-level control through deep reinforcement learning (2015). Double: van Hasselt et al. (2016),
        dueling: Wang et al. (2016), prioritized replay: Schaul et al. (2016), ``entropy_tau``: Vieillard et al.,
        Munchausen Reinforcement Learning (2020), section 3.
    """

    _cfg: DQNConfig


@POLICY_REGISTRY.register('mdqn')
class MDQNPolicy(QPolicy):
    """Munchausen DQN: DQN whose rewards and targets have the entropy of a soft policy.

    Source:
        Vieillard et al., Munchausen Reinforcement Learning (2020), section 3 and table 2: temperature 0.03 and weight
        0.9 of the log-policy.
    """

    _cfg: DQNConfig
    config: dict[str, Any] = dict(entropy_tau=0.03)
