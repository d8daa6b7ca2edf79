"""Runs any ``gymnasium.vector.VectorEnv`` as an env manager, in any autoreset mode."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from easydict import EasyDict

from rlframe.data.observation import BAD_OBS, any_action, pack, pack_into, zero_obs
from rlframe.data.timestep import NO_INFO, Array, BoolArray, EnvSpec, IntArray, TimeStep, is_finite, spec_of
from rlframe.envs import contract
from rlframe.envs.base_env import EnvFactory, acting_by_rows, picture_of, seed_spaces
from rlframe.envs.env_manager import BaseEnvManager
from rlframe.envs.faults import start_failed, vector_crashed
from rlframe.envs.interface import Episodes, IEnvManager
from rlframe.envs.state import EnvState, Refusal
from rlframe.envs.state_objects import MismatchError
from rlframe.errors import EnvContractError, EnvError, RLFrameError
from rlframe.registry import ENV_MANAGER_REGISTRY
from rlframe.utils.field import ResolvedConfig
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import part as saved_part

if TYPE_CHECKING:
    import gymnasium as gym

    from rlframe.envs.tensor import TensorEnvState
else:
    gym = LazyModule('gymnasium')


class VectorEnvManager(IEnvManager):
    """Body of managers that step the N envs of a Gymnasium vector env.

    Its three autoreset modes give the same transitions. NEXT_STEP envs use a step of the others to begin an episode:
    they are not ``ready`` meanwhile, and their output in that step is no transition. SAME_STEP envs give the true last
    observation together with the first one of the next episode. DISABLED envs are reset on request. Seeds are used when
    all envs are reset together; afterwards the vector env continues with its own generators.

    Args:
        env: The vector env, or a function that creates it.
        cfg: Options of the manager.
    """

    _cfg: ResolvedConfig
    can_hold = False
    _time_limit: int | None = None

    def __init__(
        self, env: gym.vector.VectorEnv[Any, Any, Any] | Callable[[], Any], cfg: EasyDict | None = None
    ) -> None:
        self._cfg = self.resolve_config(cfg)
        self._make: Callable[[], Any] = env if callable(env) else lambda: env
        self._env: Any = None
        self.launch()

    def launch(self) -> None:
        if self._env is not None:
            return
        env = self._env = acting_by_rows(self._make())
        self._state = self._state_of(env)
        self.env_num = env.num_envs
        self.spec = spec_of(env)
        self._remarks = contract.Remarks()
        self._autoreset = _autoreset_of(env, self.spec, self._remarks)
        self.can_begin_anew = self._autoreset == 'Disabled'
        if self._time_limit is not None:
            self.spec = dataclasses.replace(self.spec, max_episode_steps=self._time_limit)
        contract.check_spaces([], self.spec)
        self._all = np.arange(self.env_num)
        self._ready: IntArray = self._all
        self._episodes = Episodes(self.env_num)
        self._unchecked = contract.CHECKED_STEPS  # steps and resets still checked for loose ends
        self._sets = [zero_obs(self.spec.observation_space, self.env_num) for _ in range(2)]  # used in turn
        self._action = np.zeros(
            (self.env_num, *(self.spec.action_space.shape or ())), self.spec.action_space.dtype
        )
        self._action[:] = any_action(self.spec.action_space)

    def _state_of(self, env: Any) -> EnvState | TensorEnvState:
        """Returns the functions that capture and restore the state of the vector env."""
        return EnvState(env)

    @property
    def ready(self) -> IntArray:
        return self._ready

    @property
    def closed(self) -> bool:
        return self._env is None

    def reset(self, env_id: IntArray | None = None, seed: Sequence[int | None] | None = None) -> None:
        self.launch()
        seed = self._with_given(env_id, seed) if env_id is None else seed
        ids = self._all if env_id is None else env_id
        self._episodes.begin(ids)
        if len(ids) == self.env_num and (env_id is None or seed is not None or self._autoreset == 'Disabled'):
            first = seed[0] if seed is not None else None
            if seed is not None:  # otherwise seeded from system entropy; they are part of the state
                for member, own in zip(self._members(), [first, *seed], strict=False):
                    seed_spaces(member, own)
                self._episodes.begun = list(self._episodes.take_seeds(self._all.tolist(), seed).values())
            own_seed = first if self._has_one_generator() or seed is None else list(seed)
            self._take_first_obs('reset()', seed=own_seed)
            self._ready = self._present()
        elif self._autoreset == 'Disabled':
            self._take_first_obs('reset()', options={'reset_mask': np.isin(self._all, ids)})
        elif self._autoreset == 'NextStep':
            waiting = np.zeros(self.env_num, bool)
            waiting[self._ready] = True
            waiting[ids] = False
            (self._ready,) = waiting.nonzero()
            if len(self._ready) == 0:
                self._take_first_obs('step()', self._action)
                self._ready = self._all

    def _take_first_obs(self, what: str, *given: Any, **options: Any) -> None:
        """Calls ``reset`` or ``step`` of the vector env, and takes the first observations of episodes from its answer."""
        obs, *_ = self._answer(what, *given, **options)
        self.obs = zero_obs(self.spec.observation_space, self.env_num)
        self._copy(obs, what, self.obs)
        contract.check_first_obs(self.obs, self._all, self.spec, self._episodes.place)

    def _answer(self, what: str, *given: Any, **options: Any) -> tuple[Any, ...]:
        """Returns the result of ``reset`` or ``step`` of the vector env.

        Raises:
            EnvCrashedError: If it raises; with the running episode and its step.
            EnvContractError: If its answer is not of the form that Gymnasium demands.
        """
        call = self._env.step if what == 'step()' else self._env.reset
        try:
            answer = call(*given, **options)
        except RLFrameError:
            raise
        except Exception as error:
            raise vector_crashed(what, self._episodes.number, self._episodes.steps, error) from error
        checked = contract.form_of(answer, self.spec, f'{what} of the vector env')
        remedy = 'a vector env gives it as a part of its observations; env.action_mask=True makes single envs'
        contract.remark_mask(checked[-1], self.spec, self._remarks, remedy)
        return checked

    def _copy(self, obs: Any, what: str, rows: Array) -> None:
        """Checks observations of all envs and copies them, as the vector env may write to its own arrays.

        Args:
            obs: The observations.
            what: Their source, for the error.
            rows: Receives them in the declared type, [N, ...].
        """
        is_usual = isinstance(obs, np.ndarray) and obs.shape == rows.shape and obs.dtype == rows.dtype
        if is_usual and not self._unchecked:
            np.copyto(rows, obs)
            return
        if rows.dtype.names and not self._unchecked:
            with suppress(*BAD_OBS):  # check_rows raises an error that names the row
                pack_into(obs, rows)
                return
        remarks = self._remarks if self._unchecked else None
        self._unchecked = max(self._unchecked - 1, 0)
        checked = contract.check_rows(obs, self.spec, self.env_num, f'{what} of the vector env', remarks)
        np.copyto(rows, checked)

    def _present(self) -> IntArray:
        """Returns the envs that wait for an action: all except agents that are absent from their game."""
        present = getattr(self._env.unwrapped, 'present_agents', None)
        return self._all if present is None or present.all() else np.flatnonzero(present)

    def _has_one_generator(self) -> bool:
        """Whether the vector env draws all randomness from one generator, as native ones that take one seed do."""
        return not isinstance(self._env.unwrapped, gym.vector.SyncVectorEnv | gym.vector.AsyncVectorEnv)

    def step(self, action: Array, env_id: IntArray) -> TimeStep:
        whole = len(env_id) == self.env_num
        if self._unchecked:
            for env, own in zip(env_id.tolist(), action, strict=True):
                contract.check_action(own, self.spec, env)
        if whole:
            given = action
        else:
            given = self._action.copy()
            given[env_id] = action
        # step all envs
        obs, *columns, info = self._answer('step()', given)
        self._sets.reverse()
        self._copy(obs, 'step()', self._sets[0])
        self.obs = obs = self._sets[0]
        reward, terminated, truncated = (np.array(column) for column in columns)
        contract.check_columns(reward, terminated, truncated, self.spec, self.env_num)
        # episodes that ended, and begun ones
        self._ready = self._present()
        infos: Sequence[Any] = rows_of_info(info, self.env_num, self.spec) if info else ()
        if self._autoreset == 'SameStep' and (done := terminated | truncated).any():
            begun = np.flatnonzero(done)
            contract.check_first_obs(
                obs[begun], begun, self.spec, lambda i: (self._episodes.place(i)[0] + 1, 0)
            )
            obs, infos = self._put_final(obs, done, info, infos)
        # rows of the given envs
        reward = reward.astype(np.float64, copy=False)
        if not whole:
            obs, reward = obs[env_id], reward[env_id]
            terminated, truncated = terminated[env_id], truncated[env_id]
            infos = [infos[i] for i in env_id.tolist()] if info else ()
        self._episodes.steps[env_id] += 1
        step = TimeStep(obs, reward, terminated, truncated, infos or (NO_INFO,) * len(env_id), env_id)
        contract.check_values(step, self.spec, self._episodes.place)
        if not whole and (self.obs.dtype.names or not is_finite(self.obs)):
            waited = np.ones(self.env_num, bool)
            waited[env_id] = False
            others = np.flatnonzero(waited)  # they start an episode, instead of a step
            contract.check_first_obs(self.obs[others], others, self.spec, self._episodes.place)
        return step

    def _put_final(
        self, obs: Array, done: BoolArray, info: Mapping[str, Any], infos: Sequence[Any]
    ) -> tuple[Array, Sequence[Any]]:
        """Returns observations and infos of a step, with the last observations and infos of ended episodes.

        Raises:
            EnvContractError: If the vector env does not tell the last observation of each.
        """
        finished = np.flatnonzero(done)
        final = info.get('final_obs')
        if final is None or not np.asarray(info.get('_final_obs', done))[finished].all():
            raise EnvContractError(
                f'{self.spec.name}: episodes of the envs {finished.tolist()} ended, and the info of the vector env has no'
                f" 'final_obs' of them, only {list(info)}",
                remedy="A vector env of AutoresetMode.SAME_STEP gives the last observations of episodes in info['final_obs'].",
            )
        obs = obs.copy()
        rows = list(infos)
        last = rows_of_info(info['final_info'], self.env_num, self.spec) if 'final_info' in info else rows
        for i in finished.tolist():
            try:
                obs[i] = pack(self.spec.observation_space, _row_of(final, i), 'unsafe')
            except BAD_OBS as error:
                raise EnvContractError(
                    f"{self.spec.name}: info['final_obs'] of env {i} is no observation: {error}"
                ) from error
            rows[i] = last[i]
        return obs, rows

    def render(self, env_id: int) -> Array:
        return picture_of(lambda: self._env.render()[env_id], self.spec.name)

    def restart_lost(self) -> IntArray:
        state = self._state.capture()
        self.unsaved = dict.fromkeys(range(self.env_num), state.reason) if isinstance(state, Refusal) else {}
        if not self.unsaved or self._episodes.are_at_start():
            return self._all[:0]
        self._begin_anew()
        return self._all

    def _begin_anew(self) -> None:
        """Begins a new episode in all envs, with seeds derived from their own first ones."""
        own = list(self._episodes.seed)
        seeds = list(self._episodes.checkpoint_seeds().values())
        self.reset(seed=None if None in seeds else seeds)
        self._episodes.seed = own

    def state_dict(self) -> dict[str, Any]:
        state = self._state.capture()
        return {
            'obs': self.obs.copy(),
            'ready': self._ready.copy(),
            **self._episodes.state_dict(),
            'envs': {} if isinstance(state, Refusal) else {'all': state},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> IntArray:
        self.launch()
        self._episodes.load_state_dict(state)
        self.obs = state['obs'].copy()
        self._ready = state['ready'].copy()
        self.unsaved = {}
        if self._restored(state['envs']):
            return self._all[:0]
        if not self._episodes.are_at_start():
            self._begin_anew()
            return self._all
        self.reset(seed=list(self._episodes.begun))
        self._episodes.load_state_dict(state)
        return self._all[:0]

    def _restored(self, states: Mapping[str, Any]) -> bool:
        """Restores the vector env, if its state was saved and fits."""
        if 'all' not in states:
            return False
        try:
            with saved_part('envs.all'):
                self._state.restore(states['all'])
        except MismatchError as error:
            self.unsaved = dict.fromkeys(range(self.env_num), str(error))
        return not self.unsaved

    def _members(self) -> list[Any]:
        """Returns the objects that hold the state: the vector env, and the envs of a SyncVectorEnv."""
        own = self._env.unwrapped
        return [own, *own.envs] if isinstance(own, gym.vector.SyncVectorEnv) else [own]

    def close(self) -> None:
        env = self._env
        self._env = None
        if env is not None:
            env.close()


@ENV_MANAGER_REGISTRY.register('gym_vector')
class GymVectorEnvManager(VectorEnvManager):
    """Steps N envs in their own vector form, or one by one, as ``base`` does, where they have none; see ``VectorEnvManager``."""

    @classmethod
    def from_factory(
        cls, factory: EnvFactory, env_num: int, cfg: EasyDict | None = None, render_mode: str | None = None
    ) -> IEnvManager:
        made = [_make_vector(factory, env_num, render_mode)]
        if made[0] is None:
            return BaseEnvManager.from_factory(factory, env_num, None, render_mode)
        manager = cls(lambda: made.pop() if made else _make_vector(factory, env_num, render_mode), cfg)
        # Gymnasium's vector envs do not report the limit of their envs
        if manager.spec.max_episode_steps is None:
            manager._time_limit = factory.spec.max_episode_steps
            manager.spec = dataclasses.replace(manager.spec, max_episode_steps=manager._time_limit)
        return manager


def _make_vector(factory: EnvFactory, env_num: int, render_mode: str | None) -> Any:
    try:
        env = factory.create_vector(env_num, render_mode)
    except RLFrameError:
        raise
    except Exception as error:
        raise start_failed(0, error) from error
    if getattr(env, 'gives_tensors', False):
        raise EnvError(
            f'{type(env).__name__} gives tensors, and this manager takes arrays',
            where='env.manager.type',
            got='gym_vector',
            expected="'torch_vector'",
        )
    return env


def rows_of_info(info: Mapping[str, Any], env_num: int, spec: EnvSpec) -> list[dict[str, Any]]:
    """Turns a vector env's info, arrays with masks, into one dict per env.

    Raises:
        EnvContractError: If an entry does not have a value for each env.
    """
    rows: list[dict[str, Any]] = [{} for _ in range(env_num)]
    for name, values in info.items():
        if name.startswith('_') or name in ('final_obs', 'final_info'):
            continue
        present = info.get(f'_{name}', np.ones(env_num, bool))
        if isinstance(values, Mapping):
            values = rows_of_info(values, env_num, spec)
        elif isinstance(values, np.ndarray) and values.ndim > 1:
            values = values.copy()  # rows would be views of an array that the env may write to
        contract.check_info_column(name, values, spec, env_num)
        for i in np.flatnonzero(present):
            rows[i][name] = values[i]
    return rows


def _row_of(obs: Any, i: int) -> Any:
    """Returns the observation of one env: an item, or an item of each part."""
    if isinstance(obs, Mapping):
        return {name: _row_of(part, i) for name, part in obs.items()}
    return tuple(_row_of(part, i) for part in obs) if isinstance(obs, tuple) else obs[i]


def _autoreset_of(env: Any, spec: EnvSpec, remarks: contract.Remarks) -> str:
    """Returns the value of the ``AutoresetMode`` that a vector env declares, by itself or as text.

    Raises:
        EnvContractError: If it declares another one.
    """
    name = 'autoreset_mode'
    modes = gym.vector.AutoresetMode
    declared = (env.metadata or {}).get(name)
    if declared is None:
        told = f"{spec.name}: the vector env declares no metadata['{name}'], and NEXT_STEP is assumed"
        remarks.report(name, told)
        declared = modes.NEXT_STEP
    text = str(getattr(declared, 'value', declared)).rpartition('.')[2]
    for mode in modes:
        if text.replace('_', '').lower() == mode.value.lower():
            return mode.value
    raise EnvContractError(
        f"{spec.name}: metadata['{name}'] of the vector env is {declared!r}, expected one of {list(modes)}"
    )
