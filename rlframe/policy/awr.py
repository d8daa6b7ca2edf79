"""Advantage-weighted regression: the body of policies whose actor imitates recorded actions, good ones more."""

from __future__ import annotations

import math
from typing import Any

from rlframe.policy.dqn import TDConfig
from rlframe.policy.parts.options import (
    BATCH_SIZE,
    HIDDEN_SIZES,
    ImageModel,
    Schedule,
    grad_clip_norm,
    learning_rate,
)
from rlframe.policy.parts.recorded import FROM_DATA
from rlframe.policy.parts.sections import LearnConfig
from rlframe.policy.parts.starting import COMMON
from rlframe.policy.qac import QACPolicy, QACUpdate
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class AWRModel(ImageModel):
    """Section ``model`` of advantage-weighted regression."""

    encoder_hidden_size_list: list[int] = option(HIDDEN_SIZES.having([256, 256]))
    n_critic: int = option(2, range='[1, inf)', unit='critics', doc='number of critics')


class AWRLearn(LearnConfig):
    """Section ``learn`` of advantage-weighted regression."""

    batch_size: int = option(BATCH_SIZE.having(256))
    learning_rate: Schedule = option(learning_rate(3e-4, 'Adam', over='env steps that were read'))
    target_theta: float = option(
        0.005, range='(0, 1]', doc='share of a soft update of the target networks', may_change=True
    )
    grad_clip_norm: float | None = option(grad_clip_norm())


class AWRConfig(TDConfig):
    """Options of advantage-weighted regression."""

    model: AWRModel
    learn: AWRLearn


class AWRUpdate(QACUpdate):
    """Body of updates of critics, and of an actor that imitates recorded actions by their advantages.

    Actor and critics have no weights in common, and none of the losses looks at what another one changes, so that one step
    of the optimizer minimises their sum.
    """

    losses = {'loss': 'model'}

    @property
    def turn(self) -> bool:
        return True

    def likelihood(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        """Returns the log density of recorded actions by the actor, float32 [B]."""
        mean, log_std = self.model.actor(obs)
        error = (action - mean) * torch.exp(-log_std)
        return (-0.5 * error.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(1)


class AWRPolicy(QACPolicy):
    """Body of policies whose actor imitates recorded actions by their advantages.

    The actor is a Gaussian whose mean is in [-1, 1], and whose standard deviation does not depend on the observation.

    Source:
        Peng et al., Advantage-Weighted Regression (2019), eq. 7.
    """

    default_network = 'normal_qac'
    config: dict[str, Any] = dict(collect=FROM_DATA)
    toy: dict[str, Any] = dict(discount_factor=0.5, learn=dict(batch_size=64, learning_rate=3e-3))
    search_space = COMMON

    def explore(self, obs: torch.Tensor, noise: torch.Tensor, **settings: Any) -> torch.Tensor:
        mean, log_std = self.acted(obs)
        return torch.addcmul(mean, log_std.exp(), noise).clamp_(-1, 1)

    def _best_of(self, output: Any) -> torch.Tensor:
        best: torch.Tensor = output[0]
        return best
