"""The requirements on the action masks in observations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlframe.data.observation import ACTION_MASK, check_mask_values, check_maskable, has_mask, mask_parts
from rlframe.data.timestep import Array, BoolArray, EnvSpec, IntArray
from rlframe.errors import ActionMaskError, IncompatibleError


def check_mask_space(spec: EnvSpec) -> None:
    """Checks that the mask in an observation space, if there is one, has the size that the action space needs.

    Raises:
        IncompatibleError: If it does not, or the actions cannot be masked; both spaces are named.
    """
    check_maskable(spec)
    space: Any = spec.observation_space
    parts = mask_parts(spec.action_space)
    if has_mask(space) and (shape := space[ACTION_MASK].shape or ()) != (sum(parts),):
        stacked = " env.frame_stack does not stack info['action_mask']." if shape[1:] == (sum(parts),) else ''
        raise IncompatibleError(
            f"{spec.name}: obs['{ACTION_MASK}'] has the space {space[ACTION_MASK]!r}, the action space is"
            f' {spec.action_space!r}',
            where='env.env_id',
            remedy=f'It must have the shape [{sum(parts)}], one number an action.{stacked}',
        )


def check_masks(
    obs: Array, done: BoolArray, env_id: IntArray, spec: EnvSpec, place: Callable[[int], tuple[int, int]]
) -> None:
    """Checks that masks consist of 0 and 1 and allow at least one action, in each dimension if the action has several.

    Args:
        obs: Observations of envs, [n].
        done: Where the episode is over, so that a mask may allow none, [n].
        env_id: Env id of each, [n].
        spec: The common description of the envs; their observations have a mask.
        place: Returns the running episode of an env and its last env step.

    Raises:
        ActionMaskError: If one has other values, or allows none; the env, its episode and step are named.
    """
    parts, mask = mask_parts(spec.action_space), obs[ACTION_MASK]
    allowed = mask == 1
    known = (allowed == mask).all(1)
    some = np.logical_or.reduceat(allowed, np.cumsum((0, *parts[:-1])), axis=1).all(1) | done
    fine = known & some
    if fine.all():
        return
    row = int(np.flatnonzero(~fine)[0])
    episode, step = place(int(env_id[row]))
    where = f'{spec.name}: env {int(env_id[row])}, episode {episode}, step {step}'
    check_mask_values(mask[row], where)
    raise ActionMaskError(
        f'{where}: action_mask is {allowed[row].astype(int).tolist()} and allows no action of {spec.action_space!r}',
        remedy='1 means allowed, 0 forbidden. End the episode (terminated=True) where there is nothing left to do, or allow'
        ' an action that does nothing.',
    )
