"""Allowed keys of Ray's options, and which of their values are only amounts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.registry import nearest
from rlframe.utils.field import Field
from rlframe.utils.reach import allowed, is_number, only_numbers

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


RAY_INIT = Field(
    {},
    doc='arguments of ray.init, such as address; used if Ray is not running',
    check=check_init,
    may_change=True,
    reaches='process',
    harmless=is_plain_init,
)
"""The option ``ray_init_config`` of everything that starts Ray."""
