"""ReBRAC: TD3+BC whose critics are drawn towards recorded actions, too, with layer norm and a third hidden layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlframe.data.episodes import with_next_action
from rlframe.data.sources import DataSource
from rlframe.data.timestep import Batch
from rlframe.policy.ddpg import DDPGConfig
from rlframe.policy.dqn import INPUTS
from rlframe.policy.parts.outputs import Values
from rlframe.policy.parts.recorded import FROM_DATA
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac import QACPolicy
from rlframe.policy.td3 import TD3Learn, TD3Update
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class ReBRACLearn(TD3Learn):
    """Section ``learn`` of ReBRAC."""

    actor_beta: float = option(
        0.01,
        range='[0, inf)',
        doc="weight of the squared distance to recorded actions in the actor's loss, beside values of mean size 1",
        may_change=True,
    )
    critic_beta: float = option(
        0.01,
        range='[0, inf)',
        unit='return',
        doc='what a squared distance of 1 to the next recorded action takes from the target of the critics',
        may_change=True,
    )


class ReBRACConfig(DDPGConfig):
    """Options of ReBRAC."""

    learn: ReBRACLearn


class ReBRACUpdate(TD3Update):
    """TD3 whose actor and critics are drawn towards recorded actions, each by a weight of its own."""

    inputs = (*INPUTS, 'next_action')

    def critic_loss(self, rows: Rows) -> Loss:
        # target
        with torch.no_grad():
            action = self.next_action(rows)
            next_value = Values(self.targets.network['critic'](rows['next_obs'], action)).smallest()
            cost = None
            if 'next_action' in rows:
                cost = self.cfg.learn.critic_beta * (action - rows['next_action']).square().sum(1)
            target = next_value.target(rows['reward'], self.targets.discount(rows), cost)
        # critics
        value = self.model.critic(rows['obs'], rows['action'])
        return self.fitted(Values(value), target, rows)

    def actor_loss(self, rows: Rows) -> Loss:
        """Returns the distance to the recorded actions, minus the value of the actor's, in units of the batch's values."""
        action = self.model.actor(rows['obs'])
        value = self.model.critic(rows['obs'], action).amin(0)
        distance = (action - rows['action']).square().sum(1).mean()
        gain = value.mean() / value.detach().abs().mean()
        return Loss(self.cfg.learn.actor_beta * distance - gain, {'bc_loss': distance.detach()})


@POLICY_REGISTRY.register('rebrac')
class ReBRACPolicy(QACPolicy):
    """Behaviour-regularised actor-critic, revisited.

    Its target is r + gamma (min Q(s', a') - beta_2 |a' - b'|²), with the next recorded action b', and its actor minimises
    beta_1 |π(s) - b|² - λ min Q(s, π(s)), with λ = 1 / mean |Q| over the batch. Of a row in which an episode was cut off, b' is
    the action of the row itself.

    Source:
        Tarasov et al., Revisiting the Minimalist Approach to Offline Reinforcement Learning (2023), eq. 3 and 4, table 1.
    """

    _cfg: ReBRACConfig
    config: dict[str, Any] = dict(
        model=dict(encoder_hidden_size_list=[256, 256, 256], norm='layer'),
        learn=dict(batch_size=1024, actor_update_freq=2),
        collect=FROM_DATA,
    )
    update_class = ReBRACUpdate
    needs_order = True
    toy: dict[str, Any] = dict(
        discount_factor=0.5, learn=dict(batch_size=64, learning_rate_actor=3e-3, learning_rate_critic=3e-3)
    )

    def _get_data_form(self) -> Callable[[DataSource], DataSource]:
        return with_next_action

    def get_train_sample(self, block: Batch) -> Batch:
        rows = super().get_train_sample(block)
        return rows.replace(next_action=self.actions.from_env(np.asarray(rows['next_action'])))
