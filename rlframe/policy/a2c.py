"""A2C: one gradient step on all data of a short round."""

from __future__ import annotations

from rlframe.policy.ppo import PPOPolicy
from rlframe.registry import POLICY_REGISTRY


@POLICY_REGISTRY.register('a2c')
class A2CPolicy(PPOPolicy):
    """Advantage actor-critic, synchronous: PPO with a single update per round on all its data at once.

    The probability ratio of PPO's objective is then 1, so its gradient is that of the log-probability times the
    advantage, and nothing is clipped: ``clip_ratio`` has no effect unless there are more epochs or batches.

    Source:
        Mnih et al., Asynchronous Methods for Deep Reinforcement Learning (2016), algorithm S3, with synchronous
        workers. Huang et al., A2C is a special case of PPO (2022), section 3.
    """

    config = dict(
        learn=dict(
            epoch_per_collect=1,
            batch_size=None,
            learning_rate=7e-4,
            advantage_norm=None,
            entropy_weight=0.0,
            optimizer='rmsprop',
        ),
        collect=dict(n_sample=40, gae_lambda=1.0),
    )
