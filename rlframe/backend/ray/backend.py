"""RayBackend: collects, evaluates and keeps transitions in Ray actors, whose parts it creates from the config."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlframe.backend.base import COLLECTOR, EVALUATOR, INFERENCE, Backend, MakeCollector, is_central
from rlframe.backend.options import collector_errors as worker_errors
from rlframe.backend.options import evaluator_errors, stays_here
from rlframe.backend.process import ProcessBackend
from rlframe.backend.ray.options import (
    BUFFER,
    EVALUATOR_OPTIONS,
    INFERENCE_OPTIONS,
    RAY_OPTIONS,
    SHARD_OPTIONS,
    remote_config_of,
)
from rlframe.backend.ray.session import REMEDY, actor_resources, check_installed, is_one_machine
from rlframe.errors import ConfigError
from rlframe.pipeline import build
from rlframe.registry import BACKEND_REGISTRY, BUFFER_REGISTRY

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.remote.places import Place
    from rlframe.remote.worker import Worker
    from rlframe.worker import IBuffer

Known = Mapping[str, Any]
UNSHARED = {'max_use': math.inf, 'max_staleness': math.inf}
"""Options of one replay buffer that shards do not have, with the values that change nothing."""


def collector_errors(known: Known) -> list[ConfigError]:
    """Returns the mistakes of a config that collects in actors."""
    given = {name: known[f'{COLLECTOR}.{name}'] for name in RAY_OPTIONS if f'{COLLECTOR}.{name}' in known}
    errors = [*server_errors(known, given), *worker_errors(known)]
    configs = given.get('remote_configs')
    count = given.get('num_collectors')
    if isinstance(configs, list | tuple) and count not in (None, len(configs)):
        text = f'remote_configs has {len(configs)} entries, num_collectors is {count}'
        remedy = 'Give one dict for all actors, or a list with one for each.'
        errors.insert(0, ConfigError(text, where=f'{COLLECTOR}.remote_configs', remedy=remedy))
    return errors


def server_errors(known: Known, given: Mapping[str, Any]) -> list[ConfigError]:
    """Returns the mistakes about the server that acts for all collectors.

    Args:
        known: Dotted keys of the whole config to values; keys with invalid values are left out.
        given: The options of the backend.
    """
    if known.get(INFERENCE) != 'central':
        why = (
            "it is an option of the server, and each collector acts itself (policy.collect.inference='local')"
        )
        defaults = {name: RAY_OPTIONS[name].default for name in INFERENCE_OPTIONS}
        return [
            _wrong(known, f'{COLLECTOR}.{name}', why, f"{default!r}, or {INFERENCE}='central'")
            for name, default in defaults.items()
            if given.get(name, default) != default
        ]
    local = f"or {INFERENCE}='local'"
    errors = []
    if known.get('policy.model.noisy'):
        why = 'a network with noise in its weights would draw it for all collectors together'
        errors.append(_wrong(known, 'policy.model.noisy', why, f'False, {local}'))
    if given.get('update_after_each_batch') is False:
        why = 'the server has one version of the weights for all collectors, the newest'
        errors.append(_wrong(known, f'{COLLECTOR}.update_after_each_batch', why, f'True, {local}'))
    count = given.get('num_collectors', 1)
    if (given.get('inference_batch') or 1) > count:
        why = f'a collector has one request at a time, and there are {count}'
        errors.append(
            _wrong(known, f'{COLLECTOR}.inference_batch', why, f'at most {count}, or None, {local}')
        )
    return errors


def _wrong(known: Known, key: str, why: str, expected: str) -> ConfigError:
    """Returns the error about the value of a key."""
    return ConfigError(why, where=key, got=known.get(key), expected=expected)


def shard_errors(known: Known) -> list[ConfigError]:
    """Returns the mistakes of a config whose transitions are kept in shards."""
    errors = []
    name = known.get(f'{BUFFER}.type')
    kind = None if name is None else BUFFER_REGISTRY.get(name)
    if not getattr(kind, 'can_be_sharded', False):
        why = f'shards draw by priority, and the replay buffer {name!r} does not'
        errors.append(_wrong(known, f'{BUFFER}.type', why, "'advanced', or 'sequence' with priority=True"))
    if not known.get(f'{BUFFER}.priority', True):
        errors.append(_wrong(known, f'{BUFFER}.priority', 'shards draw by priority', 'True'))
    if known.get(f'{BUFFER}.device', 'cpu') != 'cpu':
        errors.append(_wrong(known, f'{BUFFER}.device', 'shards are in main memory', "'cpu'"))
    why = 'one replay buffer looks at all of its items, shards at their own'
    for option, default in UNSHARED.items():
        if known.get(f'{BUFFER}.{option}', default) != default:
            errors.append(_wrong(known, f'{BUFFER}.{option}', why, str(default)))
    if known.get('policy.priority') is False:
        why = 'shards draw by priority, and this policy reports none'
        errors.append(_wrong(known, 'policy.priority', why, 'True'))
    if any(key.startswith('parallel.') for key in known):
        errors.append(stays_here(known, BUFFER, 'the coordinator of parallel mode keeps the replay buffer'))
    return errors + _too_many_shards(known)


def _too_many_shards(known: Known) -> list[ConfigError]:
    """Returns the errors about shards that are smaller than a batch, or that no env fills."""
    keys = f'{BUFFER}.num_shards', f'{BUFFER}.replay_buffer_size', 'policy.learn.batch_size'
    count, size, batch = (known.get(key, 1) for key in keys)
    found = {}
    if size // count < batch <= size:
        found[size // batch] = (
            f'a shard of {size // count} transitions cannot hold a batch of {batch} (policy.learn.batch_size)',
            f'Or set replay_buffer_size to at least {count * batch}.',
        )
    envs = known.get('env.collector_env_num', count) * known.get(f'{COLLECTOR}.num_collectors', 1)
    if f'{BUFFER}.unroll_len' in known and envs < count:
        found[envs] = f'the steps of an env are kept in one shard, and there are {envs} envs', ''
    return [
        ConfigError(text, where=keys[0], got=count, expected=f'at most {most}', remedy=remedy)
        for most, (text, remedy) in found.items()
    ]


@BACKEND_REGISTRY.register('ray')
class RayBackend(ProcessBackend):
    """Collects and evaluates in Ray actors, each with its own envs and policy; keeps transitions in others."""

    config = dict(collector=RAY_OPTIONS, evaluator=EVALUATOR_OPTIONS, replay_buffer=SHARD_OPTIONS)
    rules = dict(collector=collector_errors, evaluator=evaluator_errors, replay_buffer=shard_errors)
    remedy = REMEDY

    def open_collector(self, cfg: ExperimentConfig) -> None:
        """Connects to Ray and checks that it has room for the actors.

        Raises:
            MissingDependencyError: If Ray cannot be imported.
            ResourceError: If the cluster lacks the resources.
            SerializationError: If a part of the config cannot be sent to actors; with the path to it.
        """
        check_installed(f'{COLLECTOR}.backend')
        if not is_central(cfg):
            super().open_collector(cfg)
            return
        from rlframe.backend.ray.inference import CentralPool

        self._workers = CentralPool(cfg, MakeCollector(cfg, self.factory))

    def open_evaluator(self, cfg: ExperimentConfig) -> None:
        """Connects to Ray and checks that it has room for the actor; raises like ``open_collector``."""
        check_installed(f'{EVALUATOR}.backend')
        super().open_evaluator(cfg)

    def _place(self, kind: type[Worker], where: str, section: Any) -> Place:
        from rlframe.backend.ray.place import RayPlace

        resources = section.remote_configs if where == COLLECTOR else section.remote_config
        return RayPlace(kind, section.ray_init_config, resources, where)

    def open_buffer(self, cfg: ExperimentConfig) -> None:
        """Connects to Ray and checks that it has room for the shards; raises like ``open_collector``."""
        check_installed(f'{BUFFER}.backend')
        from rlframe.backend.ray.replay import shards_of

        section: Any = cfg.policy.other.replay_buffer
        self._workers = shards_of(section, self.factory.goals() if section.hindsight.strategy else None)

    def make_buffer(self, cfg: ExperimentConfig, **common: Any) -> IBuffer:
        from rlframe.backend.ray.replay import ShardedReplayBuffer

        assert self._workers is not None  # they were opened
        section: Any = cfg.policy.other.replay_buffer
        return ShardedReplayBuffer(section, self._workers, **common, seed=build.buffer_seed(cfg))

    def summary(self, cfg: ExperimentConfig) -> str:
        actors = cfg.policy.collect.collector.num_collectors
        server = ', one inference server' if is_central(cfg) else ''
        return f'{actors} Ray actor(s) with {Backend.summary(self, cfg)} each{server}'

    @classmethod
    def keeps_here(cls, section: Mapping[str, Any]) -> bool:
        return is_one_machine(section['ray_init_config'])

    @classmethod
    def collector_resources(cls, section: Mapping[str, Any]) -> list[dict[str, float]]:
        given = section['remote_configs']
        each = [remote_config_of(given, rank) for rank in range(section['num_collectors'])]
        server = actor_resources({'num_cpus': 0, **section['inference_remote_config']})
        return [actor_resources(own) for own in each] + [server] * bool(server)

    @classmethod
    def evaluator_resources(cls, section: Mapping[str, Any]) -> list[dict[str, float]]:
        return [actor_resources(remote_config_of(section['remote_config'], 0))]
