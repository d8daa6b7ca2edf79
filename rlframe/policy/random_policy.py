"""Acting at random, as a policy does before it has learnt anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.batch import Batch
from rlframe.data.observation import has_mask, mask_parts
from rlframe.data.timestep import Array, BoolArray, EnvSpec, IntArray
from rlframe.policy.base_policy import CollectMode
from rlframe.policy.masks import mask_of, random_allowed
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import gymnasium
else:
    gymnasium = LazyModule('gymnasium')


def random_collect_mode(
    mode: CollectMode, spec: EnvSpec, rng: np.random.Generator, is_recurrent: bool = False
) -> CollectMode:
    """Returns a policy's collect face with its actions drawn uniformly from the action space, or from what a mask allows.

    Args:
        mode: The face whose transitions are to be recorded.
        spec: Spaces of the env.
        rng: Generator of the actions.
        is_recurrent: Whether the policy has to see each step, and to say what it remembers of those before.
    """
    space: Any = spec.action_space
    parts = mask_parts(space) if has_mask(spec.observation_space) else ()

    def forward(obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        if parts:
            action = _allowed(mask_of(obs), parts, rng).reshape(-1, *space.shape) + space.start
        elif isinstance(space, gymnasium.spaces.Discrete):
            action = rng.integers(space.n, size=len(env_id)) + space.start
        else:
            space.seed(int(rng.integers(2**31)))
            action = np.stack([space.sample() for _ in env_id])
        said = dict(mode.forward(obs, env_id).items()) if is_recurrent else {}
        return Batch.unchecked({**said, 'action': action}, len(env_id))

    return mode._replace(forward=forward)


def _allowed(mask: BoolArray, parts: Sequence[int], rng: np.random.Generator) -> IntArray:
    """Returns an allowed choice in each dimension of an action, counted from 0, [n, dimensions]."""
    masks = np.split(mask, np.cumsum(parts)[:-1], axis=1)
    return np.stack([random_allowed(part, rng.random(len(mask))) for part in masks], 1)
