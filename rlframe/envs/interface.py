"""The interface of env managers, the counters that managers share, and DI-engine's functions that create one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from easydict import EasyDict

from rlframe.data.timestep import Array, EnvSpec, IntArray, TimeStep
from rlframe.envs import contract
from rlframe.envs.base_env import EnvFactory
from rlframe.envs.faults import checkpoint_seed, restart_seed
from rlframe.errors import ConfigError
from rlframe.option_names import named
from rlframe.registry import ENV_MANAGER_REGISTRY, ENV_REGISTRY
from rlframe.utils.field import Configurable, to_plain
from rlframe.utils.schema import COUNT, check_state, list_of, maybe
from rlframe.utils.schema import array as array_of


class IEnvManager(Configurable, ABC):
    """N envs whose steps are returned as columns.

    The caller calls ``step`` for envs that are ``ready`` and ``reset`` for envs that finished. ``obs`` has the
    observation of each env for the next action.
    """

    spec: EnvSpec
    """Spaces and limits of one env."""
    env_num: int
    """Number of envs, N."""
    obs: Array
    """Current observation of each env, [N, ...]; not overwritten until ``step`` or ``reset`` has replaced it twice."""

    unsaved: Mapping[int, str] = MappingProxyType({})
    """Envs whose state could not be saved at the last ``restart_lost()`` or restored since then, and why."""

    can_hold = True
    """Whether ready envs may be left out of a step; a vector env always steps all of its envs."""
    why_inexact = ''
    """Why two runs with the same seed may differ, such as envs that answer in any order; empty if they cannot."""
    can_begin_anew = True
    """Whether an env can be reset in the middle of an episode while others go on; one that resets itself cannot."""

    given_seeds: Mapping[int, int] = MappingProxyType({})
    """Seeds that ``seed`` was given and that no reset has used yet, by env."""
    _repeats = False  # whether every episode of an env begins with its given seed

    def seed(self, seed: int | Sequence[int] | Mapping[int, int], dynamic_seed: bool | None = None) -> None:
        """Sets the seeds of the envs' next reset; a collector begins with them.

        An evaluator derives the seeds of its fixed list of episodes from the first one.

        Args:
            seed: Of each env, by position or by env id; an int is that of env 0, and env i gets ``seed + i``.
            dynamic_seed: False: every episode of an env begins with its seed, in managers that can reset single envs.
                By default, later episodes continue with the env's own generator.
        """
        if isinstance(seed, int | np.integer):
            seed = range(int(seed), int(seed) + self.env_num)
        pairs = seed.items() if isinstance(seed, Mapping) else enumerate(seed)
        self.given_seeds = {int(env): int(own) for env, own in pairs}
        if wrong := [env for env in self.given_seeds if not 0 <= env < self.env_num]:
            raise ValueError(f'seed() got seeds for the envs {wrong}; there are {self.env_num} envs')
        self._repeats = dynamic_seed is False

    def _with_given(
        self, env_id: IntArray | None, seed: Sequence[int | None] | None
    ) -> Sequence[int | None] | None:
        """Returns the seeds of a reset: the given ones, or else the envs' seeds from ``seed``."""
        if not self.given_seeds:
            return seed
        ids = range(self.env_num) if env_id is None else env_id.tolist()
        due = [self.given_seeds.get(env) for env in ids]
        if not self._repeats:
            self.given_seeds = {env: own for env, own in self.given_seeds.items() if env not in ids}
        return due if seed is None and any(own is not None for own in due) else seed

    @classmethod
    def describe(cls, factory: EnvFactory) -> None:
        """Tells a factory the spaces of the manager's envs, if it is not the factory that makes them."""

    @classmethod
    @abstractmethod
    def from_factory(
        cls, factory: EnvFactory, env_num: int, cfg: EasyDict | None = None, render_mode: str | None = None
    ) -> IEnvManager:
        """Creates a manager of ``env_num`` envs of a factory."""

    @abstractmethod
    def launch(self) -> None:
        """Creates the envs, unless they exist."""

    @property
    @abstractmethod
    def ready(self) -> IntArray:
        """Ids of the envs that wait for an action, [n]."""

    @property
    def alive(self) -> IntArray:
        """Ids of the envs that were not dropped, [n]; all, unless the manager may continue without a failing env."""
        return np.arange(self.env_num)

    @abstractmethod
    def reset(self, env_id: IntArray | None = None, seed: Sequence[int | None] | None = None) -> None:
        """Begins a new episode in the given envs, or in all.

        Args:
            env_id: The envs, [n]; all if not given.
            seed: Seed of each, or ``None`` to continue with the env's own generator. An env that resets itself uses
                only the seeds given when all envs are reset.
        """

    @abstractmethod
    def step(self, action: Array, env_id: IntArray) -> TimeStep:
        """Steps the given envs, which must be ready, and returns the finished steps."""

    def render(self, env_id: int) -> Array:
        """Returns a picture of one env, uint8 [H, W, C].

        Raises:
            EnvError: If the env cannot render.
        """
        raise NotImplementedError(f'{type(self).__name__} cannot be rendered')

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns the state of every env, as plain data."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> IntArray:
        """Restores every env to the state of ``state_dict()``.

        Returns:
            The envs whose state could not be restored, [n]; they begin a new episode.
        """

    def restart_lost(self) -> IntArray:
        """Begins a new episode, with a seed derived from its own first one, in each env whose state cannot be saved.

        Call it before every ``state_dict()``, so that a resumed run equals an uninterrupted one: ``load_state_dict``
        then begins the same episode.

        Returns:
            The envs that began a new episode, [n].
        """
        return np.zeros(0, np.int64)

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the envs are closed."""

    @abstractmethod
    def close(self) -> None:
        """Closes the envs; may be called twice."""


class Episodes:
    """The seeds, episodes and restarts of N envs, for the manager that steps them.

    Args:
        env_num: Number of envs, N.
        counts: Where to keep ``steps``, ``number`` and ``unchecked``, [N] each; new arrays if not given.
    """

    def __init__(self, env_num: int, counts: Sequence[IntArray] | None = None) -> None:
        self.steps: IntArray
        self.number: IntArray
        self.unchecked: IntArray
        own = np.zeros((3, env_num), np.int64) if counts is None else counts
        self.steps, self.number, self.unchecked = own
        """Env steps of the running episode; episodes begun; env steps still to be checked in full; [N] each."""
        if counts is None:
            self.unchecked[:] = contract.CHECKED_STEPS
        self.restarts = np.zeros(env_num, np.int64)
        """Number of times that each env was replaced after a fault, [N]."""
        self.seed: list[int | None] = [None] * env_num
        """Seed that a caller gave each env last; later ones are derived from it."""
        self.begun: list[int | None] = [None] * env_num
        """Seed that the running episode began with; None: the env continued with its own generator."""

    def detach(self) -> None:
        """Copies the counters, so that they no longer change with the counters of worker processes."""
        self.steps, self.number, self.unchecked = (
            counts.copy() for counts in (self.steps, self.number, self.unchecked)
        )

    def take_seeds(self, env_id: Iterable[int], seed: Sequence[int | None] | None) -> dict[int, int | None]:
        """Notes the seeds that a caller gives these envs, and returns the seed of each."""
        listed = list(env_id)
        seeds = dict(zip(listed, [None] * len(listed) if seed is None else seed, strict=True))
        for env, own in seeds.items():
            if own is not None:
                self.seed[env] = seeds[env] = int(own)
        return seeds

    def begin(self, env_id: IntArray, seeds: Sequence[int | None] | None = None) -> None:
        """Counts a new episode in each of these envs, [n]."""
        self.steps[env_id] = 0
        self.number[env_id] += 1
        for env, own in zip(env_id.tolist(), [None] * len(env_id) if seeds is None else seeds, strict=True):
            self.begun[env] = own

    def place(self, env: int) -> tuple[int, int]:
        """Returns the running episode of an env and the last env step of it that was begun."""
        return int(self.number[env]), int(self.steps[env])

    def is_at_start(self, env: int) -> bool:
        """Whether a reset with the seed of the last reset restores the state of an env."""
        return self.steps[env] == 0 and self.begun[env] is not None

    def are_at_start(self) -> bool:
        """Whether this holds for all envs."""
        return not self.steps.any() and None not in self.begun

    def restart_seed(self, env: int) -> int | None:
        """Returns the seed of the first episode of an env's replacement."""
        return restart_seed(self.seed[env], int(self.restarts[env]))

    def checkpoint_seeds(self, env_id: Iterable[int] | None = None) -> dict[int, int | None]:
        """Returns the seeds of episodes that begin at a checkpoint, in these envs or in all."""
        listed = range(len(self.seed)) if env_id is None else env_id
        return {env: checkpoint_seed(self.seed[env], int(self.number[env])) for env in listed}

    def state_dict(self) -> dict[str, Any]:
        """Returns the state as plain data."""
        return {
            'steps': self.steps.copy(),
            'episodes': self.number.copy(),
            'unchecked': self.unchecked.copy(),
            'restarts': self.restarts.copy(),
            'seed': list(self.seed),
            'begun': list(self.begun),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``.

        Raises:
            CheckpointStateError: If it is not the state of this many envs.
        """
        count = len(self.seed)
        ints = array_of('iu', (count,))
        seeds = list_of(maybe(COUNT), count)
        counts = dict.fromkeys(('steps', 'episodes', 'unchecked', 'restarts'), ints)
        check_state(state, {**counts, 'seed': seeds, 'begun': seeds})
        self.steps[:], self.number[:] = state['steps'], state['episodes']
        self.unchecked[:], self.restarts[:] = state['unchecked'], state['restarts']
        self.seed, self.begun = list(state['seed']), list(state['begun'])


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
    from rlframe.envs.wrappers import SeededEnv  # it imports gymnasium, which options do not need

    return SeededEnv(_factory(cfg).create())


def _factory(cfg: Mapping[str, Any]) -> EnvFactory:
    own = {name: value for name, value in cfg.items() if name != 'is_train'}
    factory = ENV_REGISTRY.build({'type': 'gym', **own}, EasyDict(own))
    return factory.for_training() if cfg.get('is_train') else factory


def create_env_manager(
    manager_cfg: Mapping[str, Any] | str, env_fn: Any, env_num: int | None = None, **options: Any
) -> IEnvManager:
    """Creates the env manager named by ``manager_cfg.type``, or by ``manager_cfg``.

    Args:
        manager_cfg: The section ``env.manager`` of a config, or a name.
        env_fn: Functions that each create an env: with ``get_vec_env_setting``, ``partial(env_fn, cfg=cfg)`` of each
            config; a manager of vector envs takes no other ones. Or an id of Gymnasium, a class or a function.
        env_num: Number of envs, if ``env_fn`` is not a list; by default 1.
        options: Options of the manager, if it is given by its name.

    Raises:
        ConfigError: If it has no such option.
    """
    section, rest = named(ENV_MANAGER_REGISTRY, manager_cfg, options)
    if rest:
        raise TypeError(f'{", ".join(rest)}: options belong to the section, or to the name, of a manager')
    kind: Any = ENV_MANAGER_REGISTRY.get_cls(section)
    if env_num is None and (isinstance(env_fn, str) or not isinstance(env_fn, Iterable)):
        env_num = 1
    if env_num is not None and not (isinstance(env_num, int) and env_num > 0):
        raise ConfigError('bad number of envs', where='env_num', got=env_num, expected='an int >= 1')
    if env_num is not None:
        made: IEnvManager = kind.from_factory(_factory({'env_id': env_fn}), env_num, section)
        return made
    cfgs = [
        each.keywords.get('cfg', *each.args)
        for each in env_fn
        if isinstance(each, partial) and each.func is make_env
    ]
    if len(cfgs) == len(env_fn) and all(cfg == cfgs[0] for cfg in cfgs):
        made = kind.from_factory(_factory(cfgs[0]), len(cfgs), section)
        return made
    made = kind(list(env_fn), section)
    return made
