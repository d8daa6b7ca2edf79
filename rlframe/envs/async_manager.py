"""Runs N envs in worker processes; a step waits for all of them, or returns those that are finished."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from easydict import EasyDict

from rlframe.data.timestep import NO_INFO, Array, BoolArray, IntArray, TimeStep
from rlframe.envs import contract
from rlframe.envs.base_env import EnvFactory
from rlframe.envs.env_manager import BaseEnvManager, EnvManagerConfig, States
from rlframe.envs.env_worker import SharedArrays
from rlframe.envs.faults import Fault
from rlframe.envs.interface import Episodes
from rlframe.envs.worker_pool import WorkerPool
from rlframe.envs.worker_process import STEP, call, message
from rlframe.errors import EnvCrashedError, EnvStartError, EnvTimeoutError, IncompatibleError
from rlframe.registry import ENV_MANAGER_REGISTRY
from rlframe.run.machine import usable_cores
from rlframe.utils.every import seconds
from rlframe.utils.field import option
from rlframe.utils.serialize import from_bytes, to_bytes


class SubprocessConfig(EnvManagerConfig):
    """Options of managers of envs in processes."""

    worker_num: int | None = option(
        None,
        range='[1, inf)',
        unit='processes',
        doc='None: one for each usable core; never more than there are envs',
        may_change=True,
    )
    step_timeout: float = seconds(60.0, 'longest time that one env may take for a step')
    reset_timeout: float = seconds(120.0, 'longest time in which one env is created, reset, saved or loaded')


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
        manager = super().from_factory(factory, env_num, cfg, render_mode)
        factory.spec = manager.spec
        return manager

    waits_for_all = True
    """Whether a step and a reset wait for every env."""
    _pool: Any = None  # a WorkerPool
    _arrays: Any = None  # SharedArrays, while there are envs

    def _create(self) -> None:
        worker_num = min(self._cfg.worker_num or self._usual_worker_num(), self.env_num)
        self._packed = to_bytes(list(self._make.values()), 'env_fn')
        self._owned = np.array_split(self._all, worker_num)  # envs of each worker
        self._owner = np.repeat(np.arange(worker_num), [len(own) for own in self._owned])
        self._pool = WorkerPool([own.tolist() for own in self._owned])
        self._stepping: dict[int, IntArray] = {}  # workers with a pending answer to the envs that they step
        self._beginning: dict[int, IntArray] = {}  # or begin an episode in
        self._seeding: dict[int, int | None] = {}  # envs that begin an episode, and the seeds
        # envs whose answer, in the shared arrays, no step has returned yet, [N], and their infos; Python looks at all
        # flags more quickly than numpy
        self._flags = bytearray(self.env_num)
        self._answered = np.frombuffer(self._flags, np.bool_)
        self._infos: dict[int, Mapping[str, Any]] = {}
        self._which = 0  # the set of observations that steps go to
        self._is_lent = False  # whether the last step returned that set itself
        for index in range(worker_num):
            self._pool.start(index)
        launch = {index: call('launch', self._packed, own.tolist()) for index, own in enumerate(self._owned)}
        try:
            answers = self._ask(launch, 'its constructor')
        except EnvTimeoutError:
            raise
        except EnvCrashedError as error:
            raise EnvStartError(error.message) from error
        specs = [spec for index in sorted(answers) for spec in answers[index]]
        contract.check_spaces(specs, specs[0])
        self.spec = specs[0]
        if self.spec.action_space.shape is None:
            raise IncompatibleError(
                f'{self.spec.name}: actions of {self.spec.action_space!r} cannot be put into shared arrays',
                where='env.manager.type',
                remedy="env_manager.type='base' takes any action.",
            )
        self._arrays = SharedArrays(self._pool.memory, self._pool.offset, self.spec, self.env_num)
        self._episodes = Episodes(self.env_num, self._arrays.counts)
        self._episodes.unchecked[:] = contract.CHECKED_STEPS
        self._pool.place = self._episodes.place
        attach = call('attach', self.spec, self.env_num)
        self._ask(dict.fromkeys(self._pool.running, attach), 'its constructor')

    def _usual_worker_num(self) -> int:
        return usable_cores()

    def _ask(self, messages: Mapping[int, bytes], what: str, limit: float | None = None) -> dict[int, Any]:
        """Returns the workers' answers; raises their errors."""
        replies, faults = self._pool.exchange(messages, what, limit or self._cfg.reset_timeout)
        if faults:
            self.close()
            raise min(faults, key=_first_env).error
        return {index: from_bytes(body) for index, body in replies.items()}

    @property
    def busy(self) -> BoolArray:
        """Whether each env waits for its worker's answer, [N]."""
        asked = np.zeros(len(self._owned), np.bool_)
        asked[list(self._pool.asked)] = True
        return asked[self._owner]

    def _waiting(self) -> BoolArray:
        """Whether each env is neither busy nor has an answer to be returned, [N]."""
        waiting = ~self._answered
        return waiting & ~self.busy if self._pool.asked else waiting

    @property
    def _all_wait(self) -> bool:
        """Whether every env is neither busy nor has an answer to be returned."""
        return not self._pool.asked and 1 not in self._flags

    @property
    def ready(self) -> IntArray:
        if self.closed or self._all_wait:
            return self._ready
        return self._ready[self._waiting()[self._ready]]

    def reset(self, env_id: IntArray | None = None, seed: Sequence[int | None] | None = None) -> None:
        self.launch()
        self._finish(self._all if env_id is None else env_id)
        self._begin_soon(self._seeds(env_id, seed))
        if env_id is None or self.waits_for_all:
            self._finish(self._all)

    def _begin(self, seeds: Mapping[int, int | None]) -> None:
        self._begin_soon(seeds)
        self._finish(self._all)

    def _begin_soon(self, seeds: Mapping[int, int | None]) -> None:
        """Begins a new episode in each of the given envs, which must not be busy, and drops their earlier answers."""
        for env in seeds:
            self._answered[env] = False
            self._infos.pop(env, None)
        try:
            self._send_resets({env: seed for env, seed in seeds.items() if self._settle(env)})
        except Exception:
            self.close()
            raise

    def _send_resets(self, seeds: Mapping[int, int | None]) -> None:
        """Begins episodes, in new workers where there are none."""
        if not seeds:
            return
        self._seeding |= seeds
        messages = {}
        due = self._by_worker(np.array(list(seeds)))
        for index, own in due.items():
            given = own.tolist(), [seeds[env] for env in own.tolist()]
            if index in self._pool.running:
                messages[index] = call('reset', *given, dict(self.schedule))
            else:
                messages[index] = self._join_message(index, *given)
        self._beginning |= due
        self._pool.ask(messages, 'reset()', self._cfg.reset_timeout)

    def _join_message(self, index: int, env_id: Sequence[int], seeds: Sequence[int | None]) -> bytes:
        """Starts a replacement of a lost worker, and returns its first request."""
        self._pool.start(index)
        own = self._owned[index].tolist()
        given = env_id, seeds, dict(self.schedule)
        return call('join', self._packed, own, self.spec, self.env_num, *given)

    def _by_worker(self, env_id: IntArray) -> dict[int, IntArray]:
        owner = self._owner[env_id]
        return {index: env_id[owner == index] for index in sorted(set(owner.tolist()))}

    def _finish(self, env_id: IntArray) -> None:
        """Waits until none of these envs is busy; answers are held."""
        try:
            while self._pool.asked and self.busy[env_id].any():
                self._take(math.inf)
        except Exception:
            self.close()
            raise

    def _are_ready(self, env_id: IntArray) -> bool:
        is_waiting = self._all_wait or bool(self._waiting()[env_id].all())
        return is_waiting and super()._are_ready(env_id)

    def _stepped(self, action: Array, env_id: IntArray) -> TimeStep:
        """Steps the given envs and returns the held answers: of these envs in their order, or else in env order."""
        # send the actions to running envs
        self._free_obs()
        acting = env_id
        if self._lost:
            able = np.array([env not in self._lost for env in env_id.tolist()], np.bool_)
            for env in env_id[~able].tolist():
                self._answer_with_void(env)
            action, acting = action[able], env_id[able]
        is_whole = self._is_whole(env_id)
        if len(acting):
            self._send_steps(action, acting)
        self._wait()
        # envs that have answered
        answered, self._is_lent = env_id, is_whole
        if not is_whole or 0 in self._flags:
            answered = np.flatnonzero(self._answered)
            if len(answered) == len(env_id) and self._answered[env_id].all():
                answered = env_id
            self._is_lent = self._is_whole(answered)
        # their rows
        self._answered[:] = False
        arrays = self._arrays
        obs = arrays.obs[self._which]
        columns = (arrays.reward[answered], arrays.terminated[answered], arrays.truncated[answered])
        infos = [self._infos.pop(env, {}) for env in answered.tolist()] if self._infos else ()
        return TimeStep(
            obs if self._is_lent else obs[answered], *columns, infos or (NO_INFO,) * len(answered), answered
        )

    def _free_obs(self) -> None:
        """Chooses a set of observations that no caller holds."""
        if self._is_lent:
            self._which = self._which ^ 1
            self._is_lent = False

    def _is_whole(self, env_id: IntArray) -> bool:
        """Whether these are all envs, in order."""
        return len(env_id) == self.env_num and bool((env_id == self._all).all())

    def _send_steps(self, action: Array, env_id: IntArray) -> None:
        """Writes actions into the shared arrays, and makes the workers step these envs."""
        shape = self._arrays.action_shape[1:]
        if action.dtype.kind not in 'biuf' or action.dtype.itemsize > 8 or action.shape[1:] != shape:
            action = self._as_declared(action, env_id)
        dtype = action.dtype.char
        self._arrays.action(dtype)[env_id] = action
        if self._is_whole(env_id):
            due: dict[int, IntArray] = dict(enumerate(self._owned))
            messages = dict.fromkeys(due, self._step_message(dtype))
        else:
            due = self._by_worker(env_id)
            messages = {
                index: self._step_message(dtype, None if np.array_equal(own, self._owned[index]) else own)
                for index, own in due.items()
            }
        self._stepping |= due
        self._pool.ask(messages, 'step()', self._cfg.step_timeout)

    def _as_declared(self, action: Array, env_id: IntArray) -> Array:
        """Converts actions of a type that the shared array does not support to the space's type.

        Raises:
            ActionError: If an action is not in the action space.
        """
        for env, own in zip(env_id.tolist(), action, strict=True):
            contract.check_action(own, self.spec, env)
        return np.asarray(action, self.spec.action_space.dtype)

    def _step_message(self, dtype: str, env_id: IntArray | None = None) -> bytes:
        listed = b'' if env_id is None else env_id.astype(np.int64).tobytes()
        return message(STEP, bytes((self._which, ord(dtype))) + listed)

    def _wait(self) -> None:
        """Waits until as many envs are finished as a step returns, or none is busy."""
        while self._pool.asked:
            self._take(math.inf)

    def _take(self, patience: float) -> int:
        """Waits for the answer of a worker, or of all, or for the given seconds, and holds the answers.

        Returns:
            Number of envs that have begun an episode.
        """
        replies, faults = self._pool.gather(len(self._pool.asked) if self.waits_for_all else 1, patience)
        stepped, begun = self._through(self._stepping), self._through(self._beginning)
        for index in begun.keys() & replies.keys():
            faults += from_bytes(replies[index])
        for index in stepped.keys() & replies.keys():
            if replies[index]:  # what the shared arrays do not hold
                infos = from_bytes(replies[index])
                faults += infos.pop('faults')
                for kind, text in infos.pop('remarks'):
                    self.remarks.report(kind, text)
                self._infos |= infos
        for own in stepped.values():
            self._answered[own] = True
        if faults:
            self._handle(sorted(faults, key=_first_env))
            for own in stepped.values():
                for env in own.tolist():
                    if env in self._lost:
                        self._answer_with_void(env)
        return self._take_first_obs(np.sort(np.concatenate(list(begun.values())))) if begun else 0

    def _through(self, asked: dict[int, IntArray]) -> dict[int, IntArray]:
        """Removes and returns the workers without a pending answer, in order."""
        through = {index: own for index, own in sorted(asked.items()) if index not in self._pool.asked}
        for index in through:
            del asked[index]
        return through

    def _answer_with_void(self, env: int) -> None:
        """Stores a void step as the answer of an env that has no running episode."""
        arrays = self._arrays
        arrays.obs[self._which][env] = self.obs[env]
        arrays.reward[env] = 0.0
        arrays.terminated[env] = arrays.truncated[env] = False
        self._answered[env] = True
        self._infos[env] = self._void_info(env)

    def _take_first_obs(self, begun: IntArray) -> int:
        """Stores the first observations of episodes, and begins another one in envs that failed."""
        failed = [env for env in begun.tolist() if env in self._lost]
        for env in begun.tolist():
            self._episodes.begun[env] = self._seeding.pop(env)
        again = [env for env in failed if self._settle(env)]
        self._send_resets({env: self._episodes.restart_seed(env) for env in again})
        fine = np.setdiff1d(begun, failed) if failed else begun
        self.obs = self.obs.copy()
        self.obs[fine] = self._arrays.first_obs[fine]
        return len(fine)

    def render(self, env_id: int) -> Array:
        self._finish(self._all)
        index = int(self._owner[env_id])
        asked = {index: call('render', env_id)}
        picture: Array = self._ask(asked, 'render()', self._cfg.step_timeout)[index]
        return picture

    def capture(self) -> tuple[States, list[Fault]]:
        replies, faults = self._pool.exchange(
            dict.fromkeys(self._pool.running, call('capture')), 'saving', self._cfg.reset_timeout
        )
        states: States = {}
        for index in sorted(replies):
            states.update(from_bytes(replies[index])[0])
        return states, faults

    def restore(self, states: Mapping[int, Any]) -> dict[int, str]:
        missing = [index for index in range(len(self._owned)) if index not in self._pool.running]
        self._ask({index: self._join_message(index, (), ()) for index in missing}, 'its start')
        ask = {
            index: call('restore', {env: states[env] for env in own.tolist() if env in states})
            for index, own in enumerate(self._owned)
        }
        return {env: why for unfit in self._ask(ask, 'loading').values() for env, why in unfit.items()}

    def _capture(self) -> States:
        """Returns the states of the envs whose running episode has no answer that a step is still to return."""
        if self.closed:
            return {}
        self._finish(self._all)
        return {env: state for env, state in super()._capture().items() if not self._answered[env]}

    def load_state_dict(self, state: Mapping[str, Any]) -> IntArray:
        self.launch()
        self._finish(self._all)
        self._free_obs()
        self._answered[:] = False
        self._infos = {}
        return super().load_state_dict(state)

    @property
    def closed(self) -> bool:
        return super().closed or (self._pool is not None and self._pool.closed)

    def close(self) -> None:
        super().close()
        if self._pool is not None:
            self._pool.close()
        if self._arrays is not None:  # the shared memory goes with the last array on it
            self._arrays = None
            self._episodes.detach()
            self.obs = self.obs.copy()
            self._answered[:] = False


