"""Worlds: the packages that bring envs (Gymnasium and its plug-ins, EnvPool, PettingZoo), and the installed ids."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from rlframe.envs import pettingzoo_env, pool_manager
from rlframe.envs.env_checks import MINIGRID, NAMESPACES
from rlframe.envs.gym_env import MODULES, GymEnvFactory, import_namespace, is_installed, module_of
from rlframe.envs.pettingzoo_env import ENVPOOL, PettingZooEnvFactory
from rlframe.errors import EnvError, MissingDependencyError
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import gymnasium as gym

    from rlframe.envs.base_env import EnvFactory
else:
    gym = LazyModule('gymnasium')

PETTINGZOO, AGENTS, TEAM, OVERCOOKED = 'pettingzoo', 'agents', 'team', 'overcooked'
"""Prefixes of ids, as ``ENVPOOL`` in ``envpool:Hopper-v5``; other ones are names of modules."""
TEAM_ENV = 'rlframe.envs.team_env:Team'
"""Id of the env that is a team."""
FOR_AGENTS = ('lbforaging', 'rware')
"""Modules of ``MODULES`` whose envs have several agents."""
SHAPING = dict(shaping=dict(type='linear', start=1.0, end=0.0, decay=1_000_000))
"""Schedule of the additional rewards for cooks: without them, soup is not found."""


class World(NamedTuple):
    """The package that an env comes from, in the words of a config."""

    env_id: Any
    """Its id without the name of its world, or a class or a factory."""
    env: str = 'gym'
    """Name of its factory, ``env.type``."""
    manager: str | None = None
    """Name of the manager that it needs, ``env_manager.type``; None: any."""
    options: Mapping[str, Any] = {}
    """Options of the section ``env`` that it needs."""

    def with_options(self, section: Mapping[str, Any]) -> dict[str, Any]:
        """Returns options of the section ``env`` with the options that this world needs; ``kwargs`` are merged."""
        found = {**self.options, **section}
        if 'kwargs' in self.options and isinstance(given := section.get('kwargs', {}), Mapping):
            found['kwargs'] = {**self.options['kwargs'], **given}
        return found

    def factory(self, section: Mapping[str, Any]) -> EnvFactory:
        """Returns the factory of the env, which knows its spaces.

        Args:
            section: Options of the section ``env`` beside ``env_id``.
        """
        cls = PettingZooEnvFactory if self.env == PETTINGZOO else GymEnvFactory
        factory: EnvFactory = cls({**self.with_options(section), 'env_id': self.env_id})
        if self.manager == 'env_pool':
            pool_manager.EnvPoolManager.describe(factory)
        return factory


def find_world(env: Any, manager: str | None = None) -> World:
    """Finds out where an env comes from.

    Args:
        env: An id with or without the name of its world (``envpool:ID``, ``pettingzoo:ID``, ``module:ID``,
            ``module:Class``; ``agents:MODULE`` of a game whose agents are rows, ``team:MODULE`` of one whose steps are rows;
            ``overcooked:KITCHEN``), a class or a factory. An id alone is looked up in
            Gymnasium first, then in the packages that are known to add such ids, then in EnvPool, then in PettingZoo.
        manager: Name of the env manager that the user has chosen; None: the default.

    Returns:
        Its world; if no package has the id, Gymnasium, whose error names the nearest id or the package to install.
    """
    if not isinstance(env, str):
        return World(env, manager=manager)
    world, _, name = env.partition(':')
    if world == ENVPOOL and name:
        return _of_pool(name)
    if world == PETTINGZOO and name:
        return World(name, PETTINGZOO, manager)
    if world == AGENTS and name:
        return _agents(name)
    if world == TEAM and name:
        return _team(name, manager)
    if world == OVERCOOKED and name:
        kitchen = {'game': 'rlframe.envs.overcooked_game', 'layout': name}
        return World(TEAM_ENV, manager=manager, options={'kwargs': kitchen, 'schedule': SHAPING})
    module = module_of(env)
    if module in FOR_AGENTS and is_installed(module):
        return _agents(f'{module}:{env}')
    if manager == 'env_pool' or ':' in env or _is_registered(env):
        return World(env, manager=manager)
    if module and is_installed(module):
        return World(f'{module}:{env}', manager=manager)
    return _looked_up(env, manager)


def _looked_up(env: str, manager: str | None) -> World:
    """Returns the world that has an id or, so that its error names the right one, another version of it."""
    for read in (str, _without_version):
        name = read(env)
        if read is not str and name in map(read, gym.registry):
            break
        if manager is None and name in map(read, _pool_ids()):
            return _of_pool(env)
        if name in map(read, _games()):
            return World(env, PETTINGZOO, manager)
    return World(env, manager=manager)


def _without_version(env_id: str) -> str:
    return re.sub(r'[-_]v\d+$', '', env_id)


def _of_pool(task_id: str) -> World:
    """Returns a task of EnvPool: a game if its players move in turn."""
    with suppress(EnvError, MissingDependencyError):  # who makes the env raises them
        if pool_manager.moves_in_turn(pool_manager.task_spec(task_id, {})):
            return World(f'{ENVPOOL}:{task_id}', PETTINGZOO)
    return World(task_id, manager='env_pool')


def _agents(game: str) -> World:
    """Returns a game in which one policy acts for all agents, with a number of rows that they divide."""
    from rlframe.envs.agents import make_game

    count = len(make_game(game, {}).possible_agents)
    rows = {
        name: max(round(least / count), 1) * count
        for name, least in (('collector_env_num', 8), ('evaluator_env_num', 10), ('n_evaluator_episode', 20))
    }
    return World(
        'rlframe.envs.agents:Agents', manager='gym_vector', options={'kwargs': {'game': game}, **rows}
    )


def _team(game: str, manager: str | None) -> World:
    """Returns a game whose agents are a team; ids of packages that are known to have teams need no module."""
    module = module_of(game)
    known = f'{module}:{game}' if module in FOR_AGENTS else game
    return World(TEAM_ENV, manager=manager, options={'kwargs': {'game': known}})


def _is_registered(env_id: str) -> bool:
    """Whether Gymnasium knows an id, also by a package that registers its ids when it is imported."""
    try:
        return env_id in gym.registry or import_namespace(env_id)
    except MissingDependencyError:
        return env_id not in _pool_ids()  # then the error says what to install


def _pool_ids() -> Sequence[str]:
    """Returns the ids of EnvPool, if it is installed."""
    return pool_manager.task_ids() if is_installed('envpool') else ()


def _games() -> Sequence[str]:
    """Returns the ids of PettingZoo, if it is installed."""
    return pettingzoo_env.known_ids() if is_installed('pettingzoo') else ()


class Family(NamedTuple):
    """Envs of one package."""

    name: str
    prefix: str
    """Prefix of an id: nothing, ``envpool:``, ``pettingzoo:``, ``overcooked:``, or a module that registers it."""
    ids: list[str]


def installed() -> list[Family]:
    """Returns the ids of all packages that are installed, by family; ids of Gymnasium that newer versions replace are left out."""
    for start in (*(f'{name}/' for name in NAMESPACES), *MINIGRID):
        with suppress(MissingDependencyError, ImportError):
            import_namespace(start)
    prefixes = dict.fromkeys(gym.registry, '')
    for module in MODULES:
        with suppress(ImportError):
            importlib.import_module(module)
        for name in gym.registry.keys() - prefixes.keys():
            prefixes[name] = '' if module_of(name) else f'{module}:'
    found: dict[tuple[str, str], list[str]] = {}
    older = _replaced(gym.registry)
    for name, env in gym.registry.items():
        if env.entry_point is not None and name not in older:
            found.setdefault((_family(env.entry_point), prefixes[name]), []).append(name)
    for task in _pool_ids():
        found.setdefault((f'EnvPool {pool_manager.family_of(task)}', f'{ENVPOOL}:'), []).append(task)
    for game in _games():
        found.setdefault((f'PettingZoo {game.partition(".")[0]}', f'{PETTINGZOO}:'), []).append(game)
    if is_installed(OVERCOOKED):
        from rlframe.envs.overcooked_game import layouts

        found[OVERCOOKED, f'{OVERCOOKED}:'] = layouts()
    return [Family(name, prefix, sorted(ids)) for (name, prefix), ids in found.items()]


def _family(entry_point: Any) -> str:
    """Returns the name of the family of an env that Gymnasium has registered: the package that its class is from."""
    module = entry_point if isinstance(entry_point, str) else getattr(entry_point, '__module__', '')
    first, *below = module.partition(':')[0].split('.')
    return f'Gymnasium {below[1]}' if first == 'gymnasium' and len(below) > 1 else first


def _replaced(registry: Mapping[str, Any]) -> set[str]:
    """Returns the ids with a higher registered version."""
    newest: dict[tuple[str | None, str], int] = {}
    for env in registry.values():
        key = env.namespace, env.name
        newest[key] = max(newest.get(key, 0), env.version or 0)
    return {name for name, env in registry.items() if (env.version or 0) < newest[env.namespace, env.name]}
