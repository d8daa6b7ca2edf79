"""Steps N envs one after the other in this process."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from easydict import EasyDict

from rlframe.data.observation import ACTION_MASK, BAD_OBS, pack, pack_rows, zero_obs
from rlframe.data.timestep import NO_INFO, Array, EnvSpec, IntArray, TimeStep, spec_of
from rlframe.envs import contract
from rlframe.envs.base_env import EnvFactory, acting_by_rows, check_layers, picture_of, seed_spaces
from rlframe.envs.faults import (
    FATAL,
    SHOWN_CAUSES,
    Fault,
    FaultBudget,
    crashed,
    start_failed,
)
from rlframe.envs.interface import Episodes, IEnvManager
from rlframe.envs.schedule import apply
from rlframe.envs.state import EnvState, Refusal
from rlframe.envs.state_objects import MismatchError
from rlframe.errors import ActionError, EnvCrashedError, EnvStartError, EnvTimeoutError, RLFrameError
from rlframe.registry import ENV_MANAGER_REGISTRY
from rlframe.utils.field import Section, option
from rlframe.utils.schema import COUNT, TEXT, check_state, dict_of, list_of
from rlframe.utils.schema import array as array_of
from rlframe.utils.schema import part as saved_part

if TYPE_CHECKING:
    import gymnasium

    Env = gymnasium.Env[Any, Any]

logger = logging.getLogger(__name__)

FEW = 4
"""Number of envs up to which one by one is faster than together."""
FAILURES = (Exception, SystemExit)
"""Exceptions that count as a fault of the env that raises them."""
States = dict[int, dict[str, Any] | Refusal]
"""States by env id, or the reasons why they cannot be saved."""
Step = Callable[[Any], Any]
"""``step`` of one env."""


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
        doc='most restarts of all envs together; one more fault ends the run',
        may_change=True,
    )


@ENV_MANAGER_REGISTRY.register('base')
class BaseEnvManager(IEnvManager):
    """Steps N envs one after the other in this process.

    If an env raises, the run ends, or the env is replaced or dropped, as ``on_error`` says. That step is declared void
    by ``info['abnormal']``, with the cause as ``info['env_error']``; a ``reset`` begins the env's next
    episode. An error that leaves ``step`` or ``reset`` closes the envs.

    ``create_all``, ``begin_each``, ``answers``, ``columns``, ``capture`` and ``restore`` do the work on the envs themselves
    and decide nothing; a worker process calls them, too.

    Args:
        env_fn: Factories of the envs, N of them.
        cfg: Options of the manager.
    """

    _cfg: EnvManagerConfig

    in_worker = False
    """Whether errors are raised in another process."""
    takes_schedule = True
    """Whether its envs follow ``schedule``."""

    def __init__(self, env_fn: Sequence[Callable[[], Env]], cfg: EasyDict | None = None) -> None:
        self._cfg = self.resolve_config(cfg)
        self.env_num = len(env_fn)
        self._set_factories(dict(enumerate(env_fn)))
        self.schedule: Mapping[str, Any] = {}
        """Values of attributes and methods that each env gets before its next episode begins."""
        self._is_closed = True
        self.obs = np.zeros(0)
        self.launch()

    @classmethod
    def from_factory(
        cls, factory: EnvFactory, env_num: int, cfg: EasyDict | None = None, render_mode: str | None = None
    ) -> Self:
        manager = cls([partial(factory.create, render_mode)] * env_num, cfg)
        if factory.cfg.action_mask is False:
            manager.remarks.leave_out(ACTION_MASK)
        return manager

    def _set_factories(self, make: Mapping[int, Callable[[], Env]]) -> None:
        """Sets the factory of each env of this process, by env id."""
        self._make = make
        self._all = np.fromiter(make, np.int64)
        self.envs: dict[int, Env] = {}
        """Env ids to the existing envs."""
        self.remarks = contract.Remarks(hold=self.in_worker)
        """Remarks on envs that meet the contract only loosely."""
        self._step_of: dict[int, Step] = {}
        self._states: dict[int, EnvState] = {}

    def launch(self) -> None:
        if not self.closed:
            return
        self._is_closed = False
        try:
            self._create()
        except BaseException:
            self.close()
            raise
        # envs without a running episode, whose next step is void, with reasons
        self._lost: dict[int, str] = {}
        self._dropped: set[int] = set()
        self._ready = self._alive = self._all
        self._budget = FaultBudget(self._cfg.on_error, self._cfg.max_restarts)
        space = self.spec.observation_space
        self.obs = zero_obs(space, self.env_num)
        self._after_reset = [zero_obs(space, self.env_num) for _ in range(2)]

    def _create(self) -> None:
        """Creates the envs, and sets their common spec and ``Episodes``."""
        specs = self.create_all()
        contract.check_spaces(specs, specs[0])
        self.attach(specs[0], Episodes(self.env_num))

    @property
    def ready(self) -> IntArray:
        return self._ready

    @property
    def alive(self) -> IntArray:
        return self._alive

    @property
    def closed(self) -> bool:
        return self._is_closed

    def reset(self, env_id: IntArray | None = None, seed: Sequence[int | None] | None = None) -> None:
        if self._is_closed:
            self.launch()
        self._begin(self._seeds(env_id, seed))

    def _seeds(self, env_id: IntArray | None, seed: Sequence[int | None] | None) -> dict[int, int | None]:
        """Returns the envs that begin an episode, and the seed of each."""
        listed = self._all.tolist() if env_id is None else env_id.tolist()
        if seed is None and not self.given_seeds and not self._lost:
            return dict.fromkeys(listed)
        seeds = self._episodes.take_seeds(listed, self._with_given(env_id, seed))
        for env, own in seeds.items():
            if own is None and env in self._lost:
                seeds[env] = self._episodes.restart_seed(env)
        return seeds

    def _begin(self, seeds: Mapping[int, int | None]) -> None:
        """Begins a new episode in each of the given envs, and replaces envs that fail."""
        self._after_reset.reverse()  # not a fresh copy, which networks may not be able to read in place
        np.copyto(self._after_reset[0], self.obs)
        self.obs = self._after_reset[0]
        due = dict(seeds)
        if self._lost or self._dropped:
            due = {env: seed for env, seed in seeds.items() if self._settle(env)}
        try:
            while faults := self.begin_each(due, self.obs):
                self._handle(faults)
                failed = [env for env in due if env in self._lost and self._settle(env)]
                due = {env: self._episodes.restart_seed(env) for env in failed}
        except Exception:
            self.close()
            raise

    def step(self, action: Array, env_id: IntArray) -> TimeStep:
        if self._is_closed or not self._are_ready(env_id):
            is_closed = 'which are closed; reset() creates them again'
            why = is_closed if self._is_closed else f'of which only {self.ready.tolist()} are ready'
            raise ValueError(f'step() of env {env_id.tolist()}, {why}')
        try:
            if len(action) != len(env_id):
                raise ActionError(f'{len(action)} actions were given for {len(env_id)} envs')
            step = self._stepped(action, env_id)
            contract.check_values(step, self.spec, self._episodes.place)
        except Exception:
            self.close()
            raise
        if step.env_id is self._all:
            self.obs = step.obs
        else:
            self.obs = self.obs.copy()
            self.obs[step.env_id] = step.obs
        return step

    def _are_ready(self, env_id: IntArray) -> bool:
        """Whether these envs can step."""
        return not self._dropped or bool(np.isin(env_id, self._ready).all())

    def _stepped(self, action: Array, env_id: IntArray) -> TimeStep:
        """Steps the given envs; a step is void where an env fails or has no running episode."""
        acting = env_id
        if self._lost:
            able = np.array([env not in self._lost for env in env_id.tolist()], np.bool_)
            action, acting = action[able], env_id[able]
        answers, faults = self.answers(action, acting)
        self._sets.reverse()
        step = self.columns(answers, acting, self._sets[0][: len(acting)])
        if faults:
            self._handle(faults)
        return self._with_void_rows(step, env_id) if self._lost else step

    def _with_void_rows(self, step: TimeStep, env_id: IntArray) -> TimeStep:
        """Returns the step of the given envs, [n]; envs without a running episode get empty rows."""
        row_of = {env: row for row, env in enumerate(step.env_id.tolist())}
        listed = env_id.tolist()
        kept = [row for row, env in enumerate(listed) if env not in self._lost]
        rows = [row_of[listed[row]] for row in kept]
        terminated, truncated = np.zeros((2, len(listed)), np.bool_)
        columns = self.obs[env_id], np.zeros(len(listed)), terminated, truncated
        for column, own in zip(columns, step[:4], strict=True):
            column[kept] = own[rows]
        infos = [
            self._void_info(env) if env in self._lost else step.info[row_of[env]] or {} for env in listed
        ]
        return TimeStep(*columns, infos, env_id)

    def _void_info(self, env: int) -> dict[str, Any]:
        """Returns the info of a void step; for a dropped env, it is its last one."""
        info = {'abnormal': True, 'env_error': self._lost[env]}
        if env in self._dropped:
            self._settle(env)
        return info

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
            never_begun = not self._episodes.number[hit or lost].any() and not isinstance(
                error, EnvTimeoutError
            )
            if never_begun and self._budget.on_error == 'raise':
                raise EnvStartError(error.message) from (error.__cause__ or error)
            if self._budget.handle(error) == 'drop':
                self._dropped.update(hit)
            self._episodes.restarts[lost] += 1
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

    def restart_lost(self) -> IntArray:
        self.unsaved = {
            env: state.reason for env, state in self._capture().items() if isinstance(state, Refusal)
        }
        lost = [env for env in self.unsaved if not self._episodes.is_at_start(env)]
        self._begin(self._episodes.checkpoint_seeds(lost))
        return np.array(lost, np.int64)

    def _capture(self) -> States:
        """Returns the states of the envs that have a running episode."""
        if self.closed:
            return {}
        states, faults = self.capture()
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
            **self._episodes.state_dict(),
            'lost': {str(env): why for env, why in self._lost.items()},
            'dropped': sorted(self._dropped),
            'faults': self._budget.state_dict(),
            'envs': {str(env): state for env, state in states.items() if not isinstance(state, Refusal)},
            **({'schedule': dict(self.schedule)} if self.schedule else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> IntArray:
        self.launch()
        own = self.obs.dtype
        check_state(
            state,
            {
                'obs': array_of('' if own.names else own.kind, tuple(np.shape(self.obs))),
                'lost': dict_of(TEXT),
                'dropped': list_of(COUNT),
                'faults': {'causes': list_of(TEXT)},
                'envs': {},
            },
        )
        # counters and faults
        self._episodes.load_state_dict(state)
        self.schedule = dict(state.get('schedule', {}))
        self.obs = state['obs'].copy()
        self._lost = {int(env): why for env, why in state['lost'].items()}
        self._dropped = set(state['dropped'])
        self._budget.load_state_dict(state['faults'])
        self._count_envs()
        # running episodes
        states = {int(env): saved for env, saved in state['envs'].items()}
        with saved_part('envs'):
            self.unsaved = self.restore(states)
        # episodes that have to begin anew
        states = {env: saved for env, saved in states.items() if env not in self.unsaved}
        missing = [env for env in self._alive.tolist() if env not in states and env not in self._lost]
        at_start = [env for env in missing if self._episodes.is_at_start(env)]
        self._begin({env: self._episodes.begun[env] for env in at_start})
        self._episodes.number[at_start] = state['episodes'][at_start]
        lost = [env for env in missing if env not in at_start]
        self._begin(self._episodes.checkpoint_seeds(lost))
        return np.array(lost, np.int64)

    def render(self, env_id: int) -> Array:
        self.at(env_id)
        return picture_of(self.envs[env_id].render, self.spec.name)

    def close(self) -> None:
        self._is_closed = True
        for env in list(self.envs):
            self._remove(env)

    # the envs themselves, in this process or in a worker

    def create_all(self) -> list[EnvSpec]:
        """Creates all envs and returns the spec of each; the same object if they are equal.

        Raises:
            EnvStartError: If a constructor fails.
            EnvError: See ``check_layers``.
        """
        for env in self._make:
            try:
                self._add(env)
            except RLFrameError:
                raise
            except FAILURES as error:
                raise start_failed(env, error, self.in_worker) from error
        check_layers(self.envs.values())
        specs = [spec_of(env) for env in self.envs.values()]
        return [specs[0] if spec == specs[0] else spec for spec in specs]

    def attach(self, spec: EnvSpec, episodes: Episodes) -> None:
        """Sets the common spec of all envs, and the counter of their episodes."""
        self.spec, self._episodes = spec, episodes
        self._checking = True  # whether steps are still to be checked in full
        space = spec.observation_space
        is_single = type(spec.action_space).__name__ == 'Box' and spec.action_space.shape == ()
        self._each: Callable[[Array], list[Any]] = _single_numbers if is_single else list
        self._nothing = zero_obs(space)[()]
        self._sets = [zero_obs(space, len(self._all)) for _ in range(2)]

    def at(self, env: int) -> None:
        """Notes the env that is created, reset or drawn next."""

    def step_method(self, env: int) -> Step:
        """Returns the function that steps an env."""
        return self.envs[env].step

    def _add(self, env: int) -> None:
        """Creates an env."""
        self.at(env)
        made = self.envs[env] = acting_by_rows(self._make[env]())
        self._states[env] = EnvState(made)
        self._step_of[env] = self.step_method(env)

    def _remove(self, env: int) -> None:
        """Closes and forgets an env."""
        self._step_of.pop(env, None)
        self._states.pop(env, None)
        if (made := self.envs.pop(env, None)) is not None:
            try:
                made.close()
            except Exception:  # nothing depends on a discarded env
                logger.warning('close() of env %d failed', env, exc_info=True)

    def begin_each(self, seeds: Mapping[int, int | None], obs: Array) -> list[Fault]:
        """Begins a new episode in each of the given envs, and creates missing envs.

        Args:
            seeds: The envs, and the seed of each.
            obs: Receives the first observations, [N, ...].

        Returns:
            The failed envs.
        """
        faults = []
        for env, seed in seeds.items():
            what = 'its constructor'
            self._episodes.begun[env] = seed
            try:
                if env not in self.envs:
                    self._episodes.unchecked[env] = contract.CHECKED_STEPS
                    self._checking = True
                    self._add(env)
                what = 'reset()'
                self.at(env)
                if seed is not None:
                    seed_spaces(self.envs[env], seed)
                if self.schedule:
                    apply(self.envs[env], self.schedule)
                answer = self.envs[env].reset(seed=seed)
            except FATAL:
                raise
            except FAILURES as error:
                faults.append(self._fault(env, what, error))
                continue
            self._episodes.steps[env] = 0
            self._episodes.number[env] += 1
            episode = int(self._episodes.number[env])
            obs[env] = contract.first_obs(answer, self.spec, env, episode, self.remarks)
        return faults

    def _fault(self, env: int, what: str, error: BaseException) -> Fault:
        """Removes an env that failed."""
        self._remove(env)
        episode, step = self._episodes.place(env)
        if what != 'step()':
            episode = episode + 1
            step = 0
        return Fault(crashed(env, what, episode, step, error, self.in_worker), (env,))

    def answers(self, action: Array, env_id: IntArray) -> tuple[list[Any], list[Fault]]:
        """Steps the given envs, [n], once each.

        Returns:
            Their unchecked answers, meaningless where an env failed, and those that failed.
        """
        # count
        listed = env_id.tolist()
        steps = self._episodes.steps
        if len(listed) <= FEW:
            for env in listed:
                steps[env] += 1
        else:
            steps[env_id] += 1
        # step, and go on after an env that fails
        step = self._checked_steps() if self._checking else self._step_of
        answers: list[Any] = []
        faults: list[Fault] = []
        acting = zip(listed, self._each(action), strict=True)
        while len(answers) < len(listed):
            try:
                for env, own_action in acting:
                    answers.append(step[env](own_action))
            except FATAL:
                raise
            except FAILURES as error:
                faults.append(self._fault(listed[len(answers)], 'step()', error))
                answers.append((self._nothing, 0.0, False, False, {}))
        return answers, faults

    def columns(self, answers: Sequence[Any], env_id: IntArray, rows: Array) -> TimeStep:
        """Puts the observations of ``answers`` into ``rows``, contiguous [n, ...], and returns the step."""
        if not answers:
            return TimeStep(rows, np.zeros(0), np.zeros(0, np.bool_), np.zeros(0, np.bool_), (), env_id)
        try:
            return _columns(answers, env_id, rows)
        except BAD_OBS:
            for env, answer in zip(env_id.tolist(), answers, strict=True):
                contract.check_step(answer, self.spec, env, *self._episodes.place(env), self.remarks)
            space = self.spec.observation_space
            converted = [(pack(space, obs, 'unsafe'), *others) for obs, *others in answers]
            return _columns(converted, env_id, rows)

    def _checked_steps(self) -> dict[int, Step]:
        """Returns ``step`` of each env, with the checks of its first steps."""
        self._checking = bool(self._episodes.unchecked[self._all].any())
        return {env: self._checked(env, step) for env, step in self._step_of.items()}

    def _checked(self, env: int, step: Step) -> Step:
        def checked(action: Any) -> Any:
            contract.check_action(action, self.spec, env)
            answer = step(action)
            if self._episodes.unchecked[env]:
                self._episodes.unchecked[env] -= 1
                contract.check_step(answer, self.spec, env, *self._episodes.place(env), self.remarks)
            return answer

        return checked

    def capture(self) -> tuple[States, list[Fault]]:
        """Returns the state of every existing env, and the failures."""
        return {env: self._states[env].capture() for env in sorted(self.envs)}, []

    def restore(self, states: Mapping[int, Any]) -> dict[int, str]:
        """Restores envs to states that ``capture`` returned, after the counts were restored.

        Returns:
            The envs that could not be restored, with the reasons.
        """
        self._checking = True
        unfit = {}
        for env, state in states.items():
            if env not in self.envs:
                self._add(env)
            try:
                with saved_part(str(env)):
                    self._states[env].restore(state)
            except MismatchError as error:
                unfit[env] = str(error)
        return unfit


def _single_numbers(action: Array) -> list[Any]:
    """Returns the actions of a Box of shape (), [n], as arrays of that shape."""
    return [action[i, ...] for i in range(len(action))]


def _columns(answers: Sequence[Any], env_id: IntArray, rows: Array) -> TimeStep:
    """Writes observations into ``rows`` and returns them with the other columns.

    Raises:
        TypeError, ValueError, LookupError: If a value has the wrong shape or type.
    """
    obs, reward, terminated, truncated, infos = zip(*answers, strict=True)
    if rows.ndim > 1:
        np.concatenate(obs, out=rows.reshape(-1, *rows.shape[2:]))
        # otherwise a surplus of one could hide a lack of another
        is_declared = set(map(len, obs)) == {rows.shape[1]}
    elif rows.dtype.names:
        pack_rows(obs, rows)
        is_declared = True
    else:
        values = np.array(obs)
        np.copyto(rows, values)
        is_declared = values.shape == rows.shape
    flags = np.array((terminated, truncated))
    told = infos if any(infos) else ()
    is_declared = is_declared and (not told or all([isinstance(info, dict) for info in told]))
    if not is_declared or flags.shape != (2, len(rows)) or flags.dtype != np.bool_:
        raise ValueError('something is not of the declared shape or type')
    rewards = np.frombuffer(array('d', reward), np.float64)
    return TimeStep(rows, rewards, flags[0], flags[1], told or (NO_INFO,) * len(rows), env_id)
