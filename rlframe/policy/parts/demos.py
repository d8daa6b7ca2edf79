"""Demonstrations among the rows of a batch: which they are, and the margin that their actions should have."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.timestep import Array, Batch
from rlframe.policy.parts.outputs import chosen
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

IS_DEMO = 'is_demo'
"""Column that says which rows are demonstrations, bool [B]."""
HALF: dict[str, Any] = dict(replay_buffer=dict(init_share=0.5))
"""Section ``other`` of policies that draw half of each batch from demonstrations."""
MARGIN: float = option(
    0.8, range='[0, inf)', doc='by which the values of demonstrated actions should exceed those of others'
)
MARGIN_WEIGHT: float = option(1.0, range='[0, inf)', doc='weight of the loss of that margin', may_change=True)


def marks_of(data: Batch) -> Array:
    """Returns which rows are demonstrations, bool [B]; none, if no column says it."""
    return np.asarray(data[IS_DEMO]) if IS_DEMO in data else np.zeros(len(data), bool)


def large_margin(value: torch.Tensor, action: torch.Tensor, margin: float) -> torch.Tensor:
    """Returns by how much other actions come too close to the one taken, float32 [B].

    That is max_a (Q(s, a) + l(a, a_E)) - Q(s, a_E), where l is the margin, and 0 for the action taken, of the values of all
    actions [B, A].

    Source:
        Piot et al., Boosted Bellman Residual Minimization Handling Expert Demonstrations (2014), as in Hester et al. (2018), eq. 1.
    """
    taken = action.long()[:, None]
    others = torch.full_like(value, margin).scatter(1, taken, 0.0)
    return (value + others).amax(1) - chosen(value, action)
