"""SQIL: soft Q-learning whose only rewards are those of demonstrations."""

from __future__ import annotations

from typing import Any

from rlframe.errors import ConfigError
from rlframe.policy.parts.demos import HALF, IS_DEMO
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import refused
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.sac import SACPolicy, SACUpdate
from rlframe.policy.sql import SQLPolicy, SQLUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.lazy import torch


def rewarded(rows: Rows, discount_factor: float) -> Rows:
    """Returns rows whose rewards are 1 in each env step of demonstrations, and 0 in all others, summed over their windows."""
    reward = rows[IS_DEMO].float()
    if 'value_gamma' in rows:  # sum of discount_factor ** i over the steps of the window
        reward = reward * (1 - rows['value_gamma']) / (1 - discount_factor)
    return rows | {'reward': reward}


def discounted_windows(cfg: Any) -> list[ConfigError]:
    """Refuses windows of unknown length."""
    if cfg.nstep == 1 or cfg.discount_factor < 1:
        return []
    return [
        refused(cfg, 'nstep', 'without a discount, rows do not tell over how many env steps they go', '1')
    ]


class SQILUpdate(SQLUpdate):
    """Soft Q-learning with these rewards."""

    inputs = (*SQLUpdate.inputs, IS_DEMO)

    def target(self, rows: Rows) -> torch.Tensor:
        return super().target(rewarded(rows, self.cfg.discount_factor))


class SQILSACUpdate(SACUpdate):
    """SAC with these rewards."""

    inputs = (*SACUpdate.inputs, IS_DEMO)

    def critic_loss(self, rows: Rows) -> Loss:
        return super().critic_loss(rewarded(rows, self.cfg.discount_factor))


@POLICY_REGISTRY.register('sqil')
class SQILPolicy(SQLPolicy):
    """Soft Q imitation learning, for discrete actions.

    Half of each batch are demonstrations (``replay_buffer.init_from``, or an expert), each with the reward 1; what the policy
    does itself has the reward 0. Rewards of the env are not used.

    Source:
        Reddy et al., SQIL: Imitation Learning via Reinforcement Learning with Sparse Rewards (2020), algorithm 1.
    """

    config: dict[str, Any] = dict(other=HALF)
    needs_data = True
    solves = None
    checks = (discounted_windows,)
    update_class = SQILUpdate
    ding = DingNames(defaults=SQLPolicy.ding.defaults)


@POLICY_REGISTRY.register('sqil_sac')
class SQILSACPolicy(SACPolicy):
    """Soft Q imitation learning, for continuous actions: SAC with its rewards.

    Source:
        Reddy et al. (2020), section 3.2 and algorithm 1.
    """

    config: dict[str, Any] = dict(other=HALF)
    needs_data = True
    solves = None
    checks = (discounted_windows,)
    update_class = SQILSACUpdate
    ding = DingNames(
        defaults=SACPolicy.ding.defaults,
        unused={'expert_random_collect_size': 'an expert acts from the first env step on'},
    )
