"""``rlframe check-config``: all mistakes of a config, or a description of its run. It creates no folder and no process."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlframe import config
from rlframe.config.schema import find_schema
from rlframe.config.sections import ExperimentConfig
from rlframe.errors import ConfigError, ConfigErrors, ConfigWarning
from rlframe.registry import import_modules
from rlframe.run.budgets import BUDGETS, set_budgets
from rlframe.tools.layout import space_text
from rlframe.tools.options import flat_fields, plain
from rlframe.utils.field import to_plain

if TYPE_CHECKING:
    from rlframe.data.timestep import EnvSpec

SHOWN_ANYWAY = (
    'type', 'import_names', 'env_id', 'exp_name', 'max_env_step', 'max_train_iter', 'stop_value', 'replay_buffer_size',
)  # fmt: skip
"""Last parts of options that are described in other words."""


def check_config(given: Any, overrides: Sequence[str] = (), with_env: bool = True) -> dict[str, Any]:
    """Compiles a config and describes its run.

    Args:
        given: The path or name of a config, or a pair.
        overrides: ``key=value`` texts that change it.
        with_env: Whether to create an env, whose spaces tell whether the policy fits and how large networks and replay
            buffer become.

    Returns:
        The description, as JSON-able data.

    Raises:
        ConfigError: If it has a mistake.
        ConfigErrors: If it has several.
    """
    name = str(given) if isinstance(given, str) else 'the config'
    main, create = config.config_pair(given)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always', ConfigWarning)
            cfg = config.compile_config(main, create, overrides=overrides)
    except ConfigErrors as error:
        error.where = name
        raise
    found = {
        'config': name,
        'warnings': [str(one.message) for one in caught if issubclass(one.category, ConfigWarning)],
        'mode': 'parallel' if 'parallel' in cfg else 'serial',
        'policy': cfg.policy.type,
        'env': _env_name(cfg),
        'env_num': cfg.env.get('collector_env_num'),
        'env_manager': cfg.env.manager.type,
        'collector': cfg.policy.collect.collector.type,
        'backend': cfg.policy.collect.collector.get('backend', 'local'),
        'budget': _budget(cfg),
        'buffer': _buffer(cfg),
        'changed': _changed(cfg),
    }
    return found | (_of_env(cfg, name) if with_env else {})


def mistakes_of(error: ConfigError) -> list[dict[str, Any]]:
    """Returns the mistakes that an error holds, as JSON-able data."""
    return [
        {
            'where': e.where,
            'message': e.message,
            'got': plain(e.got),
            'expected': e.expected,
            'remedy': e.remedy,
        }
        for e in (error.errors if isinstance(error, ConfigErrors) else [error])
    ]


def _env_name(cfg: ExperimentConfig) -> str:
    from rlframe.pipeline.build import env_name

    return env_name(cfg.env)


def _budget(cfg: ExperimentConfig) -> dict[str, Any]:
    """Returns the limits that end the run; None for those that are not set."""
    given = set_budgets(cfg)
    limits = {key: int(cfg[key]) if key in given else None for key in BUDGETS}
    return {**limits, 'stop_value': plain(cfg.env.get('stop_value'))}


def _buffer(cfg: ExperimentConfig) -> dict[str, Any] | None:
    section = cfg.policy.other.replay_buffer
    if section is None:
        return None
    return {'type': section['type'], 'size': section.get('replay_buffer_size'), 'bytes': None}


def _changed(cfg: Any) -> dict[str, Any]:
    """Returns the options that differ from their defaults, apart from those that ``check_config`` returns anyway."""
    options = dict(flat_fields(find_schema(to_plain(cfg), [])[1]))
    found = {}
    for key, field in options.items():
        *path, name = key.split('.')
        if key in cfg._user_keys and name not in SHOWN_ANYWAY:
            value = dict(to_plain(config.section_at(cfg, path)))[name]
            found.update(_differing(key, value, field.default))
    return found


def _differing(key: str, value: Any, default: Any) -> dict[str, Any]:
    """Returns a value and its default, of the parts that differ if both are dicts with the same keys."""
    if isinstance(value, Mapping) and isinstance(default, Mapping) and value.keys() == default.keys():
        return {
            below: facts
            for name in value
            if value[name] != default[name]
            for below, facts in _differing(f'{key}.{name}', value[name], default[name]).items()
        }
    return {key: {'value': plain(value), 'default': plain(default)}}


def _of_env(cfg: ExperimentConfig, name: str) -> dict[str, Any]:
    """Returns the facts that depend on the spaces of the env.

    Raises:
        ConfigError: If the env cannot be created, the policy cannot act in it, or the replay buffer does not fit.
    """
    from rlframe.pipeline import build, memory_needs

    import_modules(cfg.import_names)
    spec = build.make_factory(cfg).spec
    errors: list[ConfigError] = []
    network: Mapping[str, Any] | None = None
    try:
        build.check_policy(cfg, spec)
        network = _network(cfg, spec)
    except ConfigError as error:
        errors.append(error)
    try:
        memory_needs.check_memory(cfg, spec)
    except ConfigError as error:
        errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else ConfigErrors(errors, name)
    buffer = _buffer(cfg)
    if buffer is not None and buffer['size'] is not None:
        buffer['bytes'] = memory_needs.buffer_nbytes(cfg, spec)
    budget = _budget(cfg)
    if budget['stop_value'] is None:
        budget['stop_value'] = plain(spec.reward_threshold)
    return {
        'env': spec.name,
        'observation_space': space_text(spec.observation_space),
        'action_space': space_text(spec.action_space),
        'network': network,
        'buffer': buffer,
        'budget': budget,
    }


def _network(cfg: ExperimentConfig, spec: EnvSpec) -> dict[str, Any] | None:
    """Returns the size of the network; None if the policy or the network is custom."""
    from rlframe.pipeline.network_check import blank_network

    made = blank_network(cfg.policy, spec)
    if made is None:
        return None
    sizes = {
        key: plain(cfg.policy.model.get(key))
        for key in ('encoder_hidden_size_list', 'conv_layers', 'lstm_hidden_size')
    }
    return {
        'class': type(made).__name__,
        'parameters': sum(part.numel() for part in made.parameters()),
        'sizes': {key: value for key, value in sizes.items() if value is not None},
    }
