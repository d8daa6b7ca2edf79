"""Env manager for EnvPool, which steps envs in its own threads."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from easydict import EasyDict

from rlframe.data.observation import (
    ACTION_MASK,
    any_action,
    bounds_of,
    fields_of,
    has_mask,
    mask_parts,
    zero_obs,
)
from rlframe.data.timestep import NO_INFO, Array, BoolArray, EnvSpec, IntArray, TimeStep
from rlframe.envs import contract
from rlframe.envs.base_env import EnvFactory, picture_of
from rlframe.envs.gym_env import import_needed
from rlframe.envs.interface import Episodes, IEnvManager
from rlframe.envs.vector_env import rows_of_info
from rlframe.errors import (
    ActionError,
    ConfigError,
    EnvError,
    EnvStartError,
    IncompatibleError,
    MissingDependencyError,
)
from rlframe.registry import ENV_MANAGER_REGISTRY, nearest
from rlframe.utils.field import Section, option
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import gymnasium

    from rlframe.envs.atari_vector import GameRows
else:
    gymnasium = LazyModule('gymnasium')

SEEDS = 2**31
"""EnvPool's seeds are below this number."""
NO_LIMIT = 2**31 - 1
"""EnvPool's time limit of a task that has none."""
OWN_KEYS = ('env_id', 'players', 'elapsed_step')
"""Keys that EnvPool adds to every info."""
MOST_CLASSES = 256
"""Most values of an integer of an action that are classes."""
COMBINED = 'use_combined_action'
"""EnvPool's option of a game whose buttons are otherwise numbers without bounds."""
GAME_INFOS = {'info:current_player', 'info:legal_action_mask', 'info:players.id'}
"""Infos of EnvPool's games whose players move one at a time."""


class PoolConfig(Section):
    """Options of ``EnvPoolManager``."""

    batch_size: int | None = option(
        None,
        range='[1, inf)',
        unit='envs',
        doc='number of envs that a step returns; None: all. With fewer, slow envs do not delay the others',
    )
    num_threads: int | None = option(
        None,
        range='[1, inf)',
        unit='threads',
        doc='None: chosen by EnvPool',
        may_change=True,
    )


