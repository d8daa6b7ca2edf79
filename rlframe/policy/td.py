"""Targets: what policies share that learn values from a replay buffer by temporal differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from easydict import EasyDict

from rlframe.data.faces import Metrics
from rlframe.errors import ConfigError
from rlframe.policy.base_policy import LearnConfig, PolicyConfig
from rlframe.policy.parts.optim import NAN_POLICY
from rlframe.policy.parts.options import DISCOUNT_FACTOR, refused
from rlframe.policy.parts.sequences import Rows
from rlframe.utils.field import option
from rlframe.utils.lazy import torch
from rlframe.utils.schema import COUNT, NETWORK, check_state, part

INPUTS = 'obs', 'next_obs', 'action', 'reward', 'terminated', 'value_gamma', 'IS'
"""Columns of transitions that an update reads, where there are such."""


class TDLearn(LearnConfig):
    """Section ``learn`` of every policy with a target network."""

    nan_policy: Literal['raise', 'skip', 'ignore'] = option(NAN_POLICY)


class TDConfig(PolicyConfig):
    """Options of every policy with a target network."""

    priority: bool = option(False, doc='whether TD errors become the priorities of the replay buffer')
    priority_IS_weight: bool = option(  # noqa: N815  # DI-engine's name of the option
        False, doc='whether losses are weighted by importance sampling'
    )
    discount_factor: float = option(DISCOUNT_FACTOR)
    nstep: int = option(1, range='[1, inf)', unit='env steps', doc='rewards summed before bootstrapping')
    learn: TDLearn


def check_priority(cfg: EasyDict) -> list[ConfigError]:
    """Refuses importance weights if there are no priorities."""
    own: TDConfig = cfg
    if not own.priority_IS_weight or own.priority:
        return []
    return [refused(cfg, 'priority_IS_weight', 'needs policy.priority=True', 'False')]


class Targets:
    """The target networks of a policy, the discount behind each transition, and the priorities of what it learned.

    Args:
        cfg: Options of the policy.
        target: A copy of the network, or of parts of it, that becomes the target network.
        online: The parts that it is a copy of.
        device: Where they are.

    Source:
        Sutton & Barto, Reinforcement Learning (2018), section 6.1; target networks: Mnih et al. (2015).
    """

    def __init__(
        self, cfg: TDConfig, target: torch.nn.Module, online: Sequence[torch.nn.Module], device: torch.device
    ) -> None:
        for module in target.modules():
            if isinstance(module, torch.nn.RNNBase):
                module.flatten_parameters()  # copied one by one, they are in no single chunk as cuDNN wants them
        self.network: Any = target.requires_grad_(False)
        """The target network."""
        self.discount_factor = cfg.discount_factor
        """Per env step, in [0, 1]."""
        self.has_priority, self.has_weights = cfg.priority, cfg.priority_IS_weight
        self.updates = 0
        """Updates of the policy so far."""
        # tensors, because torch.where would convert numbers anew in each update
        self._end, self._going_on = torch.tensor([0.0, cfg.discount_factor], device=device).unbind()
        self._skips = cfg.learn.nan_policy == 'skip'
        self._weights = (
            [p.detach() for p in target.parameters()],
            [p.detach() for part in online for p in part.parameters()],
        )
        self._states = (
            list(target.state_dict().values()),
            [value for part in online for value in part.state_dict().values()],
        )

    def copy(self) -> None:
        """Makes the target network equal to the network."""
        if self._states[0]:  # there may be no target network
            torch._foreach_copy_(*self._states)

    def follow(self, share: float) -> None:
        """Moves the weights of the target network towards those of the network, by this share of the distance."""
        if self._weights[0]:
            torch._foreach_lerp_(*self._weights, share)

    def discount(self, rows: Rows) -> torch.Tensor:
        """Returns the weight of the bootstrap value of each transition, float32 [B]: 0 after a terminal state."""
        if 'value_gamma' in rows:
            return rows['value_gamma'].masked_fill(rows['terminated'], 0.0)
        return torch.where(rows['terminated'], self._end, self._going_on)

    def with_priority(self, metrics: Metrics, error: torch.Tensor) -> Metrics:
        """Adds the absolute value of each transition's error, float32 [B], as its priority, if there are priorities."""
        if not self.has_priority:
            return metrics
        priority = error.abs()
        # rows that spoilt a skipped update should not be drawn again
        return metrics | {'priority': priority.nan_to_num(0.0, 0.0, 0.0) if self._skips else priority}

    def state_dict(self) -> dict[str, Any]:
        """Returns the weights of the target network, and the number of updates."""
        return {'target_model': self.network.state_dict(), 'updates': self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'target_model': NETWORK, 'updates': COUNT})
        with part('target_model'):
            self.network.load_state_dict(state['target_model'])
        self.updates = state['updates']
