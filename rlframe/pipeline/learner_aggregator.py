"""LearnerAggregator: several learners share each update; rank 0 has the run, the others follow it with the same data."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.timestep import Batch
from rlframe.errors import ConfigError, WorkerLostError
from rlframe.pipeline import build
from rlframe.policy.parts.compiled import resolve_device
from rlframe.policy.parts.ranks import Ranks, device_of
from rlframe.remote.payload import pack, unpack
from rlframe.run.child_process import ChildProcess
from rlframe.run.machine import usable_cores
from rlframe.utils.serialize import ACTING, from_parent, on_cpu, to_child

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.data.faces import LearnMode
    from rlframe.data.timestep import EnvSpec
    from rlframe.policy import Policy

logger = logging.getLogger('rlframe.learner')

READY_SECONDS = 0.02
"""Time between two looks for learners that are being started."""
END_SECONDS = 5.0
"""Time for the others to end before they are killed."""


def world() -> tuple[int, int]:
    """Returns rank and number of the processes that torchrun started; 0 and 1 without it."""
    return int(os.environ.get('RANK', '0')), int(os.environ.get('WORLD_SIZE', '1'))


def follow_torchrun(cfg: ExperimentConfig) -> bool:
    """Makes the updates of torchrun's rank 0 until it ends, in another rank; in rank 0 returns False at once.

    Raises:
        ConfigError: If torchrun started another number of processes than the config has learners, or may not end them all.
    """
    rank, size = world()
    count = cfg.policy.learn['num_learners']
    if count != size:
        raise ConfigError(
            f'torchrun started {size} processes',
            where='policy.learn.num_learners',
            got=count,
            expected=str(size),
        )
    if restarts := cfg.policy.learn['max_learner_restarts']:
        raise ConfigError(
            'torchrun ends all learners if one ends',
            where='policy.learn.max_learner_restarts',
            got=restarts,
            expected='0',
            remedy='Resume the run, or let --learners start them.',
        )
    if rank == 0:
        return False
    follow(cfg, build.make_factory(cfg).spec, None, rank, size, '')
    return True


def make_learners(cfg: ExperimentConfig, policy: Policy) -> LearnerAggregator | None:
    """Starts the processes that share the updates of a policy; None if this one makes them alone."""
    if cfg.policy.learn.get('num_learners', 1) == 1:
        return None
    group = LearnerAggregator(cfg, policy)
    group.start()
    return group


class LearnerAggregator:
    """Lets several learners share each update of a policy, led by this process: it sends them the data.

    The others are child processes, or those of torchrun. Every learner computes the gradient of its part of a batch, and
    all make the step of their mean. A ``BaseLearner`` gets the face that ``deal_with_learner_start`` returns.

    Args:
        cfg: The compiled config of an experiment; ``policy.learn.num_learners`` is the number of learners.
        policy: The policy that is trained; created from the config if not given.
    """

    def __init__(self, cfg: ExperimentConfig, policy: Policy | None = None) -> None:
        self._cfg = cfg
        self.policy = build.make_policy(cfg, build.make_factory(cfg).spec) if policy is None else policy
        """The policy that is trained."""
        self._most = cfg.policy.learn['max_learner_restarts']
        self.restarts = 0
        """How often the other learners were started again."""
        self._sent = -1
        self._info: Mapping[str, Any] | None = None
        self._folder = ''
        self._children: list[ChildProcess] = []
        self._ranks: Ranks | None = None
        self._forward: Any = None

    def start(self) -> None:
        """Starts the other learners."""
        cfg, policy = self._cfg, self.policy
        size = cfg.policy.learn['num_learners']
        device = device_of(policy.device, 0, size)
        try:
            if world()[1] == 1:
                self._folder = tempfile.mkdtemp(prefix='rlframe-')
                given = cfg, policy.spec, on_cpu(policy.get_attribute('given_model'))
                data = to_child(given, 'config', ACTING)
                self._children = [self._started(rank, size, data) for rank in range(1, size)]
                self._wait_until_ready()
            with self._watched():
                self._ranks = Ranks(0, size, self._store, device, self._goes_on)
                self._sent = -1
        except BaseException:
            self.close()
            raise
        self._ranks.attach(policy.update)

    @property
    def _store(self) -> str:
        return str(Path(self._folder) / 'ranks') if self._folder else ''

    def _wait_until_ready(self) -> None:
        """Waits until the children have their policies: the wait for their connections would not notice that one ended."""
        while not all(_sign(self._store, rank).exists() for rank in range(1, len(self._children) + 1)):
            if ends := self._ends():
                raise WorkerLostError(
                    f'it was not started: {ends}{self._after_restarts}',
                    where='policy.learn.num_learners',
                    remedy='The log of the run has what it printed.',
                )
            sleep(READY_SECONDS)

    def _ends(self) -> str:
        """Returns which learners have ended, and how."""
        ends = [(rank, child.ended) for rank, child in enumerate(self._children, 1)]
        return '; '.join(
            f'learner {rank} ended: {how or "without an error"}' for rank, how in ends if how is not None
        )

    def _started(self, rank: int, size: int, data: bytes) -> ChildProcess:
        def say(text: str) -> None:
            logger.info('learner %d: %s', rank, text)

        return ChildProcess(f'learner {rank}', __name__, (rank, size, self._store), data, say)

    # the steps, under DI-engine's names

    def deal_with_get_resource(self) -> dict[str, int]:
        """Returns the number of learners, as GPUs, and the number of CPU cores."""
        return {'gpu': self._cfg.policy.learn['num_learners'], 'cpu': usable_cores()}

    def deal_with_learner_start(self, task: LearnMode) -> LearnMode:
        """Returns the policy's learn face with a ``forward`` that makes all learners update."""
        self._forward, own = task.forward, self.policy.get_setting_learn

        def forward(data: Batch, **settings: Any) -> Any:
            self._start_again()
            with self._watched():
                try:
                    self.deal_with_get_data((data, settings))
                except RuntimeError as error:
                    if not self._goes_on(error):
                        raise
                answer = self.deal_with_learn((data, settings))
            return self._counted(answer) if isinstance(answer, Mapping) else self._each(answer)

        def get_setting_learn(info: Mapping[str, Any]) -> dict[str, Any]:
            self._info = {'envstep': info['envstep']}
            return own(info)

        self.policy.get_setting_learn = get_setting_learn  # type: ignore[method-assign]  # schedules move there, too
        return task._replace(forward=forward)

    def _start_again(self) -> None:
        """Starts the others if they were lost; a loss while they start counts like any other."""
        while self._ranks is None:
            try:
                self.start()
            except WorkerLostError as error:
                if self.restarts >= self._most:
                    raise
                self._count(error.message)

    def deal_with_get_data(self, task: tuple[Batch, Mapping[str, Any]]) -> None:
        """Sends the others what an update depends on: its data and arguments, and the policy's state if it was loaded."""
        if ends := self._ends():  # a message to one that is gone may wait for ever
            raise RuntimeError(ends)
        policy = self.policy
        data, settings = task
        message = {'data': data, 'settings': dict(settings), 'info': self._info}
        message['acting'] = policy.get_attribute('acting').state()
        if self._sent != policy.loads:
            message['state'] = policy.learn_mode.state_dict()
            self._sent = policy.loads
        assert self._ranks is not None  # it was started
        self._ranks.send(pack(message))

    def deal_with_learn(self, task: tuple[Batch, Mapping[str, Any]]) -> Any:
        """Makes this learner's part of the updates; returns what the policy's ``forward`` does."""
        data, settings = task
        return self._forward(data, **settings)

    @staticmethod
    def merge_info(info: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Returns the reports of several learners as one: means of numbers; all else is that of the first."""
        return {
            name: float(np.mean([one[name] for one in info])) if isinstance(first, float) else first
            for name, first in (info[0] if info else {}).items()
        }

    def _each(self, updates: Any) -> Iterator[Callable[[], Any]]:
        iterator = iter(updates)
        while True:
            with self._watched():
                update = next(iterator, None)
            if update is None:
                return
            yield self._guarded(update)

    def _guarded(self, update: Callable[[], Any]) -> Callable[[], Any]:
        def guarded() -> Any:
            with self._watched():
                return self._counted(update())

        return guarded

    def _counted(self, metrics: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the training variables of an update with the number of restarts, if there may be some."""
        return {**metrics, 'learner_restarts': float(self.restarts)} if self._most else metrics

    def _loss(self, error: RuntimeError) -> str:
        """Returns what has become of a learner, given the error of a message; empty if the error is about something else."""
        for child in self._children:
            child.leave(END_SECONDS)
        is_of_message = any(name in str(error).lower() for name in ('gloo', 'nccl'))
        return self._ends() or (f'a learner was lost: {error}' if is_of_message else '')

    def _goes_on(self, error: RuntimeError) -> bool:
        """Whether this learner makes the running updates alone, after another one was lost; the next ones are shared again."""
        if self.restarts >= self._most or not (loss := self._loss(error)):
            return False
        self._count(loss)
        self.close()
        return True

    def _count(self, loss: str) -> None:
        self.restarts += 1
        logger.warning('%s; all but the first are started again (%d of %d)', loss, self.restarts, self._most)

    @property
    def _after_restarts(self) -> str:
        return f', after {self.restarts} restarts' if self.restarts else ''

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Raises what has become of a learner that ended, in place of the error about its connection."""
        try:
            yield
        except RuntimeError as error:
            if not (loss := self._loss(error)):
                raise
            raise WorkerLostError(
                f'{loss}{self._after_restarts}',
                where='policy.learn.max_learner_restarts',
                remedy='Resume the run: its last checkpoint has the state of all learners.',
            ) from error

    def close(self) -> None:
        """Ends the other learners; may be called twice."""
        if self._ranks is not None:
            if not self._ends():
                with contextlib.suppress(RuntimeError):  # those of torchrun may be gone
                    self._ranks.send(pack({}))
            self._ranks.close()
            self._ranks = None
        for child in self._children:
            child.leave(END_SECONDS)
            child.end(0.0)
        self._children = []
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _sign(store: str, rank: int) -> Path:
    """Returns the file that says that a learner is ready to connect."""
    return Path(f'{store}-{rank}')


def follow(cfg: ExperimentConfig, spec: EnvSpec, model: Any, rank: int, size: int, store: str) -> None:
    """Makes the updates of rank 0 until it ends.

    Args:
        cfg: The config of the run.
        spec: Spaces of its envs.
        model: A network that replaces the one named in the config.
        rank: Number of this learner, from 1.
        size: Number of learners.
        store: See ``Ranks``.
    """
    cfg.policy.device = str(device_of(resolve_device(cfg.policy), rank, size))
    cfg.policy.init_from = None
    build.prepare(cfg)
    policy = build.make_policy(cfg, spec, model, ('learn',))
    if store:
        import torch.distributed  # noqa: F401  # it takes seconds, and then all connect at once

        _sign(store, rank).touch()
    ranks = Ranks(rank, size, store, policy.device)
    forward = policy.learn_mode.forward
    ranks.attach(policy.update)
    acting = policy.get_attribute('acting')
    while message := unpack(ranks.receive()):
        if 'state' in message:
            policy.learn_mode.load_state_dict(message['state'])
        acting.load_state(message['acting'])
        if message['info'] is not None:
            policy.get_setting_learn(message['info'])
        answer = forward(message['data'], **message['settings'])
        for update in () if isinstance(answer, Mapping) else answer:
            update()
    ranks.close()


def main(rank: int, size: int, store: str) -> None:
    """Follows the process that started this one, which sends config, spec and network by stdin."""
    cfg, spec, model = from_parent(sys.stdin.buffer.read())
    follow(cfg, spec, model, rank, size, store)