@ENV_MANAGER_REGISTRY.register('env_pool')
class EnvPoolManager(IEnvManager):
    """Steps N envs of EnvPool; ``env.env_id`` is its task id, ``env.kwargs`` go to ``envpool.make``.

    A step returns the first ``batch_size`` envs that are done. With a batch of all N envs, any env may be left out of a
    step; with a smaller one, every ready env must act. A finished env starts its next episode when it is reset; what
    EnvPool reports for the reset is in no step. Seeds are set when a pool is created: a reset of all envs creates a new
    pool, with the given seeds or with seeds derived from the first ones. The state of the envs cannot be saved. An env
    that terminates in the very step of its time limit is truncated, as EnvPool does not distinguish the two. A mask that allows
    nothing allows everything: in such mazes of Jumanji, any action ends the episode.

    Args:
        task_id: EnvPool's name of the env.
        env_num: Number of envs, N.
        cfg: Options of the manager.
        kwargs: Options of the env.
        rows: Makes what turns EnvPool's rows into others, for N envs; by default they stay as they are.

    Raises:
        MissingDependencyError: If EnvPool is not installed.
        EnvError: If the task or its options are unknown.
        ConfigError: If there are fewer envs than a batch contains.
    """

    _cfg: PoolConfig

    def __init__(
        self,
        task_id: str,
        env_num: int,
        cfg: EasyDict | None = None,
        kwargs: Mapping[str, Any] | None = None,
        rows: Callable[[int], GameRows] | None = None,
    ) -> None:
        self._rows = rows(env_num) if rows is not None else None
        self._cfg = self.resolve_config(cfg)
        self._task_id = task_id
        self._kwargs = dict(kwargs or {})
        self.env_num = env_num
        self._all = np.arange(env_num)
        self._batch_size = self._cfg.batch_size or env_num
        if self._batch_size > env_num:
            raise ConfigError(
                'a batch of more envs than the manager has',
                where='env.manager.batch_size',
                got=self._batch_size,
                expected=f'at most {env_num}',
            )
        self.can_hold = self.can_begin_anew = self._batch_size == env_num
        if not self.can_hold:
            self.why_inexact = f'each step takes the {self._batch_size} of {env_num} envs that answer first'
        self._pool: Any = None
        self._is_closed = True
        self.launch()

    @classmethod
    def from_factory(
        cls, factory: EnvFactory, env_num: int, cfg: EasyDict | None = None, render_mode: str | None = None
    ) -> Self:
        task = factory.pool_task(render_mode)
        manager = cls(task.task_id, env_num, cfg, task.kwargs, task.rows)
        factory.spec = manager.spec
        return manager

    @classmethod
    def describe(cls, factory: EnvFactory) -> None:
        task = factory.pool_task()
        own = task_spec(task.task_id, task.kwargs)
        factory.spec = _spec_of(own, task.task_id, task.kwargs, None if task.rows is None else task.rows(1))

    def launch(self) -> None:
        if not self.closed:
            return
        own = task_spec(self._task_id, self._kwargs)
        self.spec = _spec_of(own, self._task_id, self._kwargs, self._rows)
        self._own_actions = own.gymnasium_action_space
        contract.check_spaces([], self.spec)
        self._is_closed = False
        self._episodes = Episodes(self.env_num)
        self._unchecked = contract.CHECKED_STEPS  # steps and resets still checked for loose ends
        self._remarks = contract.Remarks()
        self._waits = np.zeros(self.env_num, np.bool_)  # for an action, [N]
        self._is_over = np.zeros(self.env_num, np.bool_)  # waits for a reset, [N]
        self._begins = np.zeros(self.env_num, np.bool_)  # its next row is the first obs of an episode, [N]
        self.obs = zero_obs(self.spec.observation_space, self.env_num)

    @property
    def ready(self) -> IntArray:
        return self._all if self._waits.all() else np.flatnonzero(self._waits)

    @property
    def closed(self) -> bool:
        return self._is_closed

    def reset(self, env_id: IntArray | None = None, seed: Sequence[int | None] | None = None) -> None:
        self.launch()
        seed = self._with_given(env_id, seed) if env_id is None else seed
        if env_id is None or self._pool is None:
            episodes = self._episodes
            given = (
                episodes.take_seeds(self._all.tolist(), seed)
                if seed is not None
                else episodes.checkpoint_seeds()
            )
            self._begin_all(list(given.values()))
            return
        self._send_resets(env_id)

    def _begin_all(self, seeds: Sequence[int | None]) -> None:
        """Creates a pool whose envs start with these seeds, [N]; None: seeds from the system's entropy."""
        drawn = np.random.SeedSequence().generate_state(self.env_num)
        used = [int(d if own is None else own) for own, d in zip(seeds, drawn, strict=True)]
        self._pool = None  # its threads end before new ones start
        self._pool = make_pool(
            self._task_id,
            num_envs=self.env_num,
            batch_size=self._batch_size,
            num_threads=self._cfg.num_threads or 0,
            seed=[own % SEEDS for own in used],
            **self._kwargs,
        )
        self._episodes.begin(self._all, used)
        self._waits[:] = self._is_over[:] = False
        self._begins[:] = True
        if self._rows is not None:
            self._rows.forget(self._all)
        self._pool.async_reset()
        for _ in range(self.env_num // self._batch_size):
            self._take()

    def _send_resets(self, env_id: IntArray) -> None:
        """Starts an episode in some envs, which must not be stepping."""
        if not self.can_hold and not self._is_over[env_id].all():
            raise ValueError(
                f'reset() of env {env_id.tolist()}, of which some are in the middle of an episode: a pool whose batch_size'
                ' is less than its number of envs starts no episode before the previous one has ended, unless all envs are reset'
            )
        self._episodes.begin(env_id)
        self._is_over[env_id] = False
        continued = env_id[:0] if self._rows is None else env_id[self._rows.goes_on[env_id]]
        fresh = np.setdiff1d(env_id, continued) if len(continued) else env_id
        if not self.can_hold:
            self._start(fresh, any_action(self.spec.action_space))
        elif len(fresh):
            obs, info = self._pool.reset(fresh.astype(np.int32))
            self._begins[fresh] = True
            nothing = np.zeros(len(fresh))
            self._handle(obs, nothing, nothing.astype(np.bool_), nothing.astype(np.bool_), info)
        if self._rows is not None and len(continued):
            self._start(continued, self._rows.opening)
            if self.can_hold:
                self._take()

    def _start(self, env_id: IntArray, action: Any) -> None:
        """Begins an episode in some envs by an action."""
        if len(env_id):
            self._waits[env_id], self._begins[env_id] = False, True
            self._send(np.array([action] * len(env_id), self.spec.action_space.dtype), env_id)

    def _send(self, action: Array, env_id: IntArray) -> None:
        """Sends actions to EnvPool, which takes a row of integers where the policy chooses one of their combinations."""
        own = self._own_actions
        if action.ndim == 1 and own.shape and type(own).__name__ == 'Box':
            action = np.stack(np.unravel_index(action, _counts(own)), 1).astype(own.dtype) + own.low
        self._pool.send(action, env_id.astype(np.int32))

    def _take_first_obs(self, obs: Array, env_id: IntArray) -> None:
        contract.check_first_obs(obs, env_id, self.spec, self._episodes.place)
        self.obs = self.obs.copy()
        self.obs[env_id] = obs

    def _as_declared(self, obs: Any, count: int) -> Array:
        """Checks the observations of ``count`` envs and returns them in the declared dtype."""
        remarks = self._remarks if self._unchecked else None
        self._unchecked = max(self._unchecked - 1, 0)
        if has_mask(self.spec.observation_space):
            mask = obs[ACTION_MASK].reshape(count, -1)
            parts = mask_parts(self.spec.action_space)
            some = np.logical_or.reduceat(mask, np.cumsum((0, *parts[:-1])), axis=1)
            obs = {**obs, ACTION_MASK: mask | ~np.repeat(some, parts, axis=1)}
        return contract.check_rows(obs, self.spec, count, 'step() of EnvPool', remarks)

    def step(self, action: Array, env_id: IntArray) -> TimeStep:
        if self._pool is None:
            raise ValueError('step() of envs that are closed; reset() creates them again')
        if not self._waits[env_id].all():
            raise ValueError(
                f'step() of env {env_id.tolist()}, of which only {self.ready.tolist()} are ready'
            )
        if len(action) != len(env_id):
            raise ActionError(f'{len(action)} actions were given for {len(env_id)} envs')
        if self._unchecked:
            for env, own in zip(env_id.tolist(), action, strict=True):
                contract.check_action(own, self.spec, env)
        self._waits[env_id] = False
        self._episodes.steps[env_id] += 1
        if len(env_id):
            self._send(action, env_id)
        busy = self.env_num - np.count_nonzero(self._waits | self._is_over)
        if busy < (1 if self.can_hold else self._batch_size):
            raise ValueError(
                f'only {busy} envs are busy: EnvPool would wait forever for a batch of {self._batch_size}'
            )
        return self._take(env_id)

    def _take(self, acting: IntArray | None = None) -> TimeStep:
        """Receives the next batch and returns its steps."""
        obs, reward, terminated, truncated, info = self._pool.recv()
        return self._handle(obs, reward, terminated, truncated, info, acting)

    def _handle(
        self,
        obs: Any,
        reward: Array,
        terminated: BoolArray,
        truncated: BoolArray,
        info: Mapping[str, Any],
        acting: IntArray | None = None,
    ) -> TimeStep:
        """Takes the first observations among the rows of a batch, and returns its steps."""
        # rows as rlframe stores them
        env_id = info['env_id'].astype(np.int64)
        infos: Sequence[Mapping[str, Any]]
        if self._rows is not None:
            given = (env_id, obs, reward, terminated, truncated, info)
            obs, reward, terminated, truncated, infos, _ = self._rows.step(*given, self._begins[env_id])
        else:
            infos = _rows_of_info(info, len(env_id), self.spec)
        obs = self._as_declared(obs, len(env_id))
        contract.check_columns(reward, terminated, truncated, self.spec, len(env_id))
        # split first observations from steps
        self._waits[env_id] = True
        stepped = ~self._begins[env_id]
        if stepped.all():
            if acting is not None and np.array_equal(env_id, acting):
                env_id = acting
        else:
            self._take_first_obs(obs[~stepped], env_id[~stepped])
            self._begins[env_id] = False
            infos = [info for info, is_kept in zip(infos, stepped, strict=True) if is_kept]
            obs, reward, env_id = obs[stepped], reward[stepped], env_id[stepped]
            terminated, truncated = terminated[stepped], truncated[stepped]
        reward = reward.astype(np.float64, copy=False)
        step = TimeStep(obs, reward, terminated, truncated, infos, env_id)
        contract.check_values(step, self.spec, self._episodes.place)
        self.obs = self.obs.copy()
        self.obs[env_id] = obs
        over = env_id[step.done]
        self._waits[over], self._is_over[over] = False, True
        return step

    def render(self, env_id: int) -> Array:
        index = np.array([env_id], np.int32)
        return picture_of(lambda: self._pool.render(index)[0], self._task_id)

    def restart_lost(self) -> IntArray:
        if self._episodes.are_at_start():
            return self._all[:0]
        self.reset()
        self.unsaved = dict.fromkeys(range(self.env_num), 'EnvPool has neither of the two')
        return self._all

    def state_dict(self) -> dict[str, Any]:
        return self._episodes.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> IntArray:
        self.launch()
        self.unsaved = {}
        self._episodes.load_state_dict(state)
        if not self._episodes.are_at_start():
            self.reset()
            return self._all
        self._begin_all(list(self._episodes.begun))
        self._episodes.number[:] = state['episodes']
        return self._all[:0]

    def close(self) -> None:
        pool = self._pool
        self._pool = None
        self._is_closed = True
        self._waits[:] = False
        if pool is not None:
            pool.close()


def _import() -> Any:
    return import_needed('envpool', 'env_pool', 'env.manager.type')


def task_ids() -> Sequence[str]:
    """Returns the ids of all tasks of EnvPool."""
    ids: Sequence[str] = _import().list_all_envs()
    return ids


def family_of(task_id: str) -> str:
    """Returns the family of a task of EnvPool: its module, such as ``mujoco.gym``."""
    _import()
    from envpool.registration import registry

    module: str = registry.specs[task_id][0]
    return module.partition('.')[2]


def task_spec(task_id: str, kwargs: Mapping[str, Any]) -> Any:
    """Returns EnvPool's spec of a task, without creating an env.

    Raises:
        EnvError: If EnvPool has no such task (the nearest is named), or does not accept its options.
        MissingDependencyError: If EnvPool, or a library that the task needs, is not installed.
    """
    envpool = _import()
    known = task_ids()
    if task_id not in known:
        raise EnvError(f'EnvPool has no task {task_id!r}.{nearest(task_id, known)}', where='env.env_id')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # its bounds are of float64
        try:
            return envpool.make_spec(task_id, **kwargs)
        except ImportError as error:
            raise MissingDependencyError(
                f'{task_id!r} needs a library that is not installed: {error}', where='env.env_id'
            ) from error
        except (TypeError, RuntimeError) as error:
            raise EnvError(
                f'EnvPool does not accept these options for {task_id!r}: {error}', where='env.kwargs'
            ) from error


def player_num(spec: Any) -> int:
    """Returns the number of players of a task, by EnvPool's spec of it."""
    return int(getattr(spec.config, 'max_num_players', 1))


def moves_in_turn(spec: Any) -> bool:
    """Whether a task is a game whose players move one at a time, by EnvPool's spec of it."""
    return player_num(spec) > 1 and set(spec.state_array_spec) >= GAME_INFOS


def _spec_of(spec: Any, task_id: str, kwargs: Mapping[str, Any], rows: GameRows | None) -> EnvSpec:
    """Returns the spec of a task of one player, with the observations of ``rows``.

    Raises:
        EnvError: If several players act in it.
        IncompatibleError: If its actions are numbers without bounds, and an option makes them classes.
    """
    if (count := player_num(spec)) > 1:
        turns = f'env.type=pettingzoo plays it, as env.env_id=envpool:{task_id}.'
        raise EnvError(
            f'{task_id!r} has {count} players, and EnvPool gives a row for each',
            where='env.env_id',
            remedy=turns
            if moves_in_turn(spec)
            else 'rlframe list env pettingzoo: shows games that can be played.',
        )
    # a threshold of EnvPool may be the default of a family of tasks, such as 0 or 10
    registered = gymnasium.registry.get(task_id)
    limit = spec.config.max_episode_steps
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # as above
        obs, action = _with_classes(spec.gymnasium_observation_space, spec.gymnasium_action_space)
    described = EnvSpec(
        observation_space=obs if rows is None else rows.space,
        action_space=action,
        name=task_id,
        reward_threshold=kwargs.get('reward_threshold', getattr(registered, 'reward_threshold', None)),
        max_episode_steps=None if limit == NO_LIMIT else limit,
    )
    if hasattr(spec.config, COMBINED) and not np.isfinite(bounds_of(described.action_space)).all():
        raise IncompatibleError(
            f'the actions of {task_id!r} are {action.shape[0]} numbers without bounds',
            where='env.kwargs',
            remedy=f"With env.kwargs={{'{COMBINED}': True}} they are classes, a combination of buttons each.",
        )
    return described


def _with_classes(obs: Any, action: Any) -> tuple[Any, Any]:
    """Returns the spaces of a task with a Box of few integers as classes, and its mask as one row.

    If the mask has an entry for each combination of the integers, the combinations are the classes of one Discrete.
    """
    if type(action).__name__ != 'Box' or np.dtype(action.dtype).kind not in 'iu':
        return obs, action
    spaces: Any = gymnasium.spaces
    counts = _counts(action)
    if max(counts) > MOST_CLASSES:
        return obs, action
    classes = spaces.MultiDiscrete(counts, dtype=action.dtype.type, start=action.low)
    if ACTION_MASK not in fields_of(obs):
        return obs, classes
    parts = dict(obs.spaces)
    shape = parts.pop(ACTION_MASK).shape
    size = math.prod(shape)
    flat = spaces.Dict([*parts.items(), (ACTION_MASK, spaces.MultiBinary(size))], sort_keys=False)
    return flat, spaces.Discrete(size) if shape == counts else classes


def _counts(space: Any) -> tuple[int, ...]:
    """Returns the number of values of each integer of a Box."""
    return tuple((space.high.astype(np.int64) - space.low + 1).tolist())


def make_pool(task_id: str, **options: Any) -> Any:
    """Creates envs of a task.

    Raises:
        EnvStartError: If EnvPool cannot.
    """
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # as above
        try:
            pool = _import().make(task_id, env_type='gymnasium', **options)
            pool.observation_space  # noqa: B018  it is made at the first look, and kept
        except (AssertionError, RuntimeError, ValueError) as error:
            raise EnvStartError(f'EnvPool cannot make {task_id!r}: {error}', where='env.env_id') from error
    return pool


def _rows_of_info(info: Mapping[str, Any], count: int, spec: EnvSpec) -> Sequence[Mapping[str, Any]]:
    told = {name: values for name, values in info.items() if name not in OWN_KEYS}
    return rows_of_info(told, count, spec) if told else (NO_INFO,) * count
