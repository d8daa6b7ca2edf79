"""Backend: the interface of all backends, the states of their parts, and the backend in this process."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.dataset import COLLECTOR_DATA, check_source
from rlframe.errors import CheckpointMismatchError, ConfigError
from rlframe.pipeline import build
from rlframe.registry import BACKEND_REGISTRY, SERIAL_COLLECTOR_REGISTRY, SERIAL_EVALUATOR_REGISTRY
from rlframe.utils.field import Configurable, Options
from rlframe.utils.schema import (
    COUNT,
    DICT,
    FLAG,
    INT,
    LIST,
    Kind,
    Schema,
    array,
    check_state,
    list_of,
    maybe,
)
from rlframe.utils.seed import global_rng_state

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.envs import EnvFactory
    from rlframe.policy import Policy
    from rlframe.worker import ISerialCollector, ISerialEvaluator

State = Mapping[str, Any]
_BY_RANK = Kind(
    'a dict of counts, by rank',
    lambda v: isinstance(v, Mapping) and all(str(rank).isdigit() for rank in v),
    INT,
)
_DATA = Kind('a dict of columns, or a list of such dicts', lambda v: isinstance(v, Mapping | list))
_ACTOR: Schema = {
    'collector': {'discarded': COUNT},
    'acting': maybe(DICT),
    'rng': maybe(DICT),
    'at_random': FLAG,
}
_ACTORS: dict[str, Schema] = {
    'pool?': {'next_rank?': COUNT, 'incarnations?': _BY_RANK},
    'to_reset': list_of(COUNT),
    'ready': list_of({'behind': INT, 'data': _DATA, 'infos': maybe(LIST), 'size': COUNT}),
    'publisher?': {'version?': INT, 'weights?': DICT, 'batches?': _BY_RANK},
    'log': DICT,
    'players': LIST,
    'last_print_iter': INT,
    'discarded': COUNT,
    'counts': list_of(COUNT, 4),
}
"""Schema of the state of a collector with actors, apart from the actors."""
_IN_PROCESS: Schema = {'log': DICT, 'last_print_iter': INT, 'discarded': COUNT}
"""The part of the state of a collector in this process that one with actors keeps itself."""
EPISODES = ('window', 'recent')
INFOS = ('info_names', 'info_sums')
"""Keys of the state of an ``EpisodeLog`` that concern finished episodes; the latter are there only if an info had numbers."""


def checked_actors(state: State, count: int | None = None) -> list[Any]:
    """Returns the states of the actors in the state of a collector, after checking all of it but the actors' parts.

    Args:
        state: State of a collector with actors.
        count: Number of actors that there should be; None: any.

    Raises:
        CheckpointStateError: If a part is missing or invalid.
        CheckpointMismatchError: If there is another number of actors.
    """
    check_state(state, {'actors': LIST})
    actors = list(state['actors'])
    if count not in (None, len(actors)):
        raise CheckpointMismatchError(
            f'{len(actors)} actors there, {count} here',
            where='policy.collect.collector.num_collectors',
        )
    for i, actor in enumerate(actors):
        if actor is not None:
            check_state(actor, _ACTOR, f'actors.{i}')
    check_state(state, {**_ACTORS, 'ranks?': list_of(COUNT, len(actors))})
    ranks = state.get('ranks', list(range(len(actors))))
    among = Kind(f'ranks among {ranks}', lambda own: set(map(int, own)) <= set(ranks))
    check_state(state, {'to_reset': among})
    if publisher := state.get('publisher'):
        check_state(publisher, {'version': INT, 'weights': DICT, 'batches': among}, 'publisher')
    return actors


def in_process(state: State) -> State:
    """Converts a collector's state for a collector in this process.

    Args:
        state: State of a collector in this process, or of one with a single actor and ``sync``.

    Raises:
        CheckpointMismatchError: If the states of several actors would have to be merged.
    """
    if 'actors' not in state:
        return state
    actors = checked_actors(state)
    if len(actors) != 1 or actors[0] is None or len(state['ready']) or state.get('publisher'):
        raise CheckpointMismatchError(
            f'the run was collecting in {len(actors)} Ray actor(s), with more requests in flight than one process can continue',
            where='policy.collect.collector.backend',
            remedy="Resume with backend='ray'; only one synchronous actor that always has the newest weights can be left.",
        )
    own = actors[0]['collector']
    check_state(own, {'log': DICT}, 'actors.0.collector')
    check_state(state, {'log': dict.fromkeys(EPISODES, array('f'))})
    infos = {name: state['log'][name] for name in INFOS if name in state['log']}
    log = {**own['log'], **{name: state['log'][name] for name in EPISODES}, **infos}
    discarded = state['discarded'] + own['discarded']
    return {**own, 'log': log, 'last_print_iter': state['last_print_iter'], 'discarded': discarded}


def in_actor(state: State, acting: Any) -> State:
    """Converts a collector's state for a collector with a single actor.

    Args:
        state: State of a collector in this process, or of one with actors.
        acting: State of the policy that acting changes, apart from its weights.
    """
    if 'actors' in state:
        return state
    check_state(state, _IN_PROCESS)
    if 'players' in state:
        check_state(state, {'recorder': {'window': LIST}})
    log = state['log']
    nothing = {'return': np.zeros(0), 'length': np.zeros(0, np.int64)}
    running = {name: value for name, value in log.items() if name not in INFOS}
    empty = {name: np.zeros((0, 3)) for name in EPISODES}
    actor = {**state, 'log': {**running, **empty}, 'discarded': 0}
    return {
        'actors': [
            {'collector': actor, 'acting': acting, 'rng': global_rng_state(), 'at_random': False},
        ],
        'to_reset': [],
        'ready': [],
        'log': {**log, **nothing},
        'players': state['recorder']['window'] if 'players' in state else [],
        'last_print_iter': state['last_print_iter'],
        'discarded': state['discarded'],
        'counts': [0, 0, 0, 0],
    }


class Backend(Configurable):
    """Runs collection or evaluation, and returns its results.

    A run creates one backend for its collector and one for its evaluator. ``open_collector`` or ``open_evaluator``,
    which acquires resources, is called before the policy and the run folder exist, ``make_collector`` or
    ``make_evaluator`` afterwards.

    Args:
        factory: Creates the envs of the run.
    """

    config: dict[str, Any] = dict(collector={}, evaluator={})
    """Options that a config may set under ``policy.collect.collector`` and ``policy.eval.evaluator``, in addition to
    those of the collector or evaluator."""

    def __init__(self, factory: EnvFactory) -> None:
        self.factory = factory

    # running

    @abstractmethod
    def open_collector(self, cfg: ExperimentConfig) -> None:
        """Acquires what the collector needs, such as envs.

        Args:
            cfg: The whole config of the run.
        """

    @abstractmethod
    def open_evaluator(self, cfg: ExperimentConfig) -> None:
        """Acquires what the evaluator needs, such as envs."""

    @abstractmethod
    def make_collector(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialCollector:
        """Creates the collector.

        Args:
            cfg: The whole config of the run.
            policy: The policy that is trained in this process.
            common: Further arguments of every collector: ``tb_logger``, ``exp_name``, ``progress``.
        """

    @abstractmethod
    def make_evaluator(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialEvaluator:
        """Creates the evaluator.

        Args:
            cfg: The whole config of the run.
            policy: The policy that is trained in this process.
            common: Further arguments of every evaluator: ``tb_logger``, ``exp_name``, ``seed``, ``purpose``.
        """

    @abstractmethod
    def close(self) -> None:
        """Releases everything that was acquired; may be called twice, and after ``open_...`` failed."""

    def summary(self, cfg: ExperimentConfig) -> str:
        """Says in a few words where training samples come from."""
        manager = cfg.env.manager.type
        return f'{cfg.env.collector_env_num} envs of {self.factory.spec.name} ({manager})'

    # facts about a config, known before anything runs

    @classmethod
    def options_of(cls, role: str) -> Options:
        """Returns the options for a collector or an evaluator.

        Args:
            role: ``'collector'`` or ``'evaluator'``.
        """
        found: Options = cls.config_fields()[role]
        return found

    @classmethod
    def collector_errors(cls, known: Mapping[str, Any]) -> list[ConfigError]:
        """Returns the mistakes of a config that collects here, beyond those of single options.

        Args:
            known: Dotted keys of the whole config to values; keys with invalid values are left out.
        """
        return []

    @classmethod
    def evaluator_errors(cls, known: Mapping[str, Any]) -> list[ConfigError]:
        """Returns the mistakes of a config that evaluates here, beyond those of single options."""
        return []

    @classmethod
    def collector_num(cls, section: Mapping[str, Any]) -> int:
        """Returns the number of collectors that share the target of a call.

        Args:
            section: Options of the collector.
        """
        return 1

    @classmethod
    def collector_resources(cls, section: Mapping[str, Any]) -> list[dict[str, float]]:
        """Returns the resources of a Ray cluster that each collecting process takes, by names such as ``'CPU'``."""
        return []

    @classmethod
    def evaluator_resources(cls, section: Mapping[str, Any]) -> list[dict[str, float]]:
        """Returns the resources of a Ray cluster that each evaluating process takes, by names such as ``'CPU'``."""
        return []

    @classmethod
    def is_interchangeable(cls, section: Mapping[str, Any]) -> bool:
        """Whether a run that collects here can be resumed with another interchangeable backend, and the reverse.

        Args:
            section: Options of the collector.
        """
        return False

    @classmethod
    def collector_state(cls, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Converts a collector's state of another backend; a state of this backend is returned unchanged.

        Raises:
            CheckpointMismatchError: If it cannot be converted.
        """
        return state


