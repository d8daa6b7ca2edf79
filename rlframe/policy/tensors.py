"""Tensors of observations, which are a dict of tensors where an observation has parts."""

from __future__ import annotations

from typing import Any


def take(obs: Any, index: Any) -> Any:
    """Returns some rows of an observation tensor, or of a nested dict of such.

    Args:
        obs: Tensor [B, ...], or dict of such.
        index: Slice, mask or integers, as for one tensor.
    """
    if isinstance(obs, dict):
        return {name: take(part, index) for name, part in obs.items()}
    return obs[index]
