"""IQL: learns from recorded data without ever valuing an action that is not in them."""

from __future__ import annotations

from rlframe.policy.awr import AWRConfig, AWRLearn, AWRPolicy, AWRUpdate
from rlframe.policy.parts.outputs import Values
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class IQLLearn(AWRLearn):
    """Section ``learn`` of IQL."""

    expectile: float = option(
        0.7,
        range='(0, 1)',
        doc="expectile of the values of recorded actions that is a state's value; 0.5 is their mean, 1 their largest one",
        may_change=True,
    )
    beta: float = option(
        3.0,
        range='[0, inf)',
        doc='weight of the advantage of a recorded action; 0: behaviour cloning',
        may_change=True,
    )
    max_weight: float = option(
        100.0, range='(0, inf)', doc='largest weight of a recorded action', may_change=True
    )


class IQLConfig(AWRConfig):
    """Options of IQL."""

    learn: IQLLearn


class IQLUpdate(AWRUpdate):
    """Values of states by expectiles, critics by these values, and an actor by advantages."""

    def loss(self, rows: Rows) -> Loss:
        """Returns the sum of the losses of the values of states, of the critics and of the actor."""
        obs, action = rows['obs'], rows['action']
        learn = self.cfg.learn
        # values of states
        with torch.no_grad():
            recorded = Values(self.targets.network['critic'](obs, action)).smallest().value
            next_value = Values(self.model.value(rows['next_obs']))
            target = next_value.target(rows['reward'], self.targets.discount(rows))
        advantage = recorded - self.model.value(obs)
        steepness = torch.where(advantage < 0, 1 - learn.expectile, learn.expectile)
        value_loss = (steepness * advantage.square()).mean()
        # critics
        critics = self.fitted(Values(self.model.critic(obs, action)), target, rows)
        # actor
        weight = (learn.beta * advantage.detach()).exp().clamp(max=learn.max_weight)
        actor_loss = -(weight * self.likelihood(obs, action)).mean()
        parts = {'value_loss': value_loss, 'critic_loss': critics.value, 'actor_loss': actor_loss}
        metrics = critics.metrics | {'advantage': advantage.detach().mean()}
        return Loss(value_loss + critics.value + actor_loss, metrics, critics.error, parts)


@POLICY_REGISTRY.register('iql')
class IQLPolicy(AWRPolicy):
    """Implicit Q-learning.

    The value of a state is an expectile, above the mean, of the target critics' values of the recorded actions: with
    u = Q(s, a) - V(s), V minimises |τ - 1(u < 0)| u². Critics learn r + gamma V(s'), and the actor raises
    min(exp(β u), w) log π(a|s).

    Source:
        Kostrikov et al., Offline Reinforcement Learning with Implicit Q-Learning (2022), eq. 5 to 7.
    """

    _cfg: IQLConfig
    default_network = 'iql'
    update_class = IQLUpdate
