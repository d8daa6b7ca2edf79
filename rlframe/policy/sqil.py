"""SQIL: soft Q-learning whose only rewards are those of demonstrations."""

from __future__ import annotations

from typing import Any

from rlframe.errors import ConfigError
from rlframe.policy.parts.demos import HALF, IS_DEMO
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import refused
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.sac import ContinuousSACConfig, SACLearn, SACPolicy, SACUpdate
from rlframe.policy.sql import SQLConfig, SQLLearn, SQLPolicy, SQLUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

ABSORBING: bool = option(
    False,
    doc='whether demonstrations that end go on for ever, with their reward of 1 a step: for tasks that end when they are'
    ' done, where living on would earn more',
    may_change=True,
)


class SQILLearn(SQLLearn):
    """Section ``learn`` of SQIL for discrete actions."""

    absorbing: bool = ABSORBING


class SQILConfig(SQLConfig):
    """Options of SQIL for discrete actions."""

    learn: SQILLearn


class SQILSACLearn(SACLearn):
    """Section ``learn`` of SQIL for continuous actions."""

    absorbing: bool = ABSORBING


class SQILSACConfig(ContinuousSACConfig):
    """Options of SQIL for continuous actions."""

    learn: SQILSACLearn


def rewarded(rows: Rows, discount_factor: float, absorbing: bool = False) -> Rows:
    """Returns rows whose rewards are 1 in each env step of demonstrations, and 0 in all others, summed over their windows.

    With ``absorbing``, demonstrations that end are rewarded for all time after that.

    Source:
        Absorbing states: Kostrikov et al., Discriminator-Actor-Critic (2019), section 4.2.
    """
    reward = rows[IS_DEMO].float()
    if 'value_gamma' in rows:  # sum of discount_factor ** i over the steps of the window
        reward = reward * (1 - rows['value_gamma']) / (1 - discount_factor)
    if absorbing:
        ends = rows[IS_DEMO].bool() & rows['terminated'].bool()
        reward = reward.masked_fill(ends, 1 / (1 - discount_factor))
    return rows | {'reward': reward}


def discounted(cfg: Any) -> list[ConfigError]:
    """Refuses windows of unknown length, and rewards for ever, without a discount."""
    errors = []
    if cfg.nstep > 1 and cfg.discount_factor == 1:
        message = 'without a discount, rows do not tell over how many env steps they go'
        errors.append(refused(cfg, 'nstep', message, '1'))
    if cfg.learn.absorbing and cfg.discount_factor == 1:
        message = 'without a discount, rewards for ever have no sum'
        errors.append(refused(cfg, 'learn.absorbing', message, 'False'))
    return errors


class SQILUpdate(SQLUpdate):
    """Soft Q-learning with these rewards."""

    inputs = (*SQLUpdate.inputs, IS_DEMO)

    def target(self, rows: Rows) -> torch.Tensor:
        return super().target(rewarded(rows, self.cfg.discount_factor, self.cfg.learn.absorbing))


class SQILSACUpdate(SACUpdate):
    """SAC with these rewards."""

    inputs = (*SACUpdate.inputs, IS_DEMO)

    def critic_loss(self, rows: Rows) -> Loss:
        return super().critic_loss(rewarded(rows, self.cfg.discount_factor, self.cfg.learn.absorbing))


@POLICY_REGISTRY.register('sqil')
class SQILPolicy(SQLPolicy):
    """Soft Q imitation learning, for discrete actions.

    Half of each batch are demonstrations (``replay_buffer.init_from``, or an expert), each with the reward 1; what the policy
    does itself has the reward 0. Rewards of the env are not used.

    Source:
        Reddy et al., SQIL: Imitation Learning via Reinforcement Learning with Sparse Rewards (2020), algorithm 1.
    """

    _cfg: SQILConfig
    config: dict[str, Any] = dict(other=HALF)
    needs_data = True
    solves = None
    checks = (discounted,)
    update_class = SQILUpdate
    ding = DingNames(defaults=SQLPolicy.ding.defaults)


@POLICY_REGISTRY.register('sqil_sac')
class SQILSACPolicy(SACPolicy):
    """Soft Q imitation learning, for continuous actions: SAC with its rewards.

    Source:
        Reddy et al. (2020), section 3.2 and algorithm 1.
    """

    _cfg: SQILSACConfig
    config: dict[str, Any] = dict(other=HALF)
    needs_data = True
    solves = None
    checks = (discounted,)
    update_class = SQILSACUpdate
    ding = DingNames(
        defaults=SACPolicy.ding.defaults,
        unused={'expert_random_collect_size': 'an expert acts from the first env step on'},
    )