@BACKEND_REGISTRY.register('local')
class LocalBackend(Backend):
    """Collects and evaluates in this process: in envs, or from recorded data."""

    env: Any = None
    """The envs; None if there are data instead."""
    data: Any = None
    """The recorded data of a collector or an evaluator that steps no envs."""

    def open_collector(self, cfg: ExperimentConfig) -> None:
        """Creates the envs, or opens the recorded data of a collector that steps none."""
        section = cfg.policy.collect.collector
        kind = SERIAL_COLLECTOR_REGISTRY.get_cls(section)
        self.data = kind.open_data(section) if hasattr(kind, 'open_data') else None
        if self.data is None:
            self.env = build.make_env(cfg, self.factory, cfg.env.collector_env_num)
        else:
            check_source(self.data, self.factory.spec, COLLECTOR_DATA)

    def open_evaluator(self, cfg: ExperimentConfig) -> None:
        """Creates the envs, or opens the recorded data of an evaluator that plays no episodes."""
        section = cfg.policy.eval.evaluator
        kind = SERIAL_EVALUATOR_REGISTRY.get_cls(section)
        if hasattr(kind, 'open_data'):
            self.data = kind.open_data(section, self.factory.spec)
        else:
            render_mode = 'rgb_array' if build.films(cfg) else None
            self.env = build.make_eval_env(cfg, self.factory, cfg.env.evaluator_env_num, render_mode)

    @property
    def _envs_or_data(self) -> dict[str, Any]:
        """The opened envs or data, as an argument of a constructor."""
        return {'env': self.env} if self.data is None else {'data': self.data}

    def make_collector(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialCollector:
        section = cfg.policy.collect.collector
        given = {'policy': build.collecting_policy(cfg, policy), 'seed': cfg.seed, **common}
        return SERIAL_COLLECTOR_REGISTRY.build(section, cfg=section, **self._envs_or_data, **given)

    def make_evaluator(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialEvaluator:
        section, seed = cfg.policy.eval.evaluator, common.get('seed', cfg.seed)
        acting = build.with_opponents(cfg, policy.eval_mode, self.factory.spec, seed)
        return SERIAL_EVALUATOR_REGISTRY.build(
            section, cfg=section, policy=acting, **self._envs_or_data, **{'seed': seed, **common}
        )

    def close(self) -> None:
        for opened in (self.env, self.data):
            if opened is not None:
                opened.close()

    def summary(self, cfg: ExperimentConfig) -> str:
        if cfg.policy.collect.collector.get('data') is not None:
            return f'recorded data of {self.factory.spec.name}'
        return super().summary(cfg)

    @classmethod
    def is_interchangeable(cls, section: Mapping[str, Any]) -> bool:
        """Whether a resumed run can collect with another backend: always, as there is a single random generator."""
        return True

    @classmethod
    def collector_state(cls, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Converts the state of a collector with a single Ray actor."""
        return in_process(state)
