"""Acting at random, as a policy does before it has learnt anything."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.batch import Batch
from rlframe.data.timestep import Array, EnvSpec, IntArray
from rlframe.policy.base_policy import CollectMode, EvalMode
from rlframe.utils.seed import component_rng


def random_collect_mode(mode: CollectMode, spec: EnvSpec, rng: np.random.Generator) -> CollectMode:
    """Returns a policy's collect face with its actions drawn uniformly from the action space, legal ones where there is a mask.

    Args:
        mode: The face whose transitions are to be recorded.
        spec: Spaces of the env.
        rng: Generator of the actions.
    """
    space = spec.action_space

    def forward(obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        return Batch.unchecked({'action': legal_actions(obs, space, rng, len(env_id))}, len(env_id))

    return mode._replace(forward=forward)


def random_opponent(spec: EnvSpec, seed: int, rank: int = 0) -> EvalMode:
    """Returns a player who chooses among the legal actions, those of ``action_mask`` where there is one, uniformly.

    Whenever all of its episodes are reset it begins anew, so that it plays the same in every evaluation.

    Args:
        spec: Spaces of one player.
        seed: Seed of the experiment.
        rank: Which of several opponents it is.
    """
    space = spec.action_space
    rng = component_rng(seed, 'opponent', rank)

    def forward(obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        return Batch.unchecked({'action': legal_actions(obs, space, rng, len(env_id))}, len(env_id))

    def reset(env_id: IntArray | None) -> None:
        if env_id is None:
            rng.bit_generator.state = component_rng(seed, 'opponent', rank).bit_generator.state

    def get_attribute(name: str) -> Any:
        raise AttributeError(f'a random opponent has no attribute {name!r}')

    def ignore(*given: Any) -> None: ...

    return EvalMode(forward, reset, get_attribute, ignore, dict, ignore)


def legal_actions(obs: Array, space: Any, rng: np.random.Generator, count: int) -> Array:
    """Draws actions [n] uniformly, of a discrete space among those that ``obs['action_mask']`` allows, if it is there."""
    if not hasattr(space, 'n'):
        space.seed(int(rng.integers(2**31)))
        return np.stack([space.sample() for _ in range(count)])
    if 'action_mask' not in (obs.dtype.names or ()):
        return rng.integers(space.n, size=count) + space.start
    chance = rng.random((count, int(space.n)))
    return np.where(obs['action_mask'] > 0, chance, -1.0).argmax(1) + space.start
