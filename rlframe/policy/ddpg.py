"""DDPG: an actor-critic with a deterministic actor, noise on its actions, and target networks of both."""

from __future__ import annotations

from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import NOISE_SIGMA, Schedule, check_schedule, learning_rate
from rlframe.policy.parts.sections import OtherConfig
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac import ContinuousCollect, ContinuousModel, QACConfig, QACLearn, QACPolicy, QACUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class DDPGLearn(QACLearn):
    """Section ``learn`` of DDPG."""

    learning_rate_actor: Schedule = option(learning_rate(1e-3, 'Adam for the actor'))
    learning_rate_critic: Schedule = option(learning_rate(1e-3, 'Adam for the critics'))


class DDPGCollect(ContinuousCollect):
    """Section ``collect`` of DDPG."""

    noise_sigma: Schedule = option(NOISE_SIGMA)


class DDPGOther(OtherConfig):
    """Section ``other`` of DDPG."""

    eps: Schedule = option(
        0.0,
        range='[0, 1]',
        doc='probability of a random action, for hybrid actions above all; a schedule over env steps',
        check=check_schedule,
        may_change=True,
    )


class DDPGConfig(QACConfig):
    """Options of DDPG."""

    model: ContinuousModel
    learn: DDPGLearn
    collect: DDPGCollect
    other: DDPGOther


class DDPGUpdate(QACUpdate):
    """Deep deterministic policy gradient, with the smaller value if there are several critics."""

    target_parts = ('actor', 'critic')

    def next_action(self, rows: Rows) -> torch.Tensor:
        """Returns the actions in the next states, float32 [B, A]."""
        return self.targets.network['actor'](rows['next_obs'])

    def critic_loss(self, rows: Rows) -> Loss:
        """Returns the distance of the values of the actions taken to their target."""
        # target
        with torch.no_grad():
            next_value = self.targets.network['critic'](rows['next_obs'], self.next_action(rows))
            least = self.returns(next_value).smallest()
            target = least.target(rows['reward'], self.targets.discount(rows))
        # critics
        value = self.returns(self.model.critic(rows['obs'], rows['action']))
        return self.fitted(value, target, rows)

    def actor_loss(self, rows: Rows) -> Loss:
        """Returns minus the value of the actor's actions, by the first critic."""
        action = self.model.actor(rows['obs'])
        value = self.returns(self.model.critic(rows['obs'], action, count=1)).mean()
        return Loss(-value.mean())


@POLICY_REGISTRY.register('ddpg')
class DDPGPolicy(QACPolicy):
    """Deep deterministic policy gradient.

    Of hybrid actions, the actor gives a score for each choice and the parameters of all, and critics value both.

    Source:
        Lillicrap et al., Continuous Control with Deep Reinforcement Learning (2016), algorithm 1. Hybrid actions: Hausknecht &
        Stone, Deep Reinforcement Learning in Parameterized Action Space (2016), section 4.
    """

    _cfg: DDPGConfig
    config = dict(model=dict(twin_critic=False))
    supported_actions = 'Box, Hybrid'
    supports_action_mask = True
    update_class = DDPGUpdate
    ding = DingNames(
        defaults={
            'learn.update_per_collect': 1,
            'other.replay_buffer.replay_buffer_size': 100_000,
            'random_collect_size': 25_000,
        }
    )
    solves = 'Pendulum-v1', 8_000
    search_space = QACPolicy.search_space.having({'collect.noise_sigma': 'uniform(0,1)'})
