"""RayBackend: collects, evaluates and keeps transitions in Ray actors, whose parts it creates from the config."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlframe.backend.base import (
    COLLECTOR,
    INFERENCE,
    Backend,
    LocalBackend,
    MakeCollector,
    is_central,
)
from rlframe.backend.ray.options import (
    BUFFER,
    EVALUATOR_OPTIONS,
    INFERENCE_OPTIONS,
    RAY_OPTIONS,
    SHARD_OPTIONS,
    check_ray_options,
    lag_error,
    pool_options,
    remote_config_of,
    shard_options,
)
from rlframe.backend.ray.session import actor_resources, check_installed, is_one_machine
from rlframe.errors import ConfigError
from rlframe.pipeline import build
from rlframe.registry import BACKEND_REGISTRY, BUFFER_REGISTRY, POLICY_REGISTRY, SERIAL_COLLECTOR_REGISTRY
from rlframe.utils.serialize import on_cpu, to_bytes

if TYPE_CHECKING:
    from rlframe.backend.ray.evaluator import EvaluatorParts
    from rlframe.config.schema import ExperimentConfig
    from rlframe.policy import Policy
    from rlframe.worker import IBuffer, ISerialCollector, ISerialEvaluator

EVALUATOR = 'policy.eval.evaluator'
Known = Mapping[str, Any]
UNSHARED = {'max_use': math.inf, 'max_staleness': math.inf}
"""Options of one replay buffer that shards do not have, with the values that change nothing."""


class MakeEvaluator:
    """Creates the evaluator in an actor; it plays the same episodes as an evaluator in the process of the run.

    Args:
        cfg: A compiled config.
        factory: Creates its envs; an env registered only in the process of the run works in the actor too.
    """

    def __init__(self, cfg: ExperimentConfig, factory: Any) -> None:
        self._cfg, self._factory = cfg, factory
        self.given: Mapping[str, Any] = {}
        """Further arguments of the evaluator."""
        self.model: Any = None
        """A custom network, if given; it is copied."""

    def __call__(self, rank: int, incarnation: int) -> EvaluatorParts:
        """Creates envs, policy and evaluator."""
        from rlframe.backend.ray.evaluator import EvaluatorParts, Recorder

        cfg = copy.deepcopy(self._cfg)
        section = cfg.policy.eval.evaluator
        if not section.remote_config.get('num_gpus'):
            cfg.policy.device, cfg.policy.cuda = 'cpu', None
        section.backend, cfg.policy.init_from = 'local', None
        build.prepare(cfg)
        factory = self._factory
        policy = build.make_policy(cfg, factory.spec, self.model, ('eval',), rank)
        backend = LocalBackend(factory)
        recorder = Recorder()
        backend.open_evaluator(cfg)
        evaluator = build.make_evaluator(cfg, backend, policy, factory.spec, tb_logger=recorder, **self.given)
        return EvaluatorParts(evaluator, backend.env, policy.eval_mode, recorder)


def collector_errors(known: Known) -> list[ConfigError]:
    """Returns the mistakes of a config that collects in actors."""
    given = {name: known[f'{COLLECTOR}.{name}'] for name in RAY_OPTIONS if f'{COLLECTOR}.{name}' in known}
    errors = check_ray_options(given) if len(given) == len(RAY_OPTIONS) else []
    for error in errors:
        error.where = f'{COLLECTOR}.{error.where}'
    if given.get('overlap') and given.get('sync') is False:
        errors.append(
            ConfigError(
                'without sync, actors collect all the time: there is no round to begin ahead',
                where=f'{COLLECTOR}.overlap',
                got=1,
                expected='0, or sync=True',
            )
        )
    errors += server_errors(known, given)
    if known.get(f'{COLLECTOR}.type') == 'dataset':
        errors.append(_stays_here(COLLECTOR, 'recorded data are read in this process'))
    if known.get('policy.on_policy') and given.get('sync') is False:
        lag = lag_error(POLICY_REGISTRY.get(known['policy.type']), f'{COLLECTOR}.sync')
        errors += [lag] if lag else []
    return errors


def server_errors(known: Known, given: Mapping[str, Any]) -> list[ConfigError]:
    """Returns the mistakes about the server that acts for all collectors.

    Args:
        known: Dotted keys of the whole config to values; keys with invalid values are left out.
        given: The options of the backend.
    """
    if known.get(INFERENCE) != 'central':
        without = (
            "it is an option of the server, and each collector acts itself (policy.collect.inference='local')"
        )
        return [
            ConfigError(
                without,
                where=f'{COLLECTOR}.{name}',
                got=given[name],
                expected=f"{RAY_OPTIONS[name].default!r}, or {INFERENCE}='central'",
            )
            for name in INFERENCE_OPTIONS
            if given.get(name, RAY_OPTIONS[name].default) != RAY_OPTIONS[name].default
        ]
    count = given.get('num_collectors', 1)
    batch = given.get('inference_batch') or 1
    found = {
        'policy.model.noisy': (
            bool(known.get('policy.model.noisy')),
            'a network with noise in its weights would draw it for all collectors together',
            'False',
        ),
        f'{COLLECTOR}.update_after_each_batch': (
            given.get('update_after_each_batch') is False,
            'the server has one version of the weights for all collectors, the newest',
            'True',
        ),
        f'{COLLECTOR}.inference_batch': (
            batch > count,
            f'a collector has one request at a time, and there are {count}',
            f'at most {count}, or None',
        ),
    }
    return [
        ConfigError(why, where=key, got=known.get(key), expected=f"{right}, or {INFERENCE}='local'")
        for key, (is_wrong, why, right) in found.items()
        if is_wrong
    ]


def evaluator_errors(known: Known) -> list[ConfigError]:
    """Returns the mistakes of a config that evaluates in actors."""
    is_data = known.get(f'{EVALUATOR}.type') == 'metric'
    return [_stays_here(EVALUATOR, 'recorded data are read in this process')] if is_data else []


def shard_errors(known: Known) -> list[ConfigError]:
    """Returns the mistakes of a config whose transitions are kept in shards."""
    here: dict[str, tuple[bool, str, str]] = {}
    kind = BUFFER_REGISTRY.get(known[f'{BUFFER}.type']) if f'{BUFFER}.type' in known else None
    if not getattr(kind, 'can_be_sharded', False):
        text = f'shards draw by priority, and the replay buffer {known.get(f"{BUFFER}.type")!r} does not'
        here['type'] = True, text, "'advanced', or 'sequence' with priority=True"
    only_one = 'one replay buffer looks at all of its items, shards at their own'
    here |= {
        'priority': (not known.get(f'{BUFFER}.priority', True), 'shards draw by priority', 'True'),
        'device': (known.get(f'{BUFFER}.device', 'cpu') != 'cpu', 'shards are in main memory', "'cpu'"),
        **{
            name: (known.get(f'{BUFFER}.{name}', default) != default, only_one, str(default))
            for name, default in UNSHARED.items()
        },
    }
    errors = [
        ConfigError(text, where=f'{BUFFER}.{name}', got=known.get(f'{BUFFER}.{name}'), expected=expected)
        for name, (is_wrong, text, expected) in here.items()
        if is_wrong
    ]
    if known.get('policy.priority') is False:
        text = 'shards draw by priority, and this policy reports none'
        errors.append(ConfigError(text, where='policy.priority', got=False, expected='True'))
    if any(key.startswith('parallel.') for key in known):
        errors.append(_stays_here(BUFFER, 'the coordinator of parallel mode keeps the replay buffer'))
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


def _stays_here(section: str, what: str) -> ConfigError:
    """Returns the error of a component that must stay in the training process."""
    return ConfigError(f'{what}, not in actors', where=f'{section}.backend', got='ray', expected="'local'")


@BACKEND_REGISTRY.register('ray')
class RayBackend(Backend):
    """Collects and evaluates in Ray actors, each with its own envs and policy; keeps transitions in others."""

    config = dict(collector=RAY_OPTIONS, evaluator=EVALUATOR_OPTIONS, replay_buffer=SHARD_OPTIONS)
    rules = dict(collector=collector_errors, evaluator=evaluator_errors, replay_buffer=shard_errors)
    _actors: Any = None  # an ActorPool

    def open_collector(self, cfg: ExperimentConfig) -> None:
        """Connects to Ray and checks that it has room for the actors.

        Raises:
            MissingDependencyError: If Ray cannot be imported.
            ResourceError: If the cluster lacks the resources.
            SerializationError: If a part of the config cannot be sent to actors; with the path to it.
        """
        check_installed(f'{COLLECTOR}.backend')
        from rlframe.backend.ray.pool import ActorPool

        section = cfg.policy.collect.collector
        make = MakeCollector(cfg, self.factory)
        to_bytes(make, 'make')  # raises here if it cannot be sent
        if is_central(cfg):
            from rlframe.backend.ray.inference import CentralPool

            self._actors = CentralPool(cfg, make)
        else:
            self._actors = ActorPool(section, make=make)

    def open_evaluator(self, cfg: ExperimentConfig) -> None:
        """Connects to Ray and checks that it has room for the actor; raises like ``open_collector``."""
        check_installed(f'{EVALUATOR}.backend')
        from rlframe.backend.ray.evaluator import EvaluatorActor
        from rlframe.backend.ray.pool import ActorPool

        make = MakeEvaluator(cfg, self.factory)
        to_bytes(make, 'make')  # raises here if it cannot be sent
        options = pool_options(cfg.policy.eval.evaluator)
        self._actors = ActorPool(options, EvaluatorActor, EVALUATOR, make)

    def make_collector(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialCollector:
        from rlframe.backend.ray.collector import RaySerialCollector

        self._actors.make.model = on_cpu(policy.get_attribute('given_model'))
        section: Any = cfg.policy.collect.collector  # here with the options of ``ActorsConfig``
        kind = SERIAL_COLLECTOR_REGISTRY.get_cls(section)
        given = {name: common[name] for name in ('tb_logger', 'instance_name', 'progress') if name in common}
        return RaySerialCollector(kind, section, self._actors, policy.collect_mode, **given)

    def make_evaluator(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialEvaluator:
        from rlframe.backend.ray.evaluator import RaySerialEvaluator

        given = {'seed': cfg.seed, **common}
        self._actors.make.given = {name: given[name] for name in ('seed', 'purpose') if name in given}
        self._actors.make.model = on_cpu(policy.get_attribute('given_model'))
        self._actors.start()
        return RaySerialEvaluator(cfg.policy.eval.evaluator, self._actors, policy.eval_mode, **given)

    def open_buffer(self, cfg: ExperimentConfig) -> None:
        """Connects to Ray and checks that it has room for the shards; raises like ``open_collector``."""
        check_installed(f'{BUFFER}.backend')
        from rlframe.backend.ray.pool import ActorPool
        from rlframe.backend.ray.replay import MakeShard, ShardActor

        section: Any = cfg.policy.other.replay_buffer
        make = MakeShard(section)
        to_bytes(make, 'make')  # raises here if it cannot be sent
        self._actors = ActorPool(shard_options(section), ShardActor, BUFFER, make)

    def make_buffer(self, cfg: ExperimentConfig, **common: Any) -> IBuffer:
        from rlframe.backend.ray.replay import ShardedReplayBuffer

        section: Any = cfg.policy.other.replay_buffer
        return ShardedReplayBuffer(section, self._actors, **common, seed=build.buffer_seed(cfg))

    def close(self) -> None:
        if self._actors is not None:
            self._actors.close()

    def summary(self, cfg: ExperimentConfig) -> str:
        actors = cfg.policy.collect.collector.num_collectors
        server = ', one inference server' if is_central(cfg) else ''
        return f'{actors} Ray actor(s) with {super().summary(cfg)} each{server}'

    @classmethod
    def keeps_here(cls, section: Mapping[str, Any]) -> bool:
        return is_one_machine(section['ray_init_config'])

    @classmethod
    def collector_num(cls, section: Mapping[str, Any]) -> int:
        number = section.get('num_collectors')
        return number if isinstance(number, int) else 1

    @classmethod
    def collector_resources(cls, section: Mapping[str, Any]) -> list[dict[str, float]]:
        ranks = range(section['num_collectors'])
        server = actor_resources({'num_cpus': 0, **section['inference_remote_config']})
        return [actor_resources(remote_config_of(section, rank)) for rank in ranks] + [server] * bool(server)

    @classmethod
    def evaluator_resources(cls, section: Mapping[str, Any]) -> list[dict[str, float]]:
        return [actor_resources(remote_config_of(pool_options(section), 0))]

    @classmethod
    def has_gpu(cls, section: Mapping[str, Any], rank: int) -> bool:
        return bool(remote_config_of(section, rank)['num_gpus'])
