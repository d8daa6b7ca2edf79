"""LearnerAggregator: several learners share each update; rank 0 has the run, the others follow it with the same data."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.timestep import Batch
from rlframe.errors import ConfigError, WorkerLostError
from rlframe.pipeline import build
from rlframe.policy.parts.compiled import resolve_device
from rlframe.policy.parts.ranks import Ranks, device_of
from rlframe.remote.payload import pack, unpack
from rlframe.remote.places import ChildPlace
from rlframe.remote.supervisor import Limits, Supervisor
from rlframe.remote.worker import Worker, answers
from rlframe.run.machine import usable_cores
from rlframe.utils.serialize import on_cpu

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.data.faces import LearnMode
    from rlframe.data.timestep import EnvSpec
    from rlframe.policy import Policy

END_SECONDS = 5.0
"""Time in which the end of a learner shows whose connection is lost."""
RESTARTS = 'policy.learn.max_learner_restarts'
REMEDY = 'Resume the run: its last checkpoint has the state of all learners. The log of the run has what they printed.'


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
    policy = _follower(cfg, build.make_factory(cfg).spec, None, size, rank - 1)
    follow(policy, rank, size, '')
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
        self._size = cfg.policy.learn['num_learners']
        self._others: Supervisor | None = None  # torchrun starts them
        if world()[1] == 1:
            given = cfg, self.policy.spec, on_cpu(self.policy.get_attribute('given_model')), self._size
            place = ChildPlace(LearnerWorker, [f'learner {rank}' for rank in range(1, self._size)])
            limits = Limits(restarts=cfg.policy.learn['max_learner_restarts'], where=RESTARTS)
            self._others = Supervisor(place, partial(_follower, *given), self._size - 1, limits, REMEDY)
        self._sent = -1
        self._folder = ''
        self._ranks: Ranks | None = None
        self._forward: Any = None

    def start(self) -> None:
        """Starts the other learners, and connects with them.

        Raises:
            WorkerLostError: If more were lost than may be started again.
        """
        try:
            while self._ranks is None:
                self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        if self._others is not None:
            self._folder = tempfile.mkdtemp(prefix='rlframe-')
            self._others.start()
            for rank in self._others.ranks:
                self._others.ask(rank, 'follow', self._store, self._size)
        device = device_of(self.policy.device, 0, self._size)
        try:
            self._ranks = Ranks(0, self._size, self._store, device, self._goes_on)
        except RuntimeError as error:
            if not self._goes_on(error):
                raise
        else:
            self._sent = -1
            self._ranks.attach(self.policy.update)

    @property
    def _store(self) -> str:
        return str(Path(self._folder) / 'ranks') if self._folder else ''

    @property
    def restarts(self) -> int:
        """How often a learner was started again."""
        return 0 if self._others is None else self._others.restarts

    # the steps, under DI-engine's names

    def deal_with_get_resource(self) -> dict[str, int]:
        """Returns the number of learners, as GPUs, and the number of CPU cores."""
        return {'gpu': self._cfg.policy.learn['num_learners'], 'cpu': usable_cores()}

    def deal_with_learner_start(self, task: LearnMode) -> LearnMode:
        """Returns the policy's learn face with a ``forward`` that makes all learners update."""
        self._forward = task.forward

        def forward(data: Batch, **settings: Any) -> Any:
            if self._ranks is None:
                self.start()
            self.deal_with_get_data((data, settings))
            answer = self.deal_with_learn((data, settings))
            return self._counted(answer) if isinstance(answer, Mapping) else self._each(answer)

        return task._replace(forward=forward)

    def deal_with_get_data(self, task: tuple[Batch, Mapping[str, Any]]) -> None:
        """Sends the others what an update depends on: its data and arguments, and the policy's state if it was loaded."""
        if self._has_lost(0.0):  # a message to one that is gone may wait for ever
            return
        policy = self.policy
        data, settings = task
        message = {'data': data, 'settings': dict(settings), 'envstep': policy.update.envstep}
        message['acting'] = policy.get_attribute('acting').state()
        if self._sent != policy.loads:
            message['state'] = policy.learn_mode.state_dict()
            self._sent = policy.loads
        assert self._ranks is not None  # it was started
        try:
            self._ranks.send(pack(message))
        except RuntimeError as error:
            if not self._goes_on(error):
                raise

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

    def _each(self, updates: Iterable[Callable[[], Any]]) -> Iterator[Callable[[], Any]]:
        for update in updates:
            yield partial(self._made, update)

    def _made(self, update: Callable[[], Any]) -> Mapping[str, Any]:
        return self._counted(update())

    def _counted(self, metrics: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the training variables of an update with the number of restarts, if there may be some."""
        may_restart = self._cfg.policy.learn['max_learner_restarts'] > 0
        return {**metrics, 'learner_restarts': float(self.restarts)} if may_restart else metrics

    def _has_lost(self, seconds: float) -> bool:
        """Whether another learner was lost, as far as it shows within some seconds; then this one makes the running updates alone.

        The next ones are shared again.

        Raises:
            WorkerLostError: If more were lost than may be started again.
        """
        others = self._others
        if others is None:
            return False
        deadline = monotonic() + seconds
        others.look(0.0)
        while len(others.ready) == len(others.ranks) and monotonic() < deadline:
            others.look()
        if len(others.ready) == len(others.ranks):
            return False
        for rank in others.ready:
            others.replace(rank, 'another learner was lost')
        others.abandon()
        self._disconnect()
        return True

    def _goes_on(self, error: RuntimeError) -> bool:
        """Whether another learner was lost, as by the error of a message; see ``_has_lost``."""
        if self._has_lost(END_SECONDS):
            return True
        if is_of_message(error):
            raise WorkerLostError(f'a learner was lost: {error}', where=RESTARTS, remedy=REMEDY) from error
        return False

    def _disconnect(self) -> None:
        """Leaves the others, which are no longer heard then."""
        if self._ranks is not None:
            self._ranks.close()
            self._ranks = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        """Ends the other learners; may be called twice."""
        if self._ranks is not None and self._others is None:
            with contextlib.suppress(RuntimeError):  # those of torchrun may be gone
                self._ranks.send(pack({}))
        self._disconnect()
        if self._others is not None:
            self._others.close()


class LearnerWorker(Worker):
    """Worker that makes the updates of another learner with a policy of its own."""

    @answers
    def launch(self) -> Any:
        import torch.distributed  # noqa: F401  # it takes seconds, and then all connect at once

        return super().launch()

    @answers
    def follow(self, store: str, size: int) -> None:
        """Makes the updates of the first learner until that is no longer heard."""
        try:
            follow(self._parts, self._rank + 1, size, store)
        except RuntimeError as error:
            if not is_of_message(error):
                raise


def is_of_message(error: RuntimeError) -> bool:
    """Whether an error is about a message between learners."""
    return any(name in str(error).lower() for name in ('gloo', 'nccl'))


def _follower(
    cfg: ExperimentConfig, spec: EnvSpec, model: Any, size: int, rank: int, incarnation: int = 0
) -> Policy:
    """Creates the policy of a learner, whose rank among the others counts from 0; ``model`` replaces the config's network."""
    cfg.policy.device = str(device_of(resolve_device(cfg.policy), rank + 1, size))
    cfg.policy.init_from = None
    build.prepare(cfg)
    return build.make_policy(cfg, spec, model, ('learn',))


def follow(policy: Policy, rank: int, size: int, store: str) -> None:
    """Makes the updates of rank 0 until it ends; see ``Ranks`` for ``store``."""
    ranks = Ranks(rank, size, store, policy.device)
    forward = policy.learn_mode.forward
    ranks.attach(policy.update)
    acting = policy.get_attribute('acting')
    try:
        while message := unpack(ranks.receive()):
            if message['envstep'] is not None:
                policy.update.set_envstep(message['envstep'])  # schedules move here, too
            if 'state' in message:
                policy.learn_mode.load_state_dict(message['state'])
            acting.load_state(message['acting'])
            answer = forward(message['data'], **message['settings'])
            for update in () if isinstance(answer, Mapping) else answer:
                update()
    finally:
        ranks.close()
