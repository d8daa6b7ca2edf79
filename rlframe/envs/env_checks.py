"""Checks of an env apart from its steps: masks, bounds, and names that reach nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlframe.data.observation import (
    ACTION_MASK,
    check_mask_values,
    check_maskable,
    has_mask,
    mask_parts,
)
from rlframe.data.timestep import Array, BoolArray, EnvSpec, IntArray
from rlframe.errors import ActionMaskError, IncompatibleError
from rlframe.utils.harmless import is_number, only_numbers, words
from rlframe.utils.lazy import LazyModule

gym = LazyModule('gymnasium')

NAMESPACES = {'ALE': 'ale_py', 'MinAtar': 'minatar.gym', 'rlframe': 'rlframe.envs.own_envs'}
"""Namespaces of ids and the module that registers them when imported; MiniGrid ids have a prefix instead."""
MINIGRID = ('MiniGrid-', 'BabyAI-')

_ID = re.compile(r'(?:(?P<namespace>[\w-]+)/)?(?P<name>[\w.-]+?)(?:-v\d+)?', re.ASCII)
"""Gymnasium's grammar of an id without a module prefix."""
_GAME = re.compile(r'(?:atari|butterfly|classic|mpe|sisl)\.[a-z0-9_]+_v\d+|envpool:[\w/-]+', re.ASCII)
"""An id of one of PettingZoo's own families, or a game of EnvPool."""
_TEXTS = {
    'render_mode': words('rgb_array|ansi'),
    'map_name': words('4x4|8x8'),
    'desc': words('[SFHG]+'),
    'obs_type': words('rgb|grayscale|ram'),
}
"""String arguments of envs, and their allowed values."""
_MINIGRID_WRAPPERS = (
    'FlatObsWrapper',
    'FullyObsWrapper',
    'ImgObsWrapper',
    'OneHotPartialObsWrapper',
    'RGBImgObsWrapper',
    'RGBImgPartialObsWrapper',
    'ViewSizeWrapper',
)
WRAPPERS = frozenset((
    'AtariPreprocessing', 'ClipAction', 'ClipReward', 'DelayObservation', 'DiscretizeAction',
    'DiscretizeObservation', 'DtypeObservation', 'FlattenObservation', 'FrameStackObservation',
    'GrayscaleObservation', 'MaxAndSkipObservation', 'NormalizeObservation', 'NormalizeReward',
    'RecordEpisodeStatistics', 'RepeatAction', 'RescaleAction', 'RescaleObservation', 'ReshapeObservation',
    'ResizeObservation', 'StickyAction', 'TimeAwareObservation', 'TimeLimit',
    *(f'minigrid.wrappers:{name}' for name in _MINIGRID_WRAPPERS), 'rlframe.envs.wrappers:TextAsBytes',
))  # fmt: skip
"""Wrappers of Gymnasium, MiniGrid and rlframe that open no files, windows or the like; their arguments must be numbers."""


def is_plain_id(env_id: Any) -> bool:
    """Whether this is the id of an env that Gymnasium knows, or of a namespace that rlframe knows, without a module."""
    if type(env_id) is not str or not (match := _ID.fullmatch(env_id)):
        return False
    namespace = match['namespace']
    if namespace in NAMESPACES or (namespace is None and env_id.startswith(MINIGRID)):
        return True
    # these import the modules named by their argument
    return env_id in gym.registry and not match['name'].startswith('GymV')


def is_plain_game(env_id: Any) -> bool:
    """Whether this is the id of a game that comes with PettingZoo or EnvPool."""
    return type(env_id) is str and _GAME.fullmatch(env_id) is not None


def are_plain_arguments(kwargs: Any) -> bool:
    """Whether arguments of an env are numbers or listed strings."""
    return isinstance(kwargs, Mapping) and all(
        type(name) is str and _TEXTS.get(name, is_number)(value) for name, value in kwargs.items()
    )


def are_plain_wrappers(wrappers: Any) -> bool:
    """Whether all wrappers are listed in ``WRAPPERS``."""
    return type(wrappers) in (list, tuple) and all(map(_is_plain_wrapper, wrappers))


def _is_plain_wrapper(wrapper: Any) -> bool:
    section = wrapper if isinstance(wrapper, Mapping) else {'type': wrapper}
    kind = section.get('type')
    options = {name: value for name, value in section.items() if name != 'type'}
    return type(kind) is str and kind in WRAPPERS and only_numbers(options)


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
    parts = mask_parts(spec.action_space)
    mask = obs[ACTION_MASK]
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
