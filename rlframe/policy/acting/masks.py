"""Action masks: which actions an observation allows, and choosing among those only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.observation import ACTION_MASK
from rlframe.data.timestep import Array, BoolArray, FloatArray, IntArray
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


IMPOSSIBLE = -1e8
"""Logit of a forbidden action: finite, as its probability 0 times an infinite logarithm would make entropies NaN."""


def mask_of(obs: Any) -> Any:
    """Returns the allowed actions, bool [B, A], or None if the observation has no mask.

    Args:
        obs: Observations as tensors, or as an array; the mask is a tensor or an array accordingly. The columns of a
            MultiDiscrete space's mask are those of its dimensions one after the other.
    """
    names = obs if isinstance(obs, dict) else getattr(getattr(obs, 'dtype', None), 'names', None) or ()
    return obs[ACTION_MASK] != 0 if ACTION_MASK in names else None


def masked(value: torch.Tensor, mask: torch.Tensor | None, fill: float = -float('inf')) -> torch.Tensor:
    """Returns values or logits [B, A] with those of forbidden actions put to ``fill``.

    Args:
        value: float32 [B, A].
        mask: True where an action is allowed, bool [B, A]; None allows all. A row that allows none, as at the end of an
            episode, is not changed, so that no result is NaN.
        fill: Value for actions that are not allowed.
    """
    if mask is None:
        return value
    return value.masked_fill(~mask & mask.any(1, keepdim=True), fill)


def random_allowed(mask: BoolArray, uniform: FloatArray) -> IntArray:
    """Returns an allowed action for each row, each as likely as any other.

    Args:
        mask: True where an action is allowed, [n, A]; at least one in each row.
        uniform: Random numbers in [0, 1), [n].

    Returns:
        Counted from 0, [n].
    """
    count = mask.sum(1)
    nth = np.minimum((uniform * count).astype(np.int64), count - 1)
    chosen: Array = (mask.cumsum(1) > nth[:, None]).argmax(1)
    return chosen
