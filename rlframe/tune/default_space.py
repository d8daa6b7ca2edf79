"""Default search spaces: those that the policies state, without what the user set."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ray import tune

from rlframe.config import full_key, value_at
from rlframe.config.schema import ExperimentConfig
from rlframe.errors import ConfigError
from rlframe.registry import POLICY_REGISTRY
from rlframe.tune.space import parse_domain

if TYPE_CHECKING:
    from rlframe.policy.parts.starting import SearchSpace

DEFAULT = 'default'
"""Name of the default space on the command line and in ``make_tuner``."""
ROUNDS = 10
"""Fewest rounds of collection within the budget: larger values of n_sample are not drawn."""
SAMPLES, SCHEDULER = 16, 'asha'
"""How many samples of a default space are drawn, and which trials end early, if nobody says so."""


def default_space(
    cfg: ExperimentConfig, fixed: Collection[str] = (), name: str = DEFAULT
) -> tuple[dict[str, Any], str]:
    """Returns the default search space of a config's policy, and its source.

    Options that ``cfg`` lacks or that are None are not searched, nor are those in ``fixed``, keys that the user set, dotted
    or short.

    Raises:
        ConfigError: If there is no space of that name, or nothing is left to search.
    """
    if name != DEFAULT:
        raise ConfigError(
            'no such search space', where='param_space', got=name, expected=f'a dict, or {DEFAULT!r}'
        )
    space: SearchSpace = POLICY_REGISTRY.get(cfg.policy.type).search_space
    found = {}
    given = {full_key(key) for key in fixed}
    for key, text in space.domains.items():
        names = {f'policy.{key}', key.rpartition('.')[2]}
        if value_at(cfg.policy, key) is not None and not given & names:
            found[f'policy.{key}'] = parse_domain(text)
    if (size := found.get('policy.collect.n_sample')) is not None:
        fitting = [number for number in size.categories if number * ROUNDS <= cfg.max_env_step]
        found['policy.collect.n_sample'] = tune.choice(fitting or size.categories[:1])
    if not found:
        raise ConfigError(
            f'nothing is left of the default space of {cfg.policy.type}: {", ".join(space.domains)}',
            where='--search default',
            remedy='Leave out the options that fix it, or name options to search.',
        )
    return found, space.source
