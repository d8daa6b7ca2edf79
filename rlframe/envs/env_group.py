"""Creates, checks, steps, saves, restores and closes the envs of one process."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from rlframe.data.observation import BAD_OBS, pack, pack_rows, zero_obs
from rlframe.data.timestep import Array, BoolArray, EnvSpec, FloatArray, IntArray
from rlframe.envs import contract
from rlframe.envs.base_env import MakeEnv, Note, ignore, picture_of, seed_spaces, spec_of
from rlframe.envs.env_checks import Habits
from rlframe.envs.faults import FATAL, Fault, crashed, not_made
from rlframe.envs.state import EnvState, Refusal
from rlframe.envs.state_objects import MismatchError
from rlframe.errors import RLFrameError
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


class Counts(NamedTuple):
    """The counters of each env, over all processes; each array is [N]."""

    steps: IntArray
    """Env steps of the running episode."""
    episodes: IntArray
    """Episodes begun."""
    unchecked: IntArray
    """Env steps still to be checked in full."""

    @classmethod
    def zeros(cls, env_num: int) -> Counts:
        """Returns the counters of envs that were never reset."""
        steps, episodes = np.zeros((2, env_num), np.int64)
        return cls(steps, episodes, np.full(env_num, contract.CHECKED_STEPS))


class Answers(NamedTuple):
    """The results of one step of n envs; the rows of failed envs are meaningless."""

    obs: Array
    reward: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    infos: Sequence[Mapping[str, Any]]
    """Empty if no env returned an info."""
    faults: Sequence[Fault]


class Group(Protocol):
    """Interface of N envs, wherever they run, for the decisions of an env manager."""

    @property
    def spec(self) -> EnvSpec: ...
    @property
    def counts(self) -> Counts: ...
    @property
    def closed(self) -> bool: ...
    def reset(self, env_id: IntArray, seeds: Sequence[int | None], obs: Array) -> list[Fault]: ...
    def step(self, action: Array, env_id: IntArray) -> Answers: ...
    def place(self, env: int) -> tuple[int, int]: ...
    def capture(self) -> tuple[States, list[Fault]]: ...
    def restore(self, states: Mapping[int, Any]) -> dict[int, str]: ...
    def render(self, env: int) -> Array: ...
    def close(self) -> None: ...


class EnvGroup:
    """Envs of one process.

    An env that raises is closed and forgotten; its next ``reset`` makes a new one.

    Args:
        make: Env ids to the factory of each env.
        watch: Called with the id of each env before it is created, reset or stepped.
        in_worker: Whether errors are raised in another process.
        note: Called before anything other than creating, resetting and stepping envs.
    """

    spec: EnvSpec
    counts: Counts
    closed = False

    def __init__(
        self,
        make: Mapping[int, Callable[[], Env]],
        watch: Callable[[int], None] | None = None,
        in_worker: bool = False,
        note: Note = ignore,
    ) -> None:
        self._make, self._watch, self._in_worker, self._note = make, watch, in_worker, note
        self.envs: dict[int, Env] = {}
        """Env ids to the existing envs."""
        self.remarks = contract.Remarks(hold=in_worker)
        """Remarks on envs that meet the contract only loosely."""
        self._step: dict[int, Callable[[Any], Any]] = {}
        self._habits: dict[int, Habits] = {}  # envs that are still checked in full
        self._states: dict[int, EnvState] = {}

    def launch(self) -> list[EnvSpec]:
        """Creates all envs and returns the spec of each; the same object if they are equal.

        Raises:
            EnvStartError: If a constructor fails.
        """
        for env in self._make:
            try:
                self._add(env)
            except RLFrameError:
                raise
            except FAILURES as error:
                raise not_made(env, error, self._in_worker) from error
        specs = [spec_of(env) for env in self.envs.values()]
        return [specs[0] if spec == specs[0] else spec for spec in specs]

    def attach(self, spec: EnvSpec, counts: Counts) -> None:
        """Sets the common spec of all envs and their counters."""
        self.spec, self.counts = spec, counts
        self._own = np.fromiter(self._make, np.int64)
        self._checking = True  # whether steps of own envs are still to be checked in full
        space = spec.observation_space
        is_single = type(spec.action_space).__name__ == 'Box' and spec.action_space.shape == ()
        self._each: Callable[[Array], list[Any]] = _single_numbers if is_single else list
        self._nothing = zero_obs(space)[()]
        self._sets = [zero_obs(space, len(self._own)) for _ in range(2)]

    def _add(self, env: int) -> None:
        """Creates an env."""
        if self._watch is not None:
            self._watch(env)
        make = self._make[env]
        if isinstance(make, MakeEnv):
            made = self.envs[env] = make(self._note)
            if make.factory.remark:
                self.remarks.tell('same seed', make.factory.remark)
        else:
            made = self.envs[env] = make()
        self._states[env] = EnvState(made)
        self._step[env] = made.step if self._watch is None else _watched(self._watch, env, made.step)

    def _remove(self, env: int) -> None:
        """Forgets an env that failed."""
        self._step.pop(env, None)
        self._habits.pop(env, None)
        self._states.pop(env, None)
        if (failed := self.envs.pop(env, None)) is not None:
            _close(env, failed)

    def reset(self, env_id: IntArray, seeds: Sequence[int | None], obs: Array) -> list[Fault]:
        """Begins a new episode in each of the given envs, and creates those that are missing.

        Args:
            env_id: The envs, [n].
            seeds: Seed of each.
            obs: Receives the first observations, [N, ...].

        Returns:
            The failed envs.
        """
        faults = []
        for env, seed in zip(env_id.tolist(), seeds, strict=True):
            what = 'its constructor'
            try:
                if env not in self.envs:
                    self.counts.unchecked[env] = contract.CHECKED_STEPS
                    self._checking = True
                    self._add(env)
                what = 'reset()'
                if self._watch is not None:
                    self._watch(env)
                if seed is not None:
                    seed_spaces(self.envs[env], seed)
                habits = self._habits_of(env)
                answer = self.envs[env].reset(seed=seed)
            except FATAL:
                raise
            except FAILURES as error:
                faults.append(self._fault(env, what, error))
                continue
            self.counts.steps[env] = 0
            self.counts.episodes[env] += 1
            episode = int(self.counts.episodes[env])
            obs[env] = contract.first_obs(answer, self.spec, env, episode, self.remarks)
            if habits is not None:
                habits.after(answer[0])
        return faults

    def _habits_of(self, env: int) -> Habits | None:
        """Returns the habit checker of an env; None once the env has been checked in full."""
        if not self.counts.unchecked[env]:
            self._habits.pop(env, None)
            return None
        if env not in self._habits:
            self._habits[env] = Habits(self.spec.name, env, self.remarks)
        self._habits[env].before()
        return self._habits[env]

    def _fault(self, env: int, what: str, error: BaseException) -> Fault:
        self._remove(env)
        episode, step = self.place(env)
        if what != 'step()':
            episode, step = episode + 1, 0
        return Fault(crashed(env, what, episode, step, error, self._in_worker), (env,))

    def place(self, env: int) -> tuple[int, int]:
        """Returns the running episode of an env and the last env step of it that was begun."""
        return int(self.counts.episodes[env]), int(self.counts.steps[env])

    def step(self, action: Array, env_id: IntArray) -> Answers:
        """Steps the given envs, [n], once each."""
        self._sets.reverse()
        return self.step_into(action, env_id, self._sets[0][: len(env_id)])

    def step_into(self, action: Array, env_id: IntArray, rows: Array) -> Answers:
        """Steps the given envs, [n], once each, and puts their observations into ``rows``, contiguous [n, ...]."""
        return self.columns(*self.answers(action, env_id), env_id, rows)

    def answers(self, action: Array, env_id: IntArray) -> tuple[list[Any], list[Fault]]:
        """Steps the given envs, [n], once each, and returns their unchecked answers, and those that failed."""
        listed = env_id.tolist()
        steps = self.counts.steps
        if len(listed) <= FEW:
            for env in listed:
                steps[env] += 1
        else:
            steps[env_id] += 1
        step = self._checked_steps() if self._checking else self._step
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
        if self._habits:
            for env in self._habits.keys() & set(listed):
                self._habits[env].check_apart(len(self._own) - 1)
        return answers, faults

    def columns(
        self, answers: Sequence[Any], faults: Sequence[Fault], env_id: IntArray, rows: Array
    ) -> Answers:
        """Puts the observations of ``answers`` into ``rows``, contiguous [n, ...], and returns all columns."""
        try:
            return _columns(answers, rows, faults)
        except BAD_OBS:
            for env, answer in zip(env_id.tolist(), answers, strict=True):
                contract.check_step(answer, self.spec, env, *self.place(env), self.remarks)
            space = self.spec.observation_space
            converted = [(pack(space, obs, 'unsafe'), *others) for obs, *others in answers]
            return _columns(converted, rows, faults)

    def _checked_steps(self) -> dict[int, Callable[[Any], Any]]:
        """Returns ``step`` of each env, with the checks of its first steps."""
        self._checking = bool(self.counts.unchecked[self._own].any())
        return {env: self._checked(env, step) for env, step in self._step.items()}

    def _checked(self, env: int, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def checked(action: Any) -> Any:
            contract.check_action(action, self.spec, env)
            habits = self._habits_of(env)
            answer = step(action)
            if habits is not None:
                self.counts.unchecked[env] -= 1
                contract.check_step(answer, self.spec, env, *self.place(env), self.remarks)
                habits.after(answer[0])
            return answer

        return checked

    def capture(self) -> tuple[States, list[Fault]]:
        """Returns the state of every existing env, and those that failed."""
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

    def render(self, env: int) -> Array:
        """Returns a picture of an env."""
        return picture_of(self.envs[env].render, self.spec.name)

    def close(self) -> None:
        """Closes the envs."""
        for env in list(self.envs):
            self._remove(env)


def _single_numbers(action: Array) -> list[Any]:
    """Returns the actions of a Box of shape (), [n], as arrays of that shape."""
    return [action[i, ...] for i in range(len(action))]


def _columns(answers: Sequence[Any], rows: Array, faults: Sequence[Fault]) -> Answers:
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
    is_declared = is_declared and all([isinstance(info, dict) for info in told])
    if not is_declared or flags.shape != (2, len(rows)) or flags.dtype != np.bool_:
        raise ValueError('something is not of the declared shape or type')
    return Answers(rows, np.frombuffer(array('d', reward), np.float64), flags[0], flags[1], told, faults)  # fmt: skip


def _watched(watch: Callable[[int], None], env: int, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def watched(action: Any) -> Any:
        watch(env)
        return step(action)

    return watched


def _close(env: int, made: Env) -> None:
    try:
        made.close()
    except Exception:  # nothing depends on a discarded env
        logger.warning('close() of env %d failed', env, exc_info=True)
