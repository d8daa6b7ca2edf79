"""SQN: soft Q-learning with two networks and a learned temperature."""

from __future__ import annotations

import math
from typing import Any

from rlframe.policy.mdqn import soft_policy
from rlframe.policy.parts.actions import mask_of
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import Schedule, learning_rate
from rlframe.policy.parts.outputs import Values, chosen
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.sql import SQLConfig, SQLLearn, SQLPolicy, SQLUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


def check_alpha(value: Any) -> str:
    """Returns a description of valid temperatures if a value is invalid, else an empty string."""
    is_fine = value == 'auto' if isinstance(value, str) else 0 < value < math.inf
    return '' if is_fine else "'auto', or a number > 0"


class SQNLearn(SQLLearn):
    """Section ``learn`` of SQN."""

    alpha: str | float = option(  # type: ignore[assignment]  # SQL's is a number only
        'auto',
        doc="temperature of the softmax policy; 'auto': learned so that its entropy is target_entropy",
        check=check_alpha,
    )
    init_alpha: float = option(0.2, range='(0, inf)', doc='initial temperature if it is learned')
    target_entropy: float = option(
        0.2,
        range='[0, inf)',
        unit='nats',
        doc='entropy of the policy to aim at; where a mask allows n of A actions, log(n) / log(A) of it',
    )
    learning_rate_alpha: Schedule = option(learning_rate(1e-3, 'Adam for the temperature'))


class SQNConfig(SQLConfig):
    """Options of SQN."""

    learn: SQNLearn


class SQNUpdate(SQLUpdate):
    """Soft Q-learning with the lower of two values, and the loss of the temperature."""

    losses = {'loss': 'model', 'alpha_loss': 'alpha'}

    def temperature(self) -> Any:
        return self.model.alpha['log'].detach().exp()

    def is_due(self, name: str, turn: bool) -> bool:
        return name != 'alpha_loss' or self.cfg.learn.alpha == 'auto'

    def loss(self, rows: Rows) -> Loss:
        """Returns the sum of both networks' mean squared distances to the target."""
        with torch.no_grad():
            target = self.target(rows)
        # both networks
        value = torch.stack([chosen(each, rows['action']) for each in self.model.both(rows['obs'])])
        fit = Values(value).fit(target, self.targets.weight(rows))
        return Loss(fit.loss.sum(), fit.metrics(), fit.error.abs().mean(0))

    def alpha_loss(self, rows: Rows) -> Loss:
        # entropy of the policy
        obs = rows['obs']
        mask = mask_of(rows['obs'])
        with torch.no_grad():
            alpha = self.temperature()
            value = self.model(obs)
            policy, log_policy = soft_policy(value, alpha, mask)
            entropy = -(policy * log_policy).sum(1) / alpha
        # its target, smaller where a mask leaves less to choose
        target = self.cfg.learn.target_entropy
        actions = value.shape[1]
        if mask is not None:
            target = target * mask.sum(1).clamp(min=1).log() / (math.log(actions) or 1.0)
        loss = self.model.alpha['log'] * (entropy - target).mean()
        return Loss(loss, {'alpha': alpha, 'entropy': entropy.mean()})


@POLICY_REGISTRY.register('sqn')
class SQNPolicy(SQLPolicy):
    """Soft Q-learning with two networks, the lower of whose values counts, and a temperature that keeps the policy's entropy.

    Source:
        Liu et al., Soft Q-network (2019), as DI-engine has it. Two networks and the learned temperature: Haarnoja et al., Soft
        Actor-Critic Algorithms and Applications (2018), section 6 and eq. 18.
    """

    _cfg: SQNConfig
    config = dict(learn=dict(target_update_freq=None, target_theta=0.005))
    default_network = 'twin_q_net'
    update_class = SQNUpdate
    ding = DingNames(
        options={
            'learn.discount_factor': 'discount_factor',
            'learn.learning_rate_q': 'learn.learning_rate',
        },
        defaults={
            'discount_factor': 0.99,
            'model.dueling': False,
            'learn.update_per_collect': 16,
            'other.replay_buffer.replay_buffer_size': 100_000,
        },
        unused={'collect.nstep': 'without effect in DI-engine as well'},
    )
    toy = SQLPolicy.toy | dict(
        learn=dict(
            batch_size=32,
            learning_rate=3e-3,
            learning_rate_alpha=1e-2,
            target_theta=0.05,
            update_per_collect=8,
        )
    )
    solves = 'CartPole-v1', 80_000

    def create_model(self) -> torch.nn.Module:
        model: Any = super().create_model()
        learn = self._cfg.learn
        first = learn.init_alpha if learn.alpha == 'auto' else learn.alpha
        model.alpha = torch.nn.ParameterDict({'log': torch.tensor(float(first)).log()})
        return model
