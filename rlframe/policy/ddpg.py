"""DDPG and TD3: actor-critics with a deterministic actor, each by its own switches."""

from __future__ import annotations

from rlframe.policy.parts.options import Schedule, check_schedule, learning_rate
from rlframe.policy.qac import QACPolicy
from rlframe.policy.qac_options import ContinuousCollect, ContinuousLearn, ContinuousModel, QACConfig
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option


class DDPGLearn(ContinuousLearn):
    """Section ``learn`` of DDPG."""

    learning_rate_actor: Schedule = option(learning_rate(1e-3, 'Adam for the actor'))
    learning_rate_critic: Schedule = option(learning_rate(1e-3, 'Adam for the critics'))
    target_noise: float = option(
        0.0,
        range='[0, inf)',
        unit='half the range of an action',
        doc="standard deviation of noise on the target actor's actions",
        may_change=True,
    )
    target_noise_clip: float = option(
        0.5,
        range='(0, inf)',
        unit='half the range of an action',
        doc='largest such noise',
        may_change=True,
    )


class DDPGCollect(ContinuousCollect):
    """Section ``collect`` of DDPG."""

    noise_sigma: Schedule = option(
        0.1,
        range='[0, inf)',
        unit='half the range of an action',
        doc='standard deviation of exploration noise; a schedule over env steps',
        check=check_schedule,
        may_change=True,
    )


class DDPGConfig(QACConfig):
    """Options of DDPG."""

    model: ContinuousModel
    learn: DDPGLearn
    collect: DDPGCollect


@POLICY_REGISTRY.register('ddpg')
class DDPGPolicy(QACPolicy):
    """Deep deterministic policy gradient.

    Source:
        Lillicrap et al., Continuous Control with Deep Reinforcement Learning (2016), algorithm 1.
    """

    _cfg: DDPGConfig
    config = dict(model=dict(twin_critic=False))
    target_parts = ('actor', 'critic')


@POLICY_REGISTRY.register('td3')
class TD3Policy(QACPolicy):
    """DDPG with twin critics, a delayed actor and noise on the target's actions.

    Source:
        Fujimoto et al., Addressing Function Approximation Error in Actor-Critic Methods (2018), algorithm 1.
    """

    _cfg: DDPGConfig
    config = dict(learn=dict(actor_update_freq=2, target_noise=0.2))
    target_parts = ('actor', 'critic')
