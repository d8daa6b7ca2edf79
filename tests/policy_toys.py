"""What tests of updates learn from: random transitions, and target networks that differ from the online ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rlframe.data import Batch


def random_rows(size: int = 6, seed: int = 0, actions: int | None = 4, **more: Any) -> Batch:
    """Returns transitions with observations of three numbers, some of which end an episode.

    Args:
        size: Number of rows.
        seed: Of all numbers.
        actions: Number of actions; None: an action is two numbers in [-1, 1].
        more: Further columns.
    """
    rng = np.random.default_rng(seed)
    return Batch(
        obs=rng.normal(size=(size, 3)).astype(np.float32),
        next_obs=rng.normal(size=(size, 3)).astype(np.float32),
        action=rng.integers(actions, size=size).astype(np.uint8)
        if actions
        else rng.uniform(-1, 1, (size, 2)).astype(np.float32),
        reward=rng.normal(size=size).astype(np.float32),
        terminated=np.arange(size) % 3 == 0,
        truncated=np.arange(size) % 3 == 1,
        **more,
    )


def apart(policy: Any, distance: float = 1.0) -> Any:
    """Moves the target networks of a policy away from the online ones, and returns the policy."""
    with torch.no_grad():
        for parameter in policy.target_model.parameters():
            parameter.add_(distance * torch.randn_like(parameter))
    return policy
