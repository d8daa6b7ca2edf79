"""The requirements on the action masks in observations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlframe.data.observation import ACTION_MASK, has_mask, mask_parts
from rlframe.data.timestep import Array, EnvSpec, IntArray
from rlframe.errors import ActionMaskError, IncompatibleError


def check_mask_space(spec: EnvSpec) -> None:
    """Checks that the mask in an observation space, if there is one, has the size that the action space needs.

    Raises:
        IncompatibleError: If it does not; both are named.
    """
    space: Any = spec.observation_space
    parts = mask_parts(spec.action_space)
    if has_mask(space) and parts and space[ACTION_MASK].shape != (sum(parts),):
        raise IncompatibleError(
            f"{spec.name}: obs['{ACTION_MASK}'] has the space {space[ACTION_MASK]!r}, the action space is"
            f' {spec.action_space!r}',
            where='env.env_id',
            remedy=f'It must have the shape [{sum(parts)}], one number an action.',
        )


def check_masks(obs: Array, env_id: IntArray, spec: EnvSpec, place: Callable[[int], tuple[int, int]]) -> None:
    """Checks that masks allow at least one action, in each dimension if the action has several.

    Args:
        obs: Observations of envs whose episodes continue, [n].
        env_id: Env id of each, [n].
        spec: The common description of the envs; their observations have a mask.
        place: Returns the running episode of an env and its last env step.

    Raises:
        ActionMaskError: If one allows none; the env, its episode and step are named.
    """
    parts = mask_parts(spec.action_space)
    if not parts:
        return
    mask = obs[ACTION_MASK] != 0
    some = np.logical_or.reduceat(mask, np.cumsum((0, *parts[:-1])), axis=1).all(1)
    if some.all():
        return
    row = int(np.flatnonzero(~some)[0])
    episode, step = place(int(env_id[row]))
    raise ActionMaskError(
        f'{spec.name}: env {int(env_id[row])}, episode {episode}, step {step}: action_mask is'
        f' {mask[row].astype(int).tolist()} and allows no action of {spec.action_space!r}',
        remedy='End the episode (terminated=True) where there is nothing left to do, or allow an action that does nothing.',
    )
