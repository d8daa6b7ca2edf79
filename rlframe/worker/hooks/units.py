"""Counts the units of a network that are dead: those behind a ReLU that output 0 for every observation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.timestep import Array
from rlframe.utils.lazy import LazyModule
from rlframe.utils.seed import preserved_rng

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


def dead_share(face: Any, obs: Array) -> float:
    """Returns the share of dead units of the layer that has most of them; NaN if the network has no ReLUs.

    Args:
        face: Eval face of a policy that acts without a memory and without drawing numbers.
        obs: Observations, [n, ...].
    """
    from torch.overrides import TorchFunctionMode

    layers: list[torch.Tensor] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if getattr(func, '__name__', '') in ('relu', 'relu_') and result.dim() > 1:
                is_dead = (result <= 0).all(0)  # [units, ...]
                layers.append(is_dead.flatten(1).all(1) if is_dead.dim() > 1 else is_dead)
            return result

    with preserved_rng(), Watch():
        face.forward(obs, np.arange(len(obs)))
    return max((float(layer.float().mean()) for layer in layers), default=float('nan'))
