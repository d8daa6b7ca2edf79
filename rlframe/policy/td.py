"""Options of policies that learn values from a replay buffer by temporal differences."""

from __future__ import annotations

from typing import Any, Literal

from rlframe.errors import ConfigError
from rlframe.policy.base_policy import LearnConfig, PolicyConfig
from rlframe.policy.parts.optim import NAN_POLICY
from rlframe.policy.parts.options import DISCOUNT_FACTOR
from rlframe.utils.field import option

INPUTS = 'obs', 'next_obs', 'action', 'reward', 'terminated', 'value_gamma', 'IS'
"""Columns of transitions that an update reads, where there are such."""


class TDLearn(LearnConfig):
    """Section ``learn`` of every policy with a target network."""

    nan_policy: Literal['raise', 'skip', 'ignore'] = option(NAN_POLICY)


def _has_priorities(policy: type[Any], cfg: Any) -> ConfigError | None:
    """Refuses importance weights if there are no priorities."""
    if cfg.priority or not cfg.priority_IS_weight:
        return None
    return ConfigError('policy.priority_IS_weight=True needs policy.priority=True')


class TDConfig(PolicyConfig):
    """Options of every policy with a target network."""

    priority: bool = option(
        False, doc='whether TD errors become the priorities of the replay buffer', rule=_has_priorities
    )
    priority_IS_weight: bool = option(  # noqa: N815  # DI-engine's name of the option
        False, doc='whether losses are weighted by importance sampling', rule=_has_priorities
    )
    discount_factor: float = option(DISCOUNT_FACTOR)
    nstep: int = option(1, range='[1, inf)', unit='env steps', doc='rewards summed before bootstrapping')
    learn: TDLearn
