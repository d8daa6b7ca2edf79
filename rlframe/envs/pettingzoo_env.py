"""Multi-player games from config: a PettingZoo id, ``module:name``, a class or a factory."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from rlframe.envs.base_env import EnvConfig, EnvFactory
from rlframe.envs.env_checks import are_plain_arguments, is_plain_game
from rlframe.envs.gym_env import import_named, import_needed, missing
from rlframe.errors import ConfigError, EnvError
from rlframe.registry import ENV_REGISTRY
from rlframe.utils.field import REQUIRED, option

if TYPE_CHECKING:
    import gymnasium

ENVPOOL = 'envpool'
"""Prefix of the id of a game of EnvPool."""
MAKERS = ('parallel_env', 'env')
"""Functions of a PettingZoo module that create its game, the preferred one first."""


class PettingZooConfig(EnvConfig):
    """Options of ``PettingZooEnvFactory``."""

    env_id: Any = option(
        REQUIRED,
        doc="PettingZoo id such as 'classic.tictactoe_v3', 'envpool:' and a game of EnvPool, 'module:name', a class or a"
        ' factory',
        reaches='code',
        harmless=is_plain_game,
    )
    kwargs: dict[str, Any] = option(
        {}, doc='passed on to the game', reaches='code', harmless=are_plain_arguments
    )


@ENV_REGISTRY.register('pettingzoo')
class PettingZooEnvFactory(EnvFactory):
    """Creates multi-player games."""

    cfg: PettingZooConfig

    def make(self, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        """Returns a new game.

        Raises:
            EnvError: If the id is unknown (the nearest one is named) or its constructor fails.
            MissingDependencyError: If PettingZoo, or a package that the game needs, is not installed.
            IncompatibleError: If its players have different spaces.
        """
        from rlframe.envs.player_env import player_env

        env_id = self.cfg.env_id
        kwargs = {**self.cfg.kwargs, **({} if render_mode is None else {'render_mode': render_mode})}
        maker = self._maker(env_id) if isinstance(env_id, str) else env_id
        if not callable(maker):
            raise ConfigError(
                'bad value', where='env.env_id', got=env_id, expected='an id, a class or a factory'
            )
        try:
            game = maker(**kwargs)
        except TypeError as error:
            raise EnvError(f'cannot make {env_id!r}: {error}', where='env.kwargs') from error
        except ImportError as error:
            raise missing(env_id, str(error), module='pettingzoo') from error
        return player_env(
            game, env_id if isinstance(env_id, str) else getattr(maker, '__name__', repr(maker))
        )

    def _maker(self, env_id: str) -> Callable[..., Any]:
        module, _, name = env_id.rpartition(':')
        if module == ENVPOOL:
            from rlframe.envs.pool_game import PoolGame

            return partial(PoolGame, name)
        names = (name,) if module else MAKERS
        if not module:
            import_needed('pettingzoo', env_id)
        found = import_named(module) if module else import_needed(f'pettingzoo.{env_id}', env_id)
        makers = [getattr(found, each) for each in names if hasattr(found, each)]
        if not makers:
            raise EnvError(f'{found.__name__} has no {names[0]!r}', where='env.env_id')
        maker: Callable[..., Any] = makers[0]
        return maker


def known_ids() -> list[str]:
    """Returns the ids of the games that come with the installed PettingZoo, without importing any."""
    import pettingzoo

    ids = []
    for family in pkgutil.iter_modules(pettingzoo.__path__):
        spec = importlib.util.find_spec(f'pettingzoo.{family.name}')
        places = spec.submodule_search_locations if spec is not None else None
        games = (game.name for game in pkgutil.iter_modules(places or []))
        ids += [f'{family.name}.{game}' for game in games if re.search(r'_v\d+$', game)]
    return ids
