"""Parts of a run that only the program which started it has: a network, or classes of its main script."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from rlframe.config.backends import ROLES
from rlframe.config.schema import hook_parts
from rlframe.config.tree import components_of, section_at
from rlframe.config.writer import is_importable
from rlframe.errors import ConfigError, ConfigWarning, RegistryError
from rlframe.registry import BACKEND_REGISTRY, Registry
from rlframe.utils.resolved_config import ResolvedConfig, raw_items


def warn_of_own_parts(cfg: ResolvedConfig, model: Any = None) -> None:
    """Warns of parts that the command line and other programs cannot create when they score the run later.

    Args:
        cfg: The config.
        model: The user's network, if any.
    """
    for text in own_parts(cfg, model):
        warnings.warn(text, ConfigWarning, stacklevel=3)


def own_parts(cfg: ResolvedConfig, model: Any = None) -> list[str]:
    """Returns a warning for each part that only this program has, with the remedy."""
    found = []
    if model is not None:
        found.append(
            'the network is an object of this program, so eval, export and --resume cannot create it. Register its'
            ' class (MODEL_REGISTRY) in a module named by import_names and set policy.model.type, or pass it again:'
            ' model= of rlframe.open_run() and export_policy()'
        )
    for key, value in _unnamed(cfg, ''):
        again = (
            ', or pass it again: env= of rlframe.open_run() and export_policy()'
            if key == 'env.env_id'
            else ''
        )
        found.append(
            f'{key} is {getattr(value, "__qualname__", repr(value))}, which no module defines under that name, so eval,'
            f" export and --resume cannot find it. Move it to a module and name it 'module:Name'{again}"
        )
    parts = (*components_of(cfg), *hook_parts(cfg))
    chosen = [(part.registry, part.path, 'type') for part in parts]
    chosen += [(BACKEND_REGISTRY, path, 'backend') for path in ROLES.values()]
    for registry, path, option in chosen:
        name = dict(raw_items(section_at(cfg, path))).get(option)
        if isinstance(name, str) and _module_of(registry, name) == '__main__':
            found.append(
                f'{".".join(path)}.{option}={name!r} is registered by the main script, so eval, export and --resume cannot'
                ' find it. Move it to a module and list the module in import_names'
            )
    return found


def _module_of(registry: Registry[Any], name: str) -> str:
    try:
        return registry.get(name).__module__
    except RegistryError:
        return ''


def _unnamed(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Yields the keys of classes and functions that cannot be imported, with the values."""
    if isinstance(value, Mapping):
        for name, below in raw_items(value):
            yield from _unnamed(below, f'{key}.{name}' if key else str(name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _unnamed(item, key)
    elif callable(value) and not is_importable(value):
        yield key, value


def check_env_is_named(data: Mapping[str, Any], where: str) -> None:
    """Checks that the env of a saved config can be created by its name.

    Args:
        data: The config pair.
        where: The checkpoint or run.

    Raises:
        ConfigError: If it is a class or a function that only the program that trained has.
    """
    env = section_at(data['main_config'], ('env',)).get('env_id')
    if isinstance(env, str) and env.startswith('<'):  # as the writer writes what has no name
        raise ConfigError(
            f'the env of this run, {env}, exists only in the program that trained it',
            where=where,
            remedy='Pass it there: rlframe.open_run(folder, env=...). Or move it to a module, name it as'
            " 'module:Name', and train again.",
        )


def with_env(data: Mapping[str, Any], env: Any) -> dict[str, Any]:
    """Returns a config pair with another ``env.env_id``: an id, a class or a function."""
    main = copy.deepcopy(data['main_config'])
    main['env']['env_id'] = env
    return {**data, 'main_config': main}
