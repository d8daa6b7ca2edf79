"""Options of collection, evaluation and replay in Ray actors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.backend.options import LaterConfig, StartConfig, WorkersConfig
from rlframe.registry import nearest
from rlframe.utils.every import seconds
from rlframe.utils.field import (
    Section,
    fields_of,
    option,
)
from rlframe.utils.harmless import allowed, is_number, only_numbers

INIT_KEYS = (
    'address', 'num_cpus', 'num_gpus', 'resources', 'labels', 'object_store_memory', 'local_mode', 'namespace',
    'ignore_reinit_error', 'include_dashboard', 'dashboard_host', 'dashboard_port', 'job_config', 'log_to_driver',
    'configure_logging', 'logging_level', 'logging_format', 'logging_config', 'runtime_env', 'cgroup_path',
    'enable_resource_isolation', 'system_reserved_cpu', 'system_reserved_memory', 'proxy_server_url',
)  # fmt: skip
"""Arguments of ``ray.init``."""
ACTOR_KEYS = (
    'num_cpus', 'num_gpus', 'memory', 'object_store_memory', 'resources', 'accelerator_type', 'runtime_env',
    'scheduling_strategy', 'fallback_strategy', 'label_selector', 'placement_group', 'max_pending_calls',
    'placement_group_bundle_index', 'placement_group_capture_child_tasks', 'namespace', 'enable_task_events',
)  # fmt: skip
"""Options of an actor, except those that the backend sets itself."""

is_plain_actor = allowed(num_cpus=is_number, num_gpus=is_number, memory=is_number, resources=only_numbers)
"""Tells whether options of an actor are amounts only: no ``runtime_env``, which runs commands."""
is_plain_init = allowed(
    address=lambda address: address is None or (type(address) is str and address == 'local'),
    num_cpus=is_number,
    num_gpus=is_number,
    resources=only_numbers,
    object_store_memory=is_number,
    include_dashboard=lambda value: value is False,
    configure_logging=is_number,
    log_to_driver=is_number,
)
"""Tells whether arguments of ``ray.init`` are amounts only."""
ONLY_OURS = ('max_restarts', 'max_task_retries', 'max_concurrency', 'name', 'lifetime', 'num_returns')
"""Options of Ray's actors that would break guarantees of rlframe."""
BUFFER = 'policy.other.replay_buffer'
"""Section of the replay buffer."""
INFERENCE_OPTIONS = 'inference_batch', 'inference_timeout', 'inference_remote_config'
"""Those of ``RAY_OPTIONS`` that are about the server that acts for all collectors."""


def are_plain_actors(configs: Any) -> bool:
    """Whether options of all actors, in one dict or in a list of them, are amounts only."""
    return all(map(is_plain_actor, configs if isinstance(configs, list | tuple) else [configs]))


def unknown_key(config: Mapping[Any, Any], known: tuple[str, ...]) -> str:
    """Returns an error about an unknown key, with the nearest known one, or an empty string."""
    for name in config:
        is_private = str(name).startswith('_')  # from Python alone: no config has such keys
        if name not in known and not is_private:
            return f'{name!r} is not an option that rlframe passes to Ray.{nearest(str(name), known)}'
    return ''


def check_init(config: Mapping[Any, Any]) -> str:
    """Returns the expected form of ``ray.init``'s arguments if these are invalid; else an empty string."""
    problem = unknown_key(config, INIT_KEYS)
    return f'a dict with arguments of ray.init; {problem}' if problem else ''


RAY_INIT: dict[str, Any] = option(
    {},
    doc='arguments of ray.init, such as address; used if Ray is not running',
    check=check_init,
    may_change=True,
    reaches='process',
    harmless=is_plain_init,
)
"""The option ``ray_init_config`` of everything that starts Ray."""


def _check_actors(configs: Any) -> str:
    """Returns the expected form of the options of an actor, or of a list of them, with all mistakes; else an empty string."""
    problems = []
    for config in configs if isinstance(configs, list | tuple) else [configs]:
        ours = [f'{name} is set by the backend itself' for name in ONLY_OURS if name in config]
        problems += ours or [
            unknown_key(config, ACTOR_KEYS) if isinstance(config, Mapping) else f'got {config!r}'
        ]
    told = ' '.join(filter(None, problems))
    return f'a dict of resources; {told}' if told else ''


def resources(doc: str) -> Any:
    """Returns an option that is the resources of an actor."""
    return option(
        {},
        doc=doc,
        check=_check_actors,
        may_change=True,
        reaches='process',
        harmless=is_plain_actor,
    )


class RayConfig(Section):
    """How everything on Ray reaches a cluster."""

    ray_init_config: dict[str, Any] = RAY_INIT


class ActorsConfig(WorkersConfig, RayConfig):
    """Options of a collector in actors, under ``policy.collect.collector``."""

    remote_configs: dict[str, Any] | list[Any] = option(
        {},
        doc='resources of an actor, such as num_cpus (1) and num_gpus (0), or a list with one dict for each',
        check=_check_actors,
        may_change=True,
        reaches='process',
        harmless=are_plain_actors,
    )

    inference_batch: int | None = option(
        None,
        range='[1, inf)',
        unit='requests',
        doc="with inference='central': most requests in a pass of the network; with 1, runs of several collectors can be repeated"
        ' bit for bit; None: one of each collector',
        may_change=True,
    )
    inference_timeout: float = seconds(
        0.05, "with inference='central': longest time for a request to wait for the other collectors"
    )
    inference_remote_config: dict[str, Any] = resources(
        "with inference='central': resources of the server, such as num_cpus (0) and num_gpus (0)"
    )


class ActorConfig(LaterConfig, RayConfig):
    """Options of an evaluator in an actor, under ``policy.eval.evaluator``."""

    remote_config: dict[str, Any] = resources('resources of the actor, such as num_cpus (1) and num_gpus (0)')


class ShardsConfig(StartConfig, RayConfig):
    """Options of a replay buffer in actors, under ``policy.other.replay_buffer``."""

    num_shards: int = option(
        1, range='[1, inf)', unit='actors', doc='number of actors that share replay_buffer_size evenly'
    )
    prefetch: int = option(
        16,
        range='[0, inf)',
        unit='batches',
        doc='batches that are drawn ahead while the policy learns, by priorities that are at most so many updates old; 0: as one'
        ' buffer draws them',
    )
    shard_timeout: float = seconds(120.0, 'longest time for a shard to answer; then it is replaced')
    remote_config: dict[str, Any] = resources('resources of a shard, such as num_cpus (0) and memory')


RAY_OPTIONS, EVALUATOR_OPTIONS = fields_of(ActorsConfig), fields_of(ActorConfig)
SHARD_OPTIONS = fields_of(ShardsConfig)


def remote_config_of(given: Any, rank: int) -> dict[str, Any]:
    """Returns the options of one actor, of those of all in one dict or in a list of them."""
    own = given[rank % len(given)] if isinstance(given, list | tuple) else given
    return {'num_cpus': 1, 'num_gpus': 0, **own}
