"""Runs N envs in worker processes: a step returns the envs that are through, or waits for all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from easydict import EasyDict

from rlframe.data.timestep import NO_INFO, Array, BoolArray, IntArray, TimeStep
from rlframe.envs import contract
from rlframe.envs import state as env_state
from rlframe.envs.base_env import EnvFactory, MakeEnv
from rlframe.envs.env_group import Group
from rlframe.envs.env_manager import BaseEnvManager, EnvManagerConfig
from rlframe.envs.faults import Fault, restart_seed
from rlframe.envs.worker_pool import WorkerGroup, failed_resets, first_env
from rlframe.errors import ActionError
from rlframe.registry import ENV_MANAGER_REGISTRY
from rlframe.run.machine import usable_cores
from rlframe.utils.field import option
from rlframe.utils.serialize import to_bytes

NO_ENV = np.zeros(0, np.int64)


class Through(NamedTuple):
    """The received results; the rows of failed envs are meaningless."""

    stepped: IntArray
    """Envs that finished a step or were lost in it, [n]."""
    begun: IntArray
    """Envs that finished a reset or were lost in it, [n]."""
    told: Mapping[int, Mapping[str, Any]]
    """Infos of the steps, by env, if not empty."""
    faults: Sequence[Fault]


class AsyncWorkerGroup(WorkerGroup):
    """N envs in W worker processes, each with at most one pending answer.

    The envs of a worker are asked and answer together; those of other workers do not wait for them. What takes the
    answers of all (``capture``, ``restore``, ``render``) may be used only while no env is busy.

    Args:
        make: Factory of each env, [N].
        worker_num: Number of workers, W <= N.
        step_timeout: Maximum seconds per env for a step.
        reset_timeout: Maximum seconds per env for creating, resetting or anything else.
    """

    def __init__(
        self, make: Sequence[Callable[[], Any]], worker_num: int, step_timeout: float, reset_timeout: float
    ) -> None:
        super().__init__(make, worker_num, step_timeout, reset_timeout)
        self.busy = np.zeros(len(make), np.bool_)
        """Whether each env waits for its worker's answer, [N]."""
        self._stepping: dict[int, IntArray] = {}  # workers to the envs that they step
        self._beginning: dict[int, IntArray] = {}  # workers to the envs that they reset

    def begin_steps(self, action: Array, env_id: IntArray) -> None:
        """Starts a step of the given envs, [n]; none of them may be busy."""
        messages = self._step_messages(action, env_id, self._is_whole(env_id))
        self._stepping |= self._by_worker(env_id)
        self._begin(messages, 'step()', self._step_timeout)

    def begin_resets(self, env_id: IntArray, seeds: Sequence[int | None]) -> None:
        """Begins an episode in the given envs, [n], restarting missing workers; none of them may be busy."""
        due = self._by_worker(env_id)
        messages = self._reset_messages(due, env_id, seeds)
        self._beginning |= due
        self._begin(messages, 'reset()', self._reset_timeout)

    def _begin(self, messages: Mapping[int, bytes], what: str, limit: float) -> None:
        for index in messages:
            self.busy[self._owned[index]] = True
        self._pool.ask(messages, what, limit)

    def gather(self, patience: float) -> Through:
        """Waits until a worker finishes, or for the given seconds, and returns all answers so far."""
        replies, faults = self._pool.gather(1, patience)
        stepped = self._through(self._stepping)
        begun = self._through(self._beginning)
        told, more = self._unpacked({index: replies[index] for index in stepped if index in replies})
        faults += more
        faults += failed_resets(replies[index] for index in begun if index in replies)
        faults.sort(key=first_env)
        return Through(_ids(stepped), _ids(begun), told, faults)

    def _through(self, asked: dict[int, IntArray]) -> dict[int, IntArray]:
        """Removes and returns the workers without a pending answer."""
        through = {index: own for index, own in asked.items() if index not in self._pool.asked}
        for index in through:
            del asked[index]
            self.busy[self._owned[index]] = False
        return through

    def rows(self, env_id: IntArray) -> tuple[Array, ...]:
        """Returns copies of the last step results of these envs, [n]: obs, reward, terminated, truncated."""
        arrays = self._arrays
        columns = (arrays.obs[self._which], arrays.reward, arrays.terminated, arrays.truncated)
        return tuple(column[env_id] for column in columns)

    def first_obs(self, env_id: IntArray) -> Array:
        """Returns a copy of the first observations from the last resets of these envs, [n, ...]."""
        return self._arrays.first_obs[env_id]


