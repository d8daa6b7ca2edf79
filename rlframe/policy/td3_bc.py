"""TD3+BC: TD3 from recorded data, whose actor is also drawn towards the recorded actions."""

from __future__ import annotations

from typing import Any

from rlframe.policy.ddpg import DDPGConfig
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.recorded import FROM_DATA
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac import QACPolicy
from rlframe.policy.td3 import TD3Learn, TD3Update
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class TD3BCLearn(TD3Learn):
    """Section ``learn`` of TD3+BC."""

    alpha: float = option(
        2.5,
        range='[0, inf)',
        doc='weight of the value in the loss of the actor, in units of its mean size; 0: behaviour cloning',
        may_change=True,
    )


class TD3BCConfig(DDPGConfig):
    """Options of TD3+BC."""

    learn: TD3BCLearn


class TD3BCUpdate(TD3Update):
    """TD3, whose actor is also to do what the data show."""

    def actor_loss(self, rows: Rows) -> Loss:
        """Returns the distance to the recorded actions, minus the value of the actor's, in units of the batch's values."""
        action = self.model.actor(rows['obs'])
        value = self.model.critic(rows['obs'], action, count=1)
        distance = torch.nn.functional.mse_loss(action, rows['action'])
        weight = self.cfg.learn.alpha / value.detach().abs().mean()
        return Loss(distance - weight * value.mean(), {'bc_loss': distance.detach()})


@POLICY_REGISTRY.register('td3_bc')
class TD3BCPolicy(QACPolicy):
    """TD3 from recorded data, whose actor is also drawn towards the recorded actions.

    The loss of its actor is (π(s) - a)² - λ Q(s, π(s)), with λ = alpha / mean |Q(s, π(s))| over the batch. The authors normalise
    observations by the data, as ``normalize_obs`` does.

    Source:
        Fujimoto & Gu, A Minimalist Approach to Offline Reinforcement Learning (2021), eq. 3 to 5.
    """

    _cfg: TD3BCConfig
    config: dict[str, Any] = dict(
        learn=dict(learning_rate_actor=3e-4, learning_rate_critic=3e-4, actor_update_freq=2),
        collect=FROM_DATA,
    )
    update_class = TD3BCUpdate
    ding = DingNames(
        defaults={'learn.learning_rate_actor': 1e-3, 'learn.learning_rate_critic': 1e-3},
    )
    toy: dict[str, Any] = dict(
        discount_factor=0.5, learn=dict(batch_size=64, learning_rate_actor=3e-3, learning_rate_critic=3e-3)
    )
