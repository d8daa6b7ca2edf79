"""DI-engine's way to create envs: a function, and a config for each env."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from easydict import EasyDict

from rlframe.envs.base_env import EnvFactory
from rlframe.envs.interface import IEnvManager
from rlframe.registry import ENV_MANAGER_REGISTRY, ENV_REGISTRY
from rlframe.utils.resolved_config import to_plain


def get_vec_env_setting(
    cfg: Mapping[str, Any], collect: bool = True, eval_: bool = True
) -> tuple[Callable[..., Any], list[EasyDict] | None, list[EasyDict] | None]:
    """Returns a function that creates an env from its config, and the configs of the envs.

    Args:
        cfg: The ``env`` section of a config.
        collect: Whether to return the configs of the envs that training data comes from; None otherwise.
        eval_: Whether to return those of the envs for evaluation.
    """
    own = {name: value for name, value in to_plain(cfg).items() if name != 'manager'}
    options = ENV_REGISTRY.get_cls({'type': 'gym', **own}).resolve_config(own)

    def configs(is_train: bool, count: int) -> list[EasyDict]:
        return [EasyDict(own | {'is_train': is_train}) for _ in range(count)]

    collector = configs(True, options.collector_env_num) if collect else None
    return make_env, collector, configs(False, options.evaluator_env_num) if eval_ else None


def make_env(cfg: Mapping[str, Any]) -> Any:
    """Returns the env of a config from ``get_vec_env_setting``, with DI-engine's method ``seed``."""
    from rlframe.envs.seeded_env import SeededEnv

    return SeededEnv(_factory(cfg).create())


def _factory(cfg: Mapping[str, Any]) -> EnvFactory:
    own = {name: value for name, value in cfg.items() if name != 'is_train'}
    factory = ENV_REGISTRY.build({'type': 'gym', **own}, EasyDict(own))
    return factory.for_training() if cfg.get('is_train') else factory


def create_env_manager(manager_cfg: Mapping[str, Any], env_fn: Sequence[Callable[[], Any]]) -> IEnvManager:
    """Creates the env manager named by ``manager_cfg.type``.

    Args:
        manager_cfg: The section ``env.manager`` of a config.
        env_fn: Functions that each create an env: with ``get_vec_env_setting``, ``partial(env_fn, cfg=cfg)`` of each
            config; a manager of vector envs takes no other ones.
    """
    kind: Any = ENV_MANAGER_REGISTRY.get_cls(manager_cfg)
    cfgs = [
        each.keywords.get('cfg', *each.args)
        for each in env_fn
        if isinstance(each, partial) and each.func is make_env
    ]
    if len(cfgs) == len(env_fn) and all(cfg == cfgs[0] for cfg in cfgs):
        made: IEnvManager = kind.from_factory(_factory(cfgs[0]), len(cfgs), manager_cfg)
        return made
    made = kind(list(env_fn), manager_cfg)
    return made
