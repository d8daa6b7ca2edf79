"""``rlframe check-config``: all mistakes of a config, or a description of its run. It creates no folder and no process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlframe import config
from rlframe.app.explain import plain
from rlframe.config.schema import ExperimentConfig
from rlframe.display.text import row, space_text
from rlframe.errors import ConfigError, ConfigErrors, ConfigWarning
from rlframe.pipeline import build, memory_needs
from rlframe.pipeline.reward_models import check_infos
from rlframe.reward_model.paid import check_reward_models
from rlframe.run.progress import BUDGETS, set_budgets
from rlframe.scores import exact_text, goal_of

if TYPE_CHECKING:
    from rlframe.data.timestep import EnvSpec

Facts = Mapping[str, Any]


def text_of(found: Facts, width: int) -> str:
    """Returns the result of ``check_config`` as text of at most ``width`` columns."""
    envs = f'{found["env_num"]} envs, manager {found["env_manager"]}' if found['env_num'] else 'no envs'
    backend = '' if found['backend'] == 'local' else f', backend {found["backend"]}'
    mode = ' in parallel mode' if found['mode'] == 'parallel' else ''
    trains = f'{found["policy"]} on {found["env"]}{mode}; collector {found["collector"]} with {envs}{backend}'
    facts = [('warning', text) for text in found['warnings']] + [('trains', trains)]
    if 'observation_space' in found:
        facts += [('observes', found['observation_space']), ('acts', found['action_space'])]
        facts.append(('network', _network_text(found['network'])))
    facts += [('buffer', _buffer_text(found['buffer'])), ('ends', _end(found['budget']))]
    lines = [line for label, text in facts for line in row(label, text, width)]
    return '\n'.join([f'{found["config"]}: no mistakes', *lines])


def _network_text(network: Facts | None) -> str:
    if network is None:
        return 'custom; its size is known once it is created'
    return f'{network["class"]}: {network["parameters"]:,} parameters'


def _buffer_text(buffer: Facts | None) -> str:
    if buffer is None:
        return 'none: it learns from fresh data'
    if buffer['size'] is None:
        return str(buffer['type'])
    size = f'{buffer["type"]}: {buffer["size"]:,} items'
    return size if buffer['bytes'] is None else f'{size}, about {buffer["bytes"] / 2**20:,.1f} MiB'


def _end(budget: Facts) -> str:
    units = {'max_env_step': 'env steps', 'max_train_iter': 'train iterations'}
    limits = [f'after {budget[key]:,} {unit}' for key, unit in units.items() if budget[key] is not None]
    if goal_of(budget['stop_value']) is not None:
        limits.append(f'at a mean return of {exact_text(budget["stop_value"])}')
    return ', or '.join(limits) or 'never by itself: set max_env_step, max_train_iter or env.stop_value'


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
    given_budgets = set_budgets(cfg)
    buffer = cfg.policy.other.replay_buffer
    found = {
        'config': name,
        'warnings': [str(one.message) for one in caught if issubclass(one.category, ConfigWarning)],
        'mode': 'parallel' if 'parallel' in cfg else 'serial',
        'policy': cfg.policy.type,
        'env': build.env_name(cfg.env),
        'env_num': cfg.env.get('collector_env_num'),
        'env_manager': cfg.env.manager.type,
        'collector': cfg.policy.collect.collector.type,
        'backend': cfg.policy.collect.collector.get('backend', 'local'),
        'budget': {key: int(cfg[key]) if key in given_budgets else None for key in BUDGETS}
        | {'stop_value': plain(cfg.env.get('stop_value'))},
        'buffer': buffer
        and {'type': buffer['type'], 'size': buffer.get('replay_buffer_size'), 'bytes': None},
    }
    if with_env:
        _add_facts_of_env(found, cfg)
    return found


def mistakes_of(error: ConfigError) -> list[dict[str, Any]]:
    """Returns the mistakes that an error holds, as JSON-able data."""
    names = ('where', 'message', 'got', 'expected', 'remedy')
    errors = error.errors if isinstance(error, ConfigErrors) else [error]
    return [{name: plain(getattr(each, name)) for name in names} for each in errors]


def _add_facts_of_env(found: dict[str, Any], cfg: ExperimentConfig) -> None:
    """Adds the facts that depend on the spaces of the env.

    Raises:
        ConfigError: If the env cannot be created, the policy cannot act in it, or the replay buffer does not fit.
        ConfigErrors: If several of these are so.
    """
    factory = build.make_factory(cfg)
    spec = factory.spec
    errors: list[ConfigError] = []
    checks: list[tuple[Callable[..., Any], Any]] = [(check_infos, factory)]
    checks += [
        (check, spec) for check in (build.check_policy, check_reward_models, memory_needs.check_memory)
    ]
    for check, what in checks:
        try:
            check(cfg, what)
        except ConfigError as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else ConfigErrors(errors, found['config'])
    buffer = cfg.policy.other.replay_buffer
    if buffer is not None and found['buffer']['size'] is not None:
        found['buffer']['bytes'] = memory_needs.buffer_nbytes(buffer, spec)
    if found['budget']['stop_value'] is None:
        found['budget']['stop_value'] = plain(spec.reward_threshold)
    found['env'] = spec.name
    found['network'] = _network(cfg, spec)
    found['observation_space'] = space_text(spec.observation_space)
    found['action_space'] = space_text(spec.action_space)


def _network(cfg: ExperimentConfig, spec: EnvSpec) -> dict[str, Any] | None:
    """Returns the size of the network; None if the policy or the network is custom."""
    made = memory_needs.blank_network(cfg.policy, spec)
    if made is None:
        return None
    return {'class': type(made).__name__, 'parameters': sum(part.numel() for part in made.parameters())}