def _ids(by_worker: Mapping[int, IntArray]) -> IntArray:
    return np.sort(np.concatenate(list(by_worker.values()))) if by_worker else NO_ENV


class SubprocessConfig(EnvManagerConfig):
    """Options of managers of envs in processes."""

    worker_num: int | None = option(
        None,
        range='[1, inf)',
        unit='processes',
        doc='None: one for each usable core; never more than there are envs',
        may_change=True,
    )
    step_timeout: float = option(
        60.0,
        range='(0, inf)',
        unit='seconds',
        doc='longest time that one env may take for a step',
        may_change=True,
    )
    reset_timeout: float = option(
        120.0,
        range='(0, inf)',
        unit='seconds',
        doc='longest time in which one env is created, reset, saved or loaded',
        may_change=True,
    )


@ENV_MANAGER_REGISTRY.register('subprocess')
class SubprocessEnvManager(BaseEnvManager):
    """Steps N envs in W worker processes, N / W of them in each, through shared arrays.

    With the same seeds it gives the same steps as ``base``. In addition to envs that raise, it survives envs that hang,
    are killed or end their process: their worker is replaced, together with its other envs.

    Args:
        env_fn: Factories of the envs, N of them, called in another process.
        cfg: Options of the manager.
    """

    reaches = 'process'
    _cfg: SubprocessConfig

    @classmethod
    def from_factory(
        cls, factory: EnvFactory, env_num: int, cfg: EasyDict | None = None, render_mode: str | None = None
    ) -> Self:
        to_bytes(dict(factory.cfg), 'env')
        to_bytes(factory, type(factory).__name__)
        manager = cls([MakeEnv(factory, render_mode)] * env_num, cfg)
        factory.spec = manager.spec
        return manager

    def _make_group(self) -> Group:
        worker_num = min(self._cfg.worker_num or usable_cores(), self.env_num)
        return WorkerGroup(self._env_fn, worker_num, self._cfg.step_timeout, self._cfg.reset_timeout)


class AsyncConfig(SubprocessConfig):
    """Options of ``AsyncSubprocessEnvManager``."""

    worker_num: int | None = option(
        None,
        range='[1, inf)',
        unit='processes',
        doc='None: one for each env; with fewer, envs of one worker wait for each other',
        may_change=True,
    )
    wait_num: int = option(
        1,
        range='[1, inf)',
        unit='envs',
        doc='that a step waits for; more make larger batches',
        may_change=True,
    )
    wait_timeout: float | None = option(
        None,
        range='[0, inf)',
        unit='seconds',
        doc='after which a step returns with fewer envs than wait_num, but with one; None: never',
        may_change=True,
    )


