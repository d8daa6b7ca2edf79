"""Allow-lists of env ids, arguments and wrappers that a foreign config may name because they reach nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlframe.utils.lazy import LazyModule
from rlframe.utils.reach import is_number, only_numbers, words

gym = LazyModule('gymnasium')

NAMESPACES = {'ALE': 'ale_py', 'MinAtar': 'minatar.gym', 'rlframe': 'rlframe.envs.masked_velocity'}
"""Namespaces of ids and the module that registers them when imported; MiniGrid ids have a prefix instead."""
MINIGRID = ('MiniGrid-', 'BabyAI-')

_ID = re.compile(r'(?:(?P<namespace>[\w-]+)/)?(?P<name>[\w.-]+?)(?:-v\d+)?', re.ASCII)
"""Gymnasium's grammar of an id without a module prefix."""
_GAME = re.compile(r'(?:atari|butterfly|classic|mpe|sisl)\.[a-z0-9_]+_v\d+')
"""A PettingZoo id of one of its own families."""
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
    *(f'minigrid.wrappers:{name}' for name in _MINIGRID_WRAPPERS),
))  # fmt: skip
"""Wrappers of Gymnasium and MiniGrid that open no files, windows or the like; their arguments must be numbers."""


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
    """Whether this is the id of a game that comes with PettingZoo."""
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
    if isinstance(wrapper, Mapping):
        options = {name: value for name, value in wrapper.items() if name != 'type'}
        return _is_listed(wrapper.get('type')) and only_numbers(options)
    return _is_listed(wrapper)


def _is_listed(name: Any) -> bool:
    return type(name) is str and name in WRAPPERS
