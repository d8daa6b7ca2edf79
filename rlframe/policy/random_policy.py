"""Acting at random, as a policy does before it has learnt anything."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.batch import Batch
from rlframe.data.timestep import Array, EnvSpec, IntArray
from rlframe.policy.base_policy import CollectMode


def random_collect_mode(
    mode: CollectMode, spec: EnvSpec, rng: np.random.Generator, is_recurrent: bool = False
) -> CollectMode:
    """Returns a policy's collect face with its actions drawn uniformly from the action space.

    Args:
        mode: The face whose transitions are to be recorded.
        spec: Spaces of the env.
        rng: Generator of the actions.
        is_recurrent: Whether the policy has to see each step, and to say what it remembers of those before.
    """
    space = spec.action_space

    def forward(obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        if hasattr(space, 'n'):
            action = rng.integers(space.n, size=len(env_id)) + space.start
        else:
            space.seed(int(rng.integers(2**31)))
            action = np.stack([space.sample() for _ in env_id])
        said = dict(mode.forward(obs, env_id).items()) if is_recurrent else {}
        return Batch.unchecked({**said, 'action': action}, len(env_id))

    return mode._replace(forward=forward)
