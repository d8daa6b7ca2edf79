"""SAC for continuous actions: an actor that is rewarded for entropy too; CrossQ, XQC, TQC, REDQ and DroQ are its switches."""

from __future__ import annotations

import math
from typing import Any, Literal

from rlframe.policy.base_policy import StochasticEval
from rlframe.policy.parts.options import Schedule, learning_rate
from rlframe.policy.qac import QACPolicy
from rlframe.policy.qac_options import (
    ContinuousCollect,
    ContinuousLearn,
    ContinuousModel,
    QACConfig,
    QACLearn,
)
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option


def check_alpha(value: Any) -> str:
    """Returns a description of valid temperatures if a value is invalid, else an empty string."""
    is_fine = value == 'auto' if isinstance(value, str) else 0 <= value < math.inf
    return '' if is_fine else "'auto', or a number >= 0"


class SACLearn(QACLearn):
    """Section ``learn`` of SAC."""

    alpha: str | float = option(
        'auto',
        doc="weight of the entropy; 'auto': learned so that the entropy is target_entropy",
        check=check_alpha,
    )
    init_alpha: float = option(1.0, range='(0, inf)', doc='initial weight of the entropy if it is learned')
    target_entropy: float | None = option(
        None,
        unit='nats',
        doc='entropy of the actor to aim at; None: -A for A continuous, log(A) / 2 for A discrete actions; where a mask allows'
        ' n of A actions, log(n) / log(A) of it',
    )
    learning_rate_alpha: Schedule = option(learning_rate(3e-4, 'Adam for the weight of the entropy'))


class SACConfig(QACConfig):
    """Options of every SAC."""

    learn: SACLearn
    eval: StochasticEval


class ContinuousSACModel(ContinuousModel):
    """Section ``model`` of SAC for continuous actions."""

    num_quantiles: int = option(
        1, range='[1, inf)', unit='quantiles', doc='numbers that a critic describes a return by; 1: its mean'
    )
    n_atom: int | None = option(
        None,
        range='[2, inf)',
        unit='atoms',
        doc='returns that a categorical critic tells apart, by cross-entropy; None: critics are not categorical',
    )
    v_min: float = option(-10.0, unit='discounted return', doc='lowest atom of the return distribution')
    v_max: float = option(10.0, unit='discounted return', doc='highest atom of the return distribution')


class ContinuousSACLearn(SACLearn, ContinuousLearn):
    """Section ``learn`` of SAC for continuous actions."""

    target_follows: Literal['actor', 'critic'] = option(
        'actor', doc='network after whose updates the target networks move', may_change=True
    )
    target_critics: int | None = option(
        None,
        range='[1, inf)',
        unit='critics',
        doc='critics, drawn anew in every update, that make the target; None: all',
    )
    dropped_quantiles: int = option(
        0,
        range='[0, inf)',
        unit='quantiles for each critic',
        doc='largest quantiles, of those of all critics together, that targets leave out',
        may_change=True,
    )
    actor_value: Literal['min', 'mean'] = option(
        'min', doc='value that the actor raises: the smallest of the critics, or their mean', may_change=True
    )


class ContinuousSACConfig(SACConfig):
    """Options of SAC for continuous actions."""

    model: ContinuousSACModel
    learn: ContinuousSACLearn
    collect: ContinuousCollect


@POLICY_REGISTRY.register('sac')
class SACPolicy(QACPolicy):
    """Soft actor-critic with a tanh-Gaussian actor; CrossQ, XQC, TQC, REDQ and DroQ are its switches.

    Source:
        Haarnoja et al., Soft Actor-Critic Algorithms and Applications (2018), algorithm 1, eq. 5, 7 and 18; the
        temperature is learned by its logarithm, as the authors' code does. Categorical critics (``n_atom``): Bellemare et
        al. (2017), algorithm 1, on the distribution of the critic whose mean is smallest, as the authors of XQC do.
    """

    _cfg: ContinuousSACConfig
    actor_kind = 'gaussian'


OFTEN: dict[str, Any] = dict(
    update_per_collect=160, actor_update_freq=20, target_follows='critic', actor_value='mean'
)
"""Section ``learn`` of SACs that do 20 updates of the critics for each env step, and one of the actor."""


@POLICY_REGISTRY.register('crossq')
class CrossQPolicy(QACPolicy):
    """SAC with batch norm and without target networks, which needs a fraction of the env steps.

    Source:
        Bhatt et al., CrossQ: Batch Normalization in Deep Reinforcement Learning for Greater Sample Efficiency and
        Simplicity (2024), section 4; the paper's critics have 2,048 units a layer.
    """

    _cfg: ContinuousSACConfig
    actor_kind = 'gaussian'
    config: dict[str, Any] = dict(
        model=dict(norm='batch'),
        learn=dict(
            target_network=False,
            actor_update_freq=3,
            adam_beta1=0.5,
            learning_rate_actor=1e-3,
            learning_rate_critic=1e-3,
            learning_rate_alpha=1e-3,
        ),
    )


@POLICY_REGISTRY.register('xqc')
class XQCPolicy(QACPolicy):
    """CrossQ with weights of length 1, categorical critics, and target networks.

    The paper's critics have four layers of 512 units and its actor four of 256, its learning rates fall to a tenth, and
    its target entropy is half of SAC's (``learn.target_entropy``).

    Source:
        Palenicek et al., XQC: Well-conditioned Optimization Accelerates Deep Reinforcement Learning (2026), section 4.
        Which weights have length 1 (all of actor and critics, outputs included), that target critics see both states,
        and the initial temperature, are those of the authors' code; its batch norm has no renormalisation.
    """

    _cfg: ContinuousSACConfig
    actor_kind = 'gaussian'
    config: dict[str, Any] = dict(
        normalize_reward=True,
        model=dict(norm='batch', weight_norm=True, n_atom=101, v_min=-5.0, v_max=5.0),
        learn=dict(update_per_collect=16, actor_update_freq=3, target_follows='critic', init_alpha=0.01),
    )


@POLICY_REGISTRY.register('tqc')
class TQCPolicy(QACPolicy):
    """SAC whose critics learn quantiles of the return, and whose targets leave out the largest ones.

    Source:
        Kuznetsov et al., Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional Quantile
        Critics (2020), algorithm 1; the paper has five critics.
    """

    _cfg: ContinuousSACConfig
    actor_kind = 'gaussian'
    config: dict[str, Any] = dict(
        model=dict(num_quantiles=25), learn=dict(dropped_quantiles=2, actor_value='mean')
    )


@POLICY_REGISTRY.register('redq')
class REDQPolicy(QACPolicy):
    """SAC with ten critics, of which two drawn ones make the target, and 20 updates for each env step.

    Source:
        Chen et al., Randomized Ensembled Double Q-Learning: Learning Fast Without a Model (2021), algorithm 1.
    """

    _cfg: ContinuousSACConfig
    actor_kind = 'gaussian'
    config: dict[str, Any] = dict(model=dict(n_critic=10), learn=OFTEN | dict(target_critics=2))


@POLICY_REGISTRY.register('droq')
class DroQPolicy(QACPolicy):
    """SAC whose critics have dropout and layer norm, and 20 updates for each env step.

    Source:
        Hiraoka et al., Dropout Q-Functions for Doubly Efficient Reinforcement Learning (2022), algorithm 2.
    """

    _cfg: ContinuousSACConfig
    actor_kind = 'gaussian'
    config: dict[str, Any] = dict(model=dict(norm='layer', dropout=0.01), learn=OFTEN)
