"""Saves and restores the state of an env in this process, exactly or not at all.

The objects that an env and its wrappers reference, directly or indirectly, are written as a numbered graph, so shared
references stay shared: numbers, text, containers, arrays, random generators, spaces, and objects of the env's own code.
An env or wrapper with ``get_state()`` and ``set_state(state)`` is asked for its state instead. What cannot change, such as
a class or a function without variables of its own, is found again at its place in an env that was created in the same
way. Anything else is refused with its place and type, and nothing is saved.

A state may come from a file of somebody else: it imports no module, calls nothing that it names, and creates objects of the
env's own code only.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from rlframe.checkpoint.tree import BAD_TREE
from rlframe.envs.state_objects import Classes, is_space, type_name
from rlframe.envs.state_objects import MismatchError as MismatchError
from rlframe.envs.state_read import Reader
from rlframe.envs.state_write import Born, RefusedError, Writer
from rlframe.errors import CheckpointStateError
from rlframe.utils.attributes import attributes_of

if TYPE_CHECKING:
    import gymnasium

SHARED = (np.random.Generator, np.random.RandomState, Random)
"""Types of class attributes that steps change, as they change spaces; all envs of the class share them."""


class Refusal(NamedTuple):
    """The refusal to save the state of an env."""

    reason: str
    """Path in the env, type, and reason."""


class StateKeeper(Protocol):
    """Captures and restores the state of an env, as ``EnvState`` does."""

    def capture(self) -> dict[str, Any] | Refusal:
        """Returns the state as plain data, or the reason why it cannot be saved."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a state that ``capture`` returned."""


class EnvState:
    """Captures and restores the state of an env.

    Create it right after the env: objects that cannot be saved, but do not change either, are found by their path.

    Args:
        env: An env or a vector env, with its wrappers.
    """

    def __init__(self, env: gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
        self._env: Any = env
        self._layers = layers_of(env)
        self._classes = Classes([*self._layers, *_members(self._layers[-1])])
        kinds = dict.fromkeys(kind for layer in self._layers for kind in type(layer).__mro__)
        self._shared = [(kind, name) for kind in kinds for name in _shared_by_all(kind)]
        self._born = Born()
        Writer(self._classes, self._born, is_survey=True).write(self._roots())

    def capture(self) -> dict[str, Any] | Refusal:
        """Returns the state as plain data, or the reason why it cannot be saved."""
        try:
            return Writer(self._classes, self._born).write(self._roots())
        except RefusedError as error:
            kind = type_name(error.kind).replace(':', '.').removeprefix('builtins.').lstrip('.')
            return Refusal(f'{self._shown(error.path)} ({kind}) {error.why}')
        except RecursionError:
            return Refusal(f'{type(self._layers[-1]).__name__} has tuples that are nested too deeply')

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a state that ``capture`` returned for an env that was created in the same way.

        Raises:
            MismatchError: If the state does not fit the env, which is then unchanged.
            CheckpointStateError: If it is not a state.
        """
        try:
            reader = Reader(state, self._classes, self._born)
            roots = self._roots()
            if reader.roots.keys() != roots.keys():
                raise MismatchError(f'its spaces are {[*roots]}, and were {[*reader.roots]}')
            for name, value in roots.items():
                if reader.roots[name] is not value:
                    raise MismatchError(f'{name} is of another class than before')
            reader.fill()
        except (*BAD_TREE, MemoryError) as error:
            raise CheckpointStateError(f'this is not the state of an env: {error!r}') from error

    def _roots(self) -> dict[str, Any]:
        """Returns the roots of the state: the env with its layers, and the shared attributes of its classes."""
        roots = {'env' + '.env' * depth: layer for depth, layer in enumerate(self._layers)}
        for kind, name in self._shared:
            roots[f'{kind.__qualname__}.{name}'] = vars(kind)[name]
        for name in ('action_space', 'observation_space'):
            if (space := getattr(self._env, name, None)) is not None:
                roots[name] = space
        return roots

    def _shown(self, path: str) -> str:
        """Returns a path in the user's terms: starting at the class of its layer."""
        depth = 0
        while depth < len(self._layers) - 1 and path.startswith('env' + '.env' * (depth + 1)):
            depth += 1
        prefix = 'env' + '.env' * depth
        return type(self._layers[depth]).__name__ + path[len(prefix) :] if path.startswith(prefix) else path


def capture_info(info: Mapping[str, Any]) -> Any:
    """Returns the info of a step as plain data, or ``None`` if that is impossible."""
    try:
        return Writer().write({'info': dict(info)})
    except RefusedError:
        return None


def restore_info(state: Any) -> dict[str, Any]:
    """Restores an info that ``capture_info`` converted."""
    reader = Reader(state)
    reader.fill()
    info: dict[str, Any] = reader.roots['info']
    return info


def layers_of(env: Any) -> list[Any]:
    """Returns an env's wrappers, the outermost first, and the env."""
    layers: list[Any] = [env]
    while 'env' in (attributes_of(layers[-1]) or {}):
        layers.append(layers[-1].env)
    return layers


def _members(env: Any) -> list[Any]:
    """Returns the envs of a vector env, with their wrappers."""
    envs = (attributes_of(env) or {}).get('envs')
    return [layer for member in envs for layer in layers_of(member)] if isinstance(envs, list | tuple) else []


def _shared_by_all(kind: type) -> list[str]:
    """Returns the names of a class's attributes that are spaces or generators, which all its objects share."""
    return [name for name, value in vars(kind).items() if is_space(value) or isinstance(value, SHARED)]
