"""IMPALA and APPO: actor-critics that correct for the age of the weights that collected their data."""

from __future__ import annotations

from typing import Any

from rlframe.policy.parts.vtrace import VTrace
from rlframe.policy.ppo import PPOConfig, PPOLearn, PPOPolicy
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option


class VTraceLearn(PPOLearn):
    """Section ``learn`` of policies that learn by V-trace."""

    clip_rho: float = option(
        1.0,
        range='(0, inf)',
        unit='ratio',
        doc='largest weight of a TD error, and of a gradient without clip_ratio (rho-bar): a larger one has less bias and more'
        ' variance',
        may_change=True,
    )
    clip_c: float = option(
        1.0,
        range='(0, inf)',
        unit='ratio',
        doc='largest weight of the next step in a target (c-bar), at most clip_rho',
        may_change=True,
    )


class VTraceConfig(PPOConfig):
    """Options of policies that learn by V-trace."""

    learn: VTraceLearn


@POLICY_REGISTRY.register('appo')
class APPOPolicy(PPOPolicy):
    """Asynchronous PPO: the clipped objective with V-trace targets, so that the data may be of older weights.

    Source:
        Espeholt et al. (2018), section 4; with the objective of Schulman et al., Proximal Policy Optimization Algorithms
        (2017), eq. 7.
    """

    _cfg: VTraceConfig
    config: dict[str, Any] = dict(collect=dict(gae_lambda=1.0))
    corrects_lag, correction = True, VTrace


@POLICY_REGISTRY.register('impala')
class IMPALAPolicy(PPOPolicy):
    """Importance-weighted actor-learners: V-trace targets and their policy gradient, in one update for each round.

    It is ``appo`` without clipped ratios. With ``collector.backend=ray`` and ``sync=False``, actors collect while it learns.

    Source:
        Espeholt et al., IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures (2018),
        section 4.2; RMSProp with gradients up to a norm of 40: table D.1.
    """

    _cfg: VTraceConfig
    corrects_lag, correction = True, VTrace
    config: dict[str, Any] = dict(
        learn=dict(
            epoch_per_collect=1,
            batch_size=None,
            learning_rate=6e-4,
            clip_ratio=None,
            advantage_norm=None,
            grad_clip_norm=40.0,
            optimizer='rmsprop',
        ),
        collect=dict(n_sample=160, gae_lambda=1.0),
    )
