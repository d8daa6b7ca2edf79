"""DQN with double, dueling, n-step and prioritized replay as switches."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

from easydict import EasyDict

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Batch, FloatArray
from rlframe.errors import ConfigError
from rlframe.policy.parts.actions import IMPOSSIBLE, mask_of, masked
from rlframe.policy.parts.optim import ADAM_EPS, Optimizer
from rlframe.policy.parts.options import (
    BATCH_SIZE,
    HIDDEN_SIZES,
    UPDATE_PER_COLLECT,
    ImageModel,
    Schedule,
    grad_clip_norm,
    learning_rate,
    refused,
)
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.q_policy import QConfig, QPolicy
from rlframe.policy.td import INPUTS, Targets, TDConfig, TDLearn, check_priority
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

LEAST_BONUS = -1.0
"""Lower bound of what the log-policy adds to a reward, before its weight."""


class DQNModel(ImageModel):
    """Section ``model`` of a DQN."""

    encoder_hidden_size_list: list[int] = option(HIDDEN_SIZES.having([128, 128, 64]))
    dueling: bool = option(True, doc='whether value and advantage have separate heads')
    noisy: bool = option(
        False,
        doc='whether the heads are noisy layers, which explore by noise in their weights; eps is then best 0',
    )


class DQNLearn(TDLearn):
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


class DQNConfig(TDConfig, QConfig):
    """Options of a DQN."""

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


@POLICY_REGISTRY.register('dqn')
class DQNPolicy(QPolicy):
    """Deep Q-network.

    Source:
        Mnih et al., Human-level control through deep reinforcement learning (2015). Double: van Hasselt et al. (2016),
        dueling: Wang et al. (2016), prioritized replay: Schaul et al. (2016), ``entropy_tau``: Vieillard et al.,
        Munchausen Reinforcement Learning (2020), section 3.
    """

    _cfg: DQNConfig
    config: dict[str, Any] = dict(discount_factor=0.97, collect=dict(n_sample=8))
    compiled_parts = ('loss',)
    inputs = INPUTS

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        """Refuses combinations that mean nothing."""
        errors = [*super().check_config(cfg), *check_priority(cfg)]
        learn: DQNLearn = cfg.learn
        if (learn.target_update_freq is None) == (learn.target_theta is None):
            given = f'target_update_freq ({learn.target_update_freq}) and target_theta ({learn.target_theta})'
            message = f'set one of {given}, and the other to None'
            errors.append(ConfigError(message, where='learn.target_theta'))
        if cfg.first_priority == 'error' and (cls.loss is not DQNPolicy.loss or cfg.entropy_tau is not None):
            message = f'the priorities of {cls.__name__} are not the TD errors that collectors compute'
            errors.append(refused(cfg, 'first_priority', message, "'largest'"))
        return errors

    def init_learn(self) -> None:
        self.targets = Targets(self._cfg, copy.deepcopy(self.model), [self.model], self.device)
        self.target_model = self.targets.network
        self.learned.append(self.targets)
        self._optimizer = self.optimizers['model'] = Optimizer(self.model, self._cfg.learn)
        self._target_update_freq = self._cfg.learn.target_update_freq
        self._target_theta = self._cfg.learn.target_theta
        self._double, self._kappa = self._cfg.double, self._cfg.learn.kappa
        self._tau, self._bonus_weight = self._cfg.entropy_tau, self._cfg.m_alpha
        # a subclass may change the loss of each transition; otherwise their mean is one operation
        is_own = type(self).loss is DQNPolicy.loss
        self._reduction = 'mean' if is_own and not self.targets.has_weights else 'none'

    def forward_learn(self, data: Batch) -> Metrics:
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
        value = self.chosen(self.valued(self.model, rows, 'obs'), rows['action'])  # [B]
        target = self.target(rows)
        loss = td_loss(value, target, self._kappa, self._reduction)
        value = value.detach()
        return loss, target - value, {'q_value': value.mean(), 'target_q_value': target.mean()}

    def target(self, rows: Rows) -> torch.Tensor:
        """Returns the value that each transition says its action has, float32 [B]; called by ``loss``.

        Policies that learn a distribution return [B, M]: its probabilities or quantiles.
        """
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
        return (
            self._normalizer.learning(self._first_priority) if self._cfg.first_priority == 'error' else None
        )

    def _first_priority(self, data: Batch) -> FloatArray:
        """Returns the absolute TD error of new transitions, float32 [M], by the network that acts alone.

        Source:
            Horgan et al., Distributed Prioritized Experience Replay (2018), section 3.
        """
        rows, discount_factor = self.columns(data), self._cfg.discount_factor
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


@POLICY_REGISTRY.register('mdqn')
class MDQNPolicy(DQNPolicy):
    """Munchausen DQN: DQN whose rewards and targets have the entropy of a soft policy.

    Source:
        Vieillard et al., Munchausen Reinforcement Learning (2020), section 3 and table 2: temperature 0.03 and weight
        0.9 of the log-policy.
    """

    config: dict[str, Any] = dict(entropy_tau=0.03)
