"""Creates the parts of a coordinator from the config of an experiment: server, commander and data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rlframe.data.timestep import EnvSpec
from rlframe.errors import ConfigError
from rlframe.registry import BUFFER_REGISTRY, ENV_REGISTRY, POLICY_REGISTRY, TRANSPORT_REGISTRY
from rlframe.transport.base import Server
from rlframe.utils.coordinator_options import COORDINATOR_FIELDS
from rlframe.utils.seed import component_rng
from rlframe.worker.commanders.base_parallel_commander import (
    BaseParallelCommander,
    create_parallel_commander,
    value_in,
)
from rlframe.worker.coordinator.training_data import TrainingData

ADDRESS = ('host', 'port')
"""Options of a server beside those of its section ``transport``."""
STOP_VALUE = ('policy.eval.evaluator.stop_value', 'env.stop_value')


class Given(NamedTuple):
    """What a coordinator is created from."""

    options: Mapping[str, Any]
    server: Server
    commander: BaseParallelCommander
    data: TrainingData


def complete(
    cfg: Mapping[str, Any] | None,
    server: Server | None,
    commander: BaseParallelCommander | None,
    data: TrainingData | None,
) -> Given:
    """Returns the options of a coordinator, and its parts, of which the missing ones are created.

    Args:
        cfg: The config of an experiment, or, if all parts are given, the options alone.
        server: The coordinator's end of a transport.
        commander: Decides what to do.
        data: Takes the data of collectors.

    Raises:
        ConfigError: If parts are missing and there is no config to create them from.
    """
    if not is_experiment(cfg):
        if server is None or commander is None or data is None:
            raise ConfigError(
                'a coordinator needs the config of an experiment, or a server, a commander and data',
                where='cfg',
                got=type(cfg).__name__ if cfg is None else sorted(cfg),
                expected="a compiled config, or a main config with a section 'policy'",
            )
        return Given(cfg or {}, server, commander, data)
    assert cfg is not None  # is_experiment() said so
    return Given(
        options_of(cfg),
        make_server(cfg) if server is None else server,
        make_commander(cfg) if commander is None else commander,
        make_data(cfg) if data is None else data,
    )


def is_experiment(cfg: Mapping[str, Any] | None) -> bool:
    """Whether a config is that of an experiment, and not the options of a coordinator alone."""
    return cfg is not None and 'policy' in cfg


def options_of(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of the coordinator in the config of an experiment."""
    section = _coordinator(cfg)
    return {name: section[name] for name in COORDINATOR_FIELDS if name in section}


def make_server(cfg: Mapping[str, Any], path_data: str | None = None, run: str = '') -> Server:
    """Creates the server of the transport that the config names; without one, it serves threads of this process.

    Args:
        cfg: The config of an experiment.
        path_data: Folder for arrays; by default that of the config.
        run: Id of the run that the folder belongs to; by default a random one.
    """
    kind: Any = TRANSPORT_REGISTRY.get(value_in(cfg, 'parallel.comm_collector.type', 'in_process')).server_cls
    section, declared = _coordinator(cfg), kind.config_fields()
    given = {name: section[name] for name in ADDRESS if section.get(name) is not None}
    given['path_data'] = path_data or value_in(cfg, 'parallel.path_data', None)
    given |= dict(section.get('transport', {}))
    options = {name: value for name, value in given.items() if name in declared and value is not None}
    try:
        server: Server = kind(options, run=run) if 'path_data' in declared else kind(options)
    except ConfigError as error:
        if error.where in ADDRESS:
            error.where = f'parallel.coordinator.{error.where}'
        raise
    return server


def make_commander(
    cfg: Mapping[str, Any], spec: EnvSpec | None = None, policy: Any = None
) -> BaseParallelCommander:
    """Creates the commander that the config names.

    Args:
        cfg: The config of an experiment.
        spec: Spaces of the env, by default those of the config's env; if the config has no stop value, the reward
            threshold is used.
        policy: Command face of the policy; by default it is created. A main config without ``policy.type`` has none.
    """
    if policy is None and 'type' in cfg['policy']:
        spec = _spec(cfg) if spec is None else spec
        seed = cfg.get('seed') or 0
        policy = POLICY_REGISTRY.build(cfg['policy'], cfg['policy'], spec, seed=seed).command_mode
    given: dict[str, Any] = {'policy': policy}
    if spec is not None and all(value_in(cfg, key, None) is None for key in STOP_VALUE):
        given['stop_value'] = spec.reward_threshold
    return create_parallel_commander(cfg, **given)


def make_data(cfg: Mapping[str, Any], **common: Any) -> TrainingData:
    """Creates the empty store of training data, with the config's replay buffer if it has one.

    Args:
        cfg: The config of an experiment.
        common: Further arguments of the replay buffer.
    """
    section = value_in(cfg, 'policy.other.replay_buffer', None)
    if section is None:
        return TrainingData(None)
    seed = component_rng(cfg.get('seed') or 0, 'replay_buffer').integers(2**32)
    named = {'type': 'advanced', **section}
    buffer = BUFFER_REGISTRY.build(named, section, seed=seed, **common)
    sizes = (value_in(cfg, f'policy.learn.{name}', 1) for name in ('batch_size', 'update_per_collect'))
    return TrainingData(buffer, *sizes)


def _spec(cfg: Mapping[str, Any]) -> EnvSpec:
    section = value_in(cfg, 'env', {})
    return ENV_REGISTRY.build({'type': 'gym', **section}, section).spec


def _coordinator(cfg: Mapping[str, Any]) -> Mapping[str, Any]:
    section: Mapping[str, Any] = value_in(cfg, 'parallel.coordinator', {})
    return section
