"""Steps N envs one after the other in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from easydict import EasyDict

from rlframe.data.observation import zero_obs
from rlframe.data.timestep import NO_INFO, Array, IntArray, TimeStep
from rlframe.envs import contract
from rlframe.envs.base_env import EnvFactory, MakeEnv
from rlframe.envs.env_group import Answers, Counts, EnvGroup, Group
from rlframe.envs.faults import SHOWN_CAUSES, Fault, FaultBudget, checkpoint_seed, restart_seed
from rlframe.envs.interface import IEnvManager as IEnvManager
from rlframe.envs.state import Refusal
from rlframe.errors import ActionError, EnvCrashedError, EnvStartError, EnvTimeoutError
from rlframe.registry import ENV_MANAGER_REGISTRY, ENV_REGISTRY
from rlframe.utils.field import Section, option, to_plain
from rlframe.utils.schema import COUNT, TEXT, array, check_state, dict_of, list_of, maybe
from rlframe.utils.schema import part as saved_part

if TYPE_CHECKING:
    import gymnasium


class EnvManagerConfig(Section):
    """Options of managers that step each env."""

    on_error: Literal['raise', 'restart', 'drop'] = option(
        'raise',
        doc=(
            "reaction to an env that raises, hangs or dies: 'raise' ends the run, 'restart' replaces it, 'drop'"
            ' continues without it'
        ),
        may_change=True,
    )
    max_restarts: int = option(
        10,
        range='[0, inf)',
        unit='restarts',
        doc='of all envs together; one more fault ends the run',
        may_change=True,
    )


@ENV_MANAGER_REGISTRY.register('base')
class BaseEnvManager(IEnvManager):
    """Steps N envs one after the other in this process.

    If an env raises, the run ends, or the env is replaced or dropped, as ``on_error`` says. That step is declared void
    by ``info['abnormal']``, with the cause as ``info['env_error']``; a ``reset`` begins the env's next
    episode. An error that leaves ``step`` or ``reset`` closes the envs.

    Args:
        env_fn: Factories of the envs, N of them.
        cfg: Options of the manager.
    """

    _cfg: EnvManagerConfig

    def __init__(
        self, env_fn: Sequence[Callable[[], gymnasium.Env[Any, Any]]], cfg: EasyDict | None = None
    ) -> None:
        self._cfg = self.resolve_config(cfg)
        self._env_fn = list(env_fn)
        self.env_num = len(self._env_fn)
        self._all = np.arange(self.env_num)
        self._group: Any = None  # a Group; None if there are no envs
        self.launch()

    @classmethod
    def from_factory(
        cls, factory: EnvFactory, env_num: int, cfg: EasyDict | None = None, render_mode: str | None = None
    ) -> Self:
        return cls([MakeEnv(factory, render_mode)] * env_num, cfg)

    def launch(self) -> None:
        if not self.closed:
            return
        self._group = self._make_group()
        self.spec, self._counts = self._group.spec, self._group.counts
        self._seed: list[int | None] = [None] * self.env_num  # last seed given to each env by a caller
        self._begun: list[int | None] = [None] * self.env_num  # seed that the running episode began with
        self._restarts = np.zeros(self.env_num, np.int64)
        self._lost: dict[
            int, str
        ] = {}  # envs without a running episode, whose next step is void, with reasons
        self._dropped: set[int] = set()
        self._ready = self._alive = self._all
        self._budget = FaultBudget(self._cfg.on_error, self._cfg.max_restarts)
        space = self.spec.observation_space
        self.obs = zero_obs(space, self.env_num)
        self._after_reset = [zero_obs(space, self.env_num) for _ in range(2)]

    def _make_group(self) -> Group:
        """Creates the envs in this process or in their workers."""
        group = EnvGroup(dict(enumerate(self._env_fn)))
        try:
            specs = group.launch()
            contract.check_spaces(specs, specs[0])
        except Exception:
            group.close()
            raise
        group.attach(specs[0], Counts.zeros(self.env_num))
        return group

    @property
    def ready(self) -> IntArray:
        return self._ready

    @property
    def alive(self) -> IntArray:
        return self._alive

    @property
    def closed(self) -> bool:
        return self._group is None or self._group.closed

    def reset(self, env_id: IntArray | None = None, seed: Sequence[int | None] | None = None) -> None:
        self.launch()
        self._begin(self._seeds(env_id, self._with_given(env_id, seed)))

    def _seeds(self, env_id: IntArray | None, seed: Sequence[int | None] | None) -> dict[int, int | None]:
        """Returns the envs that begin an episode, and the seed of each."""
        listed = self._all.tolist() if env_id is None else env_id.tolist()
        seeds: dict[int, int | None] = dict(
            zip(listed, [None] * len(listed) if seed is None else seed, strict=True)
        )
        for env, own in seeds.items():
            if own is not None:
                self._seed[env] = seeds[env] = int(own)
            elif env in self._lost:
                seeds[env] = restart_seed(self._seed[env], int(self._restarts[env]))
        return seeds

    def _begin(self, seeds: Mapping[int, int | None]) -> None:
        """Begins a new episode in each of the given envs, and replaces envs that fail."""
        self._after_reset.reverse()  # not a fresh copy, which networks may not be able to read in place
        np.copyto(self._after_reset[0], self.obs)
        self.obs = self._after_reset[0]
        due = {env: seed for env, seed in seeds.items() if self._settle(env)}
        try:
            while due:
                faults = self._group.reset(np.array(list(due)), list(due.values()), self.obs)
                for env, seed in due.items():
                    self._begun[env] = seed
                self._handle(faults)
                failed = [env for env in due if env in self._lost and self._settle(env)]
                due = {env: restart_seed(self._seed[env], int(self._restarts[env])) for env in failed}
        except Exception:
            self.close()
            raise

    def step(self, action: Array, env_id: IntArray) -> TimeStep:
        if self.closed:
            raise ValueError('step() of envs that are closed; reset() creates them again')
        if self._dropped and not np.isin(env_id, self._ready).all():
            raise ValueError(
                f'step() of env {env_id.tolist()}, of which only {self._ready.tolist()} are left'
            )
        count = len(env_id)
        try:
            if len(action) != count:
                raise ActionError(f'{len(action)} actions were given for {count} envs')
            answers = self._step_some(action, env_id) if self._lost else self._group.step(action, env_id)
            if answers.faults or self._lost:
                answers = self._with_void_rows(answers, env_id)
            obs, reward, terminated, truncated, infos, _ = answers
            step = TimeStep(obs, reward, terminated, truncated, infos or (NO_INFO,) * count, env_id)
            contract.check_values(step, self.spec, self._group.place)
        except Exception:
            self.close()
            raise
        if env_id is self._all:
            self.obs = obs
        else:
            self.obs = self.obs.copy()
            self.obs[env_id] = obs
        return step

    def _step_some(self, action: Array, env_id: IntArray) -> Answers:
        """Steps the given envs that have a running episode; the rows of the others are meaningless."""
        able = np.array([env not in self._lost for env in env_id.tolist()])
        count = len(env_id)
        flags = np.zeros((2, count), np.bool_)
        whole = Answers(self.obs[env_id], np.zeros(count), flags[0], flags[1], (), ())
        if not able.any():
            return whole
        some = self._group.step(action[able], env_id[able])
        for column, part in zip(whole[:4], some[:4], strict=True):
            column[able] = part
        infos: list[Mapping[str, Any]] = [{} for _ in env_id]
        for row, info in zip(np.flatnonzero(able), some.infos, strict=False):
            infos[row] = info
        return whole._replace(infos=infos, faults=some.faults)

    def _with_void_rows(self, answers: Answers, env_id: IntArray) -> Answers:
        """Handles envs that failed, and declares the rows of all envs without a running episode void."""
        self._handle(answers.faults)
        infos = list(answers.infos) or [{} for _ in env_id]
        for row, env in enumerate(env_id.tolist()):
            if env in self._lost:
                infos[row] = {'abnormal': True, 'env_error': self._lost[env]}
                answers.obs[row], answers.reward[row] = self.obs[env], 0.0
                answers.terminated[row] = answers.truncated[row] = False
                if env in self._dropped:
                    self._settle(env)
        return answers._replace(infos=infos)

    def _handle(self, faults: Sequence[Fault]) -> None:
        """Handles envs that failed.

        Raises:
            EnvCrashedError: If that ends the run.
        """
        for error, env_id, others in faults:
            hit = [env for env in env_id if env not in self._dropped]
            lost = hit + [env for env in others if env not in self._dropped]
            if not lost:
                continue
            never_begun = not self._counts.episodes[hit or lost].any() and not isinstance(
                error, EnvTimeoutError
            )
            if never_begun and self._budget.on_error == 'raise':
                raise EnvStartError(error.message) from (error.__cause__ or error)
            if self._budget.handle(error) == 'drop':
                self._dropped.update(hit)
            self._restarts[lost] += 1
            self._lost.update(dict.fromkeys(lost, error.message.partition('\n')[0]))
        if self._dropped:
            self._count_envs()
        if not len(self._alive):
            raise EnvCrashedError(
                'no env is left; the last ones: ' + ' | '.join(self._budget.causes[-SHOWN_CAUSES:])
            )

    def _settle(self, env: int) -> bool:
        """Clears the pending void step of an env, and returns whether the env continues."""
        self._lost.pop(env, None)
        if env in self._dropped:
            self._count_envs()
        return env not in self._dropped

    def _count_envs(self) -> None:
        self._alive = np.array([env for env in range(self.env_num) if env not in self._dropped], np.int64)
        due = self._dropped & self._lost.keys()  # their last step must still be declared void
        self._ready = np.union1d(self._alive, np.array(list(due), np.int64)) if due else self._alive

    def render(self, env_id: int) -> Array:
        picture: Array = self._group.render(env_id)
        return picture

    def restart_lost(self) -> IntArray:
        self.unsaved = {
            env: state.reason for env, state in self._capture().items() if isinstance(state, Refusal)
        }
        lost = [env for env in self.unsaved if not self._is_at_start(env)]
        self._begin_anew(lost)
        return np.array(lost, np.int64)

    def _is_at_start(self, env: int) -> bool:
        """Whether resetting an env with the seed of its last reset restores its state."""
        return self._counts.steps[env] == 0 and self._begun[env] is not None

    def _begin_anew(self, env_id: Sequence[int]) -> None:
        self._begin(
            {env: checkpoint_seed(self._seed[env], int(self._counts.episodes[env])) for env in env_id}
        )

    def _capture(self) -> dict[int, Any]:
        """Returns the states of the envs that have a running episode."""
        if self.closed:
            return {}
        states, faults = self._group.capture()
        try:
            self._handle(faults)
        except Exception:
            self.close()
            raise
        return {
            env: state for env, state in states.items() if env not in self._lost and env not in self._dropped
        }

    def state_dict(self) -> dict[str, Any]:
        states = self._capture()
        return {
            'obs': self.obs.copy(),
            'steps': self._counts.steps.copy(),
            'episodes': self._counts.episodes.copy(),
            'unchecked': self._counts.unchecked.copy(),
            'seed': list(self._seed),
            'begun': list(self._begun),
            'restarts': self._restarts.copy(),
            'lost': {str(env): why for env, why in self._lost.items()},
            'dropped': sorted(self._dropped),
            'faults': self._budget.state_dict(),
            'envs': {str(env): state for env, state in states.items() if not isinstance(state, Refusal)},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> IntArray:
        self.launch()
        _check_state(state, self.obs, self._counts._asdict())
        for name, values in self._counts._asdict().items():
            values[:] = state[name]
        self.obs, self._restarts = state['obs'].copy(), state['restarts'].copy()
        self._seed, self._begun = list(state['seed']), list(state['begun'])
        self._lost = {int(env): why for env, why in state['lost'].items()}
        self._dropped = set(state['dropped'])
        self._budget.load_state_dict(state['faults'])
        self._count_envs()
        states = {int(env): saved for env, saved in state['envs'].items()}
        with saved_part('envs'):
            self.unsaved = self._group.restore(states)
        states = {env: saved for env, saved in states.items() if env not in self.unsaved}
        missing = [env for env in self._alive.tolist() if env not in states and env not in self._lost]
        at_start = [env for env in missing if self._is_at_start(env)]
        self._begin({env: self._begun[env] for env in at_start})
        self._counts.episodes[at_start] = state['episodes'][at_start]
        lost = [env for env in missing if env not in at_start]
        self._begin_anew(lost)
        return np.array(lost, np.int64)

    def close(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            self.obs, self._counts = self.obs.copy(), Counts(*(values.copy() for values in self._counts))
            group.close()


def _check_state(state: Any, obs: Array, counts: Mapping[str, Any]) -> None:
    """Checks that a state belongs to a manager of this many envs.

    Args:
        state: Result of a manager's ``state_dict``.
        obs: Observations of its envs, [N, ...].
        counts: The counters of each env, by name, [N].

    Raises:
        CheckpointStateError: With the part's name.
    """
    env_num = len(obs)
    ints = array('iu', (env_num,))
    own = obs.dtype
    check_state(
        state,
        {
            **dict.fromkeys(counts, ints),
            'obs': array('' if own.names else own.kind, tuple(np.shape(obs))),
            'seed': list_of(maybe(COUNT), env_num),
            'begun': list_of(maybe(COUNT), env_num),
            'restarts': ints,
            'lost': dict_of(TEXT),
            'dropped': list_of(COUNT),
            'faults': {'causes': list_of(TEXT)},
            'envs': {},
        },
    )


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


def create_env_manager(manager_cfg: Mapping[str, Any], env_fn: Sequence[Callable[[], Any]]) -> IEnvManager:
    """Creates the env manager named by ``manager_cfg.type``.

    Args:
        manager_cfg: The section ``env.manager`` of a config.
        env_fn: Functions that each create an env: with ``get_vec_env_setting``, ``partial(env_fn, cfg=cfg)`` of each
            config; a manager of vector envs takes no other ones.
    """
    kind: Any = ENV_MANAGER_REGISTRY.get_cls(manager_cfg)
    cfgs = [
        each.keywords.get('cfg', *each.args)
        for each in env_fn
        if isinstance(each, partial) and each.func is make_env
    ]
    if len(cfgs) == len(env_fn) and all(cfg == cfgs[0] for cfg in cfgs):
        made: IEnvManager = kind.from_factory(_factory(cfgs[0]), len(cfgs), manager_cfg)
        return made
    made = kind(list(env_fn), manager_cfg)
    return made
