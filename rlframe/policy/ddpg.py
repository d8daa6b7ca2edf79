"""DDPG and TD3: actor-critics with a deterministic actor, each by its own switches."""

from __future__ import annotations

from typing import Any

from rlframe.policy.parts.options import Schedule, check_schedule
from rlframe.policy.qac import QACCollect, QACConfig, QACLearn, QACPolicy
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import Field


class DDPGLearn(QACLearn):
    """Section ``learn`` of DDPG."""

    target_noise: float
    target_noise_clip: float


class DDPGCollect(QACCollect):
    """Section ``collect`` of DDPG."""

    noise_sigma: Schedule


class DDPGConfig(QACConfig):
    """Options of DDPG."""

    learn: DDPGLearn
    collect: DDPGCollect


TARGET_NOISE: dict[str, Any] = dict(
    target_noise=Field(
        0.0,
        range='[0, inf)',
        unit='half the range of an action',
        doc="standard deviation of noise on the target actor's actions",
        may_change=True,
    ),
    target_noise_clip=Field(
        0.5,
        range='(0, inf)',
        unit='half the range of an action',
        doc='largest such noise',
        may_change=True,
    ),
)
"""Options of the section ``learn`` about the actions of the target actor."""
EXPLORATION: dict[str, Any] = dict(
    noise_sigma=Field(
        0.1,
        type=(float, dict),
        range='[0, inf)',
        unit='half the range of an action',
        doc='standard deviation of exploration noise; a schedule over env steps',
        check=check_schedule,
        may_change=True,
    ),
)
"""Options of the section ``collect`` about noise on actions."""


@POLICY_REGISTRY.register('ddpg')
class DDPGPolicy(QACPolicy):
    """Deep deterministic policy gradient.

    Source:
        Lillicrap et al., Continuous Control with Deep Reinforcement Learning (2016), algorithm 1.
    """

    _cfg: DDPGConfig
    config = dict(
        model=dict(twin_critic=False),
        learn=dict(learning_rate_actor=1e-3, learning_rate_critic=1e-3, **TARGET_NOISE),
        collect=EXPLORATION,
    )
    target_parts = ('actor', 'critic')


@POLICY_REGISTRY.register('td3')
class TD3Policy(QACPolicy):
    """DDPG with twin critics, a delayed actor and noise on the target's actions.

    Source:
        Fujimoto et al., Addressing Function Approximation Error in Actor-Critic Methods (2018), algorithm 1.
    """

    _cfg: DDPGConfig
    config = dict(
        model=dict(twin_critic=True),
        learn=dict(
            learning_rate_actor=1e-3,
            learning_rate_critic=1e-3,
            actor_update_freq=2,
            **TARGET_NOISE | dict(target_noise=TARGET_NOISE['target_noise'].having(0.2)),
        ),
        collect=EXPLORATION,
    )
    target_parts = ('actor', 'critic')