def _first_env(fault: Fault) -> int:
    """Returns the sort key of faults."""
    return fault.env_id[0]


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
        doc='number of envs that a step waits for; more make larger batches',
        may_change=True,
    )
    wait_timeout: float | None = option(
        None,
        range='[0, inf)',
        unit='seconds',
        doc='longest wait of a step for wait_num envs; then it returns with fewer, but with one. None: no limit',
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

    ``state_dict()`` waits for running steps. Envs whose answers no step has returned yet are not part of it: a run that
    continues from it begins new episodes in them.
    """

    _cfg: AsyncConfig

    waits_for_all = False

    def launch(self) -> None:
        if self._cfg.wait_num < self.env_num or self._cfg.wait_timeout is not None:
            self.why_inexact = (
                'each step takes the envs that answer first; env_manager.wait_num='
                f'{self.env_num} without a wait_timeout waits for all'
            )
        super().launch()

    def _usual_worker_num(self) -> int:
        return self.env_num

    def _wait(self) -> None:
        timeout = self._cfg.wait_timeout
        end = math.inf if timeout is None else time.monotonic() + timeout
        begun = self._take(0.0)
        while self._pool.asked:
            through = np.count_nonzero(self._answered) + begun
            rest = end - time.monotonic()
            if through >= self._cfg.wait_num or (through and rest <= 0):
                break
            begun += self._take(rest if through else math.inf)