@ENV_MANAGER_REGISTRY.register('async_subprocess')
class AsyncSubprocessEnvManager(SubprocessEnvManager):
    """Steps N envs in W worker processes and returns as soon as some of them are finished.

    ``step`` sends actions and returns the envs that have answered, whenever their actions were sent; the others are
    busy, and not ``ready``, until a later step returns them. A ``reset`` of named envs does not wait either: they are
    ready once a later step finds that they have begun. A slow env, or a slow reset, therefore delays only the envs of
    its own worker; by default, every env has its own. Which envs answer together depends on timing: each env takes the
    same steps as under ``subprocess``, but two training runs are not equal bit for bit.

    ``state_dict()`` waits for running steps and keeps their answers in the state; the next step returns them. Apart from
    timing, a run that continues depends on that state alone.

    Args:
        env_fn: Factories of the envs, N of them, called in another process.
        cfg: Options of the manager.
    """

    _cfg: AsyncConfig

    def launch(self) -> None:
        if not self.closed:
            return
        super().launch()
        if self._cfg.wait_num < self.env_num or self._cfg.wait_timeout is not None:
            self.why_inexact = (
                'each step takes the envs that answer first; env_manager.wait_num='
                f'{self.env_num} without a wait_timeout waits for all'
            )
        self._seeding: dict[int, int | None] = {}  # envs that start an episode, and the seeds
        count = self.env_num
        # whether there is an answer not returned by a step yet, [N]
        self._answered = np.zeros(count, np.bool_)
        self._answers: dict[str, Array] = {
            'obs': np.zeros_like(self.obs),
            'reward': np.zeros(count),
            'terminated': np.zeros(count, np.bool_),
            'truncated': np.zeros(count, np.bool_),
        }
        self._infos: list[Mapping[str, Any]] = [{}] * count  # the rest of these answers

    def _make_group(self) -> Group:
        worker_num = min(self._cfg.worker_num or self.env_num, self.env_num)
        return AsyncWorkerGroup(self._env_fn, worker_num, self._cfg.step_timeout, self._cfg.reset_timeout)

    @property
    def ready(self) -> IntArray:
        if self.closed:
            return self._ready
        waiting = self._waiting()
        return self._ready if waiting.all() else self._ready[waiting[self._ready]]

    def _waiting(self) -> BoolArray:
        """Whether each env is neither busy nor has an answer to be returned, [N]."""
        waiting: BoolArray = ~(self._group.busy | self._answered)
        return waiting

    def reset(self, env_id: IntArray | None = None, seed: Sequence[int | None] | None = None) -> None:
        self.launch()
        self._finish(self._all if env_id is None else env_id)
        seeds = self._seeds(env_id, seed)
        if env_id is None:
            self._begin(seeds)
        else:
            self._begin_soon(seeds)

    def _begin(self, seeds: Mapping[int, int | None]) -> None:
        self._begin_soon(seeds)
        self._finish(self._all)

    def _begin_soon(self, seeds: Mapping[int, int | None]) -> None:
        """Begins a new episode in each of the given envs, none of which is busy, and drops their earlier answers."""
        self._answered[list(seeds)] = False
        try:
            self._send_resets({env: seed for env, seed in seeds.items() if self._settle(env)})
        except Exception:
            self.close()
            raise

    def _send_resets(self, seeds: Mapping[int, int | None]) -> None:
        if seeds:
            self._seeding |= seeds
            self._group.begin_resets(np.array(list(seeds)), list(seeds.values()))

    def _finish(self, env_id: IntArray) -> None:
        """Waits until none of these envs is busy; answers are held."""
        try:
            while self._group.busy[env_id].any():
                self._take(math.inf)
        except Exception:
            self.close()
            raise

    def step(self, action: Array, env_id: IntArray) -> TimeStep:
        if self.closed:
            raise ValueError('step() of envs that are closed; reset() creates them again')
        if not np.isin(env_id, self.ready).all():
            raise ValueError(
                f'step() of env {env_id.tolist()}, of which only {self.ready.tolist()} are ready'
            )
        try:
            if len(action) != len(env_id):
                raise ActionError(f'{len(action)} actions were given for {len(env_id)} envs')
            self._send_steps(action, env_id)
            self._wait()
            step = self._returned(env_id)
            contract.check_values(step, self.spec, self._group.place)
        except Exception:
            self.close()
            raise
        return step

    def _send_steps(self, action: Array, env_id: IntArray) -> None:
        """Steps the given envs that have a running episode; the others answer with a void step."""
        if self._lost:
            able = np.array([env not in self._lost for env in env_id.tolist()], np.bool_)
            for env in env_id[~able].tolist():
                self._hold_void(env)
            action, env_id = action[able], env_id[able]
        if len(env_id):
            self._group.begin_steps(action, env_id)

    def _hold_void(self, env: int) -> None:
        """Holds a void step as the answer of an env that has no running episode."""
        for name, column in self._answers.items():
            column[env] = self.obs[env] if name == 'obs' else 0
        self._infos[env] = {'abnormal': True, 'env_error': self._lost[env]}
        self._answered[env] = True
        if env in self._dropped:
            self._settle(env)

    def _wait(self) -> None:
        """Waits until as many envs are finished as the config says, or none is busy."""
        timeout = self._cfg.wait_timeout
        end = math.inf if timeout is None else time.monotonic() + timeout
        begun = self._take(0.0)
        while self._group.busy.any():
            through = np.count_nonzero(self._answered) + begun
            rest = end - time.monotonic()
            if through >= self._cfg.wait_num or (through and rest <= 0):
                break
            begun += self._take(rest if through else math.inf)

    def _take(self, patience: float) -> int:
        """Waits until an env finishes, or for the given seconds, and holds the answers.

        Returns:
            Number of envs that have begun an episode.
        """
        stepped, begun, told, faults = self._group.gather(patience)
        if len(stepped):
            for column, new in zip(self._answers.values(), self._group.rows(stepped), strict=True):
                column[stepped] = new
            for env in stepped.tolist():
                self._infos[env] = told.get(env, {})
            self._answered[stepped] = True
        if faults:
            self._handle(faults)
            for env in stepped.tolist():
                if env in self._lost:
                    self._hold_void(env)
        return self._take_first_obs(begun) if len(begun) else 0

    def _take_first_obs(self, begun: IntArray) -> int:
        """Stores the first observations of episodes, and begins another one in envs that failed."""
        failed = [env for env in begun.tolist() if env in self._lost]
        for env in begun.tolist():
            self._begun[env] = self._seeding.pop(env)
        again = [env for env in failed if self._settle(env)]
        self._send_resets({env: restart_seed(self._seed[env], int(self._restarts[env])) for env in again})
        fine = np.setdiff1d(begun, failed) if failed else begun
        self.obs = self.obs.copy()
        self.obs[fine] = self._group.first_obs(fine)
        return len(fine)

    def _returned(self, acting: IntArray) -> TimeStep:
        """Returns the held answers, in env order."""
        env_id = np.flatnonzero(self._answered)
        self._answered[:] = False
        infos = [self._infos[env] for env in env_id.tolist()]
        step = TimeStep(
            **{name: column[env_id] for name, column in self._answers.items()},
            info=infos if any(infos) else (NO_INFO,) * len(env_id),
            env_id=acting if np.array_equal(env_id, acting) else env_id,
        )
        self.obs = self.obs.copy()
        self.obs[env_id] = step.obs
        return step

    def render(self, env_id: int) -> Array:
        self._finish(self._all)
        return super().render(env_id)

    def _capture(self) -> dict[int, Any]:
        if self.closed:
            return {}
        self._finish(self._all)
        states = super()._capture()
        for env in np.flatnonzero(self._answered).tolist():
            if env in states and env_state.capture_info(self._infos[env]) is None:
                states[env] = env_state.Refusal(
                    'the info of its last step contains objects that are not plain data'
                )
        return states

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        held = [
            env
            for env in np.flatnonzero(self._answered).tolist()
            if str(env) in state['envs'] or env in self._lost or env in self._dropped
        ]
        state['answers'] = {
            'env_id': np.array(held, np.int64),
            'info': [env_state.capture_info(self._infos[env]) for env in held],
            **{name: column[held] for name, column in self._answers.items()},
        }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> IntArray:
        self.launch()
        self._finish(self._all)
        self._answered[:] = False
        lost = super().load_state_dict(state)
        saved = state['answers']
        env_id = saved['env_id']
        for name, column in self._answers.items():
            column[env_id] = saved[name]
        for env, info in zip(env_id.tolist(), saved['info'], strict=True):
            self._infos[env] = env_state.restore_info(info)
        self._answered[env_id] = True
        return lost
