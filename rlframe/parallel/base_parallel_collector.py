"""BaseParallelCollector: drives a serial collector and a serial evaluator, task by task."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter, time
from typing import Any, NamedTuple

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import ActingExtras
from rlframe.data.players import result_of
from rlframe.parallel.held_weights import (
    Acting,
    Held,
    HeldWeights,
    ParallelCollectorConfig,
    TaskAbandoned,
)
from rlframe.parallel.transport.base import joined
from rlframe.parallel.transport.messages import Collected, Taken, Task
from rlframe.utils.field import Configurable
from rlframe.worker.collector.remote_collection import Counts, MakeParts, Parts, collect_counted, numbered

MOST_RETURNS = 10_000
"""Returns that the information about a task lists at most, the last ones."""
RESULTS = {'win': 'wins', 'draw': 'draws', 'loss': 'losses'}
"""Words for the result of a game in ``game_result``."""
AT_RANDOM, EVALUATE = 'collect_at_random', 'evaluate'


class TaskLog:
    """Counts what a task produced; the results of games belong to its information."""

    def __init__(self, is_evaluation: bool = False, env_num: int = 0, plays_games: bool = False) -> None:
        self.is_evaluation, self._env_num, self._plays_games = is_evaluation, env_num, plays_games
        self.train_iter = 0
        """Train iterations of the newest weights that acted."""
        self.parts = self.envstep = self.episodes = self.samples = 0
        """What was collected so far."""
        self.is_done = False
        """Whether the task was completed."""
        self._returns: deque[float] = deque(maxlen=MOST_RETURNS)
        self._results: deque[str] = deque(maxlen=MOST_RETURNS)
        self._start = perf_counter()

    def add(self, envstep: int, samples: int, returns: Sequence[float], results: Sequence[str] = ()) -> None:
        """Counts a part, and the return of each ended episode; results are those of ``_results``."""
        self.parts += 1
        self.envstep += envstep
        self.samples += samples
        self.episodes += len(returns)
        self._returns.extend(returns)
        self._results.extend(RESULTS[result] for result in results)

    def finish_info(self, collect_setting: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the facts about the task, under DI-engine's names."""
        returns = list(self._returns)
        return {
            'eval_flag': self.is_evaluation,
            'env_num': self._env_num,
            'duration': perf_counter() - self._start,
            'train_iter': self.train_iter,
            'collector_done': self.is_done,
            'real_episode_count': self.episodes,
            'step_count': self.envstep,
            'sample_count': self.samples,
            'reward_mean': float(np.mean(returns)) if returns else 0.0,
            'reward_std': float(np.std(returns)) if returns else 0.0,
            'reward_raw': returns,
            'finish_time': time(),
            'collect_setting': dict(collect_setting),
            **({'game_result': [list(self._results)]} if self._plays_games else {}),
        }


def _game_results(info: Mapping[str, Any]) -> list[str]:
    """Returns the result of each game of an evaluation for the first player; none in envs of one player."""
    pairs = zip(info.get('win', ()), info.get('draw', ()), strict=True)
    return [result_of(win, draw) for win, draw in pairs]


def plain_columns(info: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Returns the values of each episode of an evaluation as a message can hold them."""
    return {name: list(map(_plain, values)) for name, values in info.items() if isinstance(values, list)}


def _plain(value: Any) -> Any:
    """Returns a number or a flag as it is, NaN as None, and anything else as text."""
    value = value.item() if hasattr(value, 'item') and getattr(value, 'ndim', 0) == 0 else value
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float) else str(value)[:100]


class Evaluation(NamedTuple):
    """An evaluator with its own envs and policy."""

    evaluator: Any
    """A serial evaluator with its envs and its policy."""
    env: Any
    """Its env manager."""
    policy: Any
    """Eval face of the policy, whose ``load_state_dict`` takes weights; for several policies, a list of faces."""
    random: Any = None
    """For each player, a face that acts at random; only for several policies."""
    opened: Any = None
    """For each player, its face after a random opening; None: its face."""


class BaseParallelCollector(Configurable, ABC):
    """Collects or evaluates as tasks say: fetches newer weights, collects, sends, and repeats that.

    ``begin`` sets the task and ``start`` works on it until it is over. Envs and policies are created when a task first
    needs them, and are kept for later tasks. A comm collector sets ``comm``. ``abandon`` and ``close`` may be called by
    any thread.

    Args:
        cfg: Options.
        make_collector: Creates the collector with envs and policy, from a rank and an incarnation.
        make_evaluator: Creates the evaluator, likewise, with a policy of its own; None: it cannot evaluate.
        instance_name: Name for the log.
    """

    _cfg: ParallelCollectorConfig

    plays_games = False
    """Whether its factories give a face for each player, and for each one that acts at random."""

    def __init__(
        self,
        cfg: EasyDict | Mapping[str, Any] | None = None,
        make_collector: MakeParts | None = None,
        make_evaluator: Callable[[int, int], Evaluation] | None = None,
        *,
        instance_name: str = 'collector',
    ) -> None:
        self._cfg = self.resolve_config(cfg)
        self._make_collector, self._make_evaluator = make_collector, make_evaluator
        self._logger = logging.getLogger(f'rlframe.{instance_name}')
        self.rank, self.incarnation = 0, 0
        """Number among the collectors of the run, and how often it was replaced."""
        self.comm: Any = None
        """Its comm collector, which connects it with a coordinator; set before ``start``."""
        self.steps = 0
        """Steps of the envs so far, in collection and evaluation."""
        self.produced = 0
        """Training samples or episodes collected so far, sent or not."""
        self.abandoned = ''
        """Why the last task was abandoned; empty if it was not."""
        self.task: Task | None = None
        """The current or last task."""
        self._parts: Parts | None = None
        self._evaluation: Evaluation | None = None
        self._weights = HeldWeights(
            lambda policy, newer_than: self.comm.newer_weights(policy, newer_than),
            self._check_interrupt,
            self._cfg.weights_timeout,
            self._cfg.update_policy_second,
        )
        self._log = TaskLog()
        self._result: dict[str, Any] = {}
        self._settings: Mapping[str, Any] = {}
        self._at_random, self._is_torn = False, False
        self._reported_steps = 0
        self._interrupt: str | None = None
        self._is_closed, self._is_working = False, False

    # tasks

    def begin(self, task: Task) -> None:
        """Sets the task that ``start`` works on."""
        self._interrupt, self.abandoned = None, ''
        self.task = task
        self._settings = task.settings
        is_evaluation = task.kind == EVALUATE
        manager = self._evaluating().env if is_evaluation else self._collecting().env
        self._log = TaskLog(is_evaluation, manager.env_num, self.plays_games)
        self._result = {}
        if not is_evaluation:
            self._take_seats(task)

    def start(self) -> None:
        """Works on the task until it is completed, abandoned, or this collector is closed."""
        if self.task is None or self.comm is None:
            raise ValueError('start() needs a task and a comm collector: call begin(task), and set comm')
        self._is_working = True
        try:
            while self.step():
                pass
        except TaskAbandoned as end:
            self.abandoned = str(end)
        finally:
            self._is_working = False
            if self._is_closed:
                self.close()

    def step(self) -> bool:
        """Evaluates, or collects and sends one part; returns whether the task goes on.

        Raises:
            TaskAbandoned: If the task was abandoned meanwhile.
        """
        assert self.task is not None  # checked by start()
        self._check_interrupt()
        over = self._evaluate(self.task) if self.task.kind == EVALUATE else self._collect(self.task)
        self._log.is_done = over
        return not over

    def abandon(self, task_id: str, reason: str) -> None:
        """Ends a task at the next step of the envs; ignored if it is not the current one."""
        if self.task is not None and self.task.task == task_id:
            self._interrupt = reason

    def close(self) -> None:
        """Ends the running task at the next step of the envs, after which they are closed; may be called twice."""
        self._is_closed = True
        if self._is_working:
            return  # start() closes them
        parts = self._parts
        self._parts = None
        evaluation = self._evaluation
        self._evaluation = None
        if parts is not None:
            parts.collector.close()
        if evaluation is not None:
            evaluation.evaluator.close()

    def _check_interrupt(self) -> None:
        if self._is_closed:
            raise TaskAbandoned('the collector was closed')
        if self._interrupt is not None:
            raise TaskAbandoned(self._interrupt)

    def _on_step(self) -> None:
        self.steps += 1
        self._check_interrupt()

    # parts

    def _collecting(self) -> Parts:
        """Returns the collector with its parts, created at the first call."""
        self._check_interrupt()
        if self._parts is None:
            if self._make_collector is None:
                raise ValueError('this parallel collector was given no make_collector')
            self._parts = self._make_collector(self.rank, self.incarnation)
            self._parts.collector.on_step = self._on_step
            self._reported_steps = self._parts.progress.envstep
        return self._parts

    def _evaluating(self) -> Evaluation:
        """Returns the evaluator with its parts, created at the first call."""
        self._check_interrupt()
        if self._evaluation is None:
            if self._make_evaluator is None:
                raise ValueError('this parallel collector was given no make_evaluator')
            self._evaluation = self._make_evaluator(self.rank, self.incarnation)
            self._evaluation.evaluator.on_step = self._on_step
        return self._evaluation

    @property
    def env_manager(self) -> Any:
        """The env manager of the current task; None before the first."""
        parts = self._evaluation if self._log.is_evaluation else self._parts
        return None if parts is None else parts.env

    @property
    def policy(self) -> Any:
        """The face, or faces, of the current task that take weights; None before the first."""
        if self._log.is_evaluation:
            return self._evaluation.policy if self._evaluation is not None else None
        return self._parts.trained if self._parts is not None else None

    @abstractmethod
    def _take_seats(self, task: Task) -> None:
        """Prepares the collector for the policies of a task."""

    @abstractmethod
    def _acting(self, faces: Any, task: Task) -> list[Acting]:
        """Returns the policies of a task that need weights, the one that is trained first, of all faces for its kind."""

    def _measured(self, parts: Parts) -> ActingExtras | None:
        """Returns what measures the changes of the policy by acting; None if they are not sent."""
        return None

    def _results(self, collected: Any) -> list[str]:
        """Returns ``win``, ``draw`` or ``loss`` of the first active player in each ended game; none in envs of one player."""
        return []

    # weights

    def _update_policy(self, faces: Any, task: Task) -> Held:
        """Fetches newer weights where they are needed; returns what the first policy has."""
        role = 'eval' if task.kind == EVALUATE else 'collect'
        return self._weights.update(role, self._acting(faces, task), task.newer_than, role == 'eval')

    # collection

    def _collect(self, task: Task) -> bool:
        """Collects and sends a part; returns whether the task is over."""
        parts = self._collecting()
        at_random = task.kind == AT_RANDOM
        held = Held() if at_random else self._update_policy(parts.trained, task)
        self._prepare(parts, at_random)
        options: dict[str, Any] = {'policy_kwargs': dict(self._settings)}
        if at_random:
            options = {'random_collect': True, 'record_random_collect': False}
        self._is_torn = True
        extras = self._measured(parts)
        collected, counts = collect_counted(parts, task.target or None, held.train_iter, **options)
        self._is_torn = False
        data = numbered(parts.collector.training_data(collected), parts, self.rank)
        self.produced += len(data)
        envstep = parts.progress.envstep - self._reported_steps
        self._reported_steps = parts.progress.envstep
        results = self._results(collected)
        self._log.train_iter = held.train_iter
        self._log.add(envstep, len(data), counts.episodes[:, 0].tolist(), results)
        facts = {**_facts_of(counts), 'results': results}
        part = self._log.parts - 1
        version = max(held.version, 0)
        metadata = Collected(task.task, part, len(data), envstep, version, held.train_iter, facts)
        taken = self._send(joined(data, extras.take() if extras is not None else {}), metadata)
        self._weights.note(held.policy, taken.version)
        if not taken.stop:
            self._settings = taken.settings
        if self._log.parts % self._cfg.print_freq == 0:
            count = f'{self._log.samples} samples in {self._log.parts} parts'
            self.info(f'task {task.task}: {count}, version {version}')
        return taken.stop or 0 < task.parts <= self._log.parts

    def _send(self, data: Any, metadata: Collected) -> Taken:
        taken: Taken = self.comm.send(data, metadata)
        return taken

    def _prepare(self, parts: Parts, at_random: bool) -> None:
        """Continues the running episodes, unless their recording was interrupted; changes to or from random actions."""
        if self._is_torn:
            parts.collector.reset_env()
            parts.collector.reset_policy()
        if at_random != self._at_random:
            self._at_random = at_random
            self._change_policy(parts, at_random)

    def _change_policy(self, parts: Parts, at_random: bool) -> None:
        parts.collector.reset_policy(parts.random if at_random else parts.trained)

    # evaluation

    def _evaluate(self, task: Task) -> bool:
        evaluation = self._evaluating()
        held = self._update_policy(evaluation.policy, task)
        self._seat_evaluated(evaluation, task)
        evaluator, steps = evaluation.evaluator, self.steps
        stop, info = evaluator.eval(None, train_iter=held.train_iter, n_episode=task.target or None)
        self._log.train_iter = held.train_iter
        returns = [float(value) for value in info.get('eval_episode_return', ())]
        envstep = int(sum(info.get('eval_episode_len') or [self.steps - steps]))
        self._log.add(envstep, 0, returns, _game_results(info))
        self._result = {'score': float(evaluator.score), 'stop': bool(stop), 'version': max(held.version, 0)}
        self._result['episode_info'] = plain_columns(info)
        return True

    def _seat_evaluated(self, evaluation: Evaluation, task: Task) -> None:
        """Prepares the evaluator for the policies of a task."""

    def enrol(self, rank: int, incarnation: int) -> None:
        """Sets the place of this collector in a run, which its random generators are derived from."""
        self.rank, self.incarnation = rank, incarnation
        self._weights.forget()

    # information

    def get_finish_info(self) -> dict[str, Any]:
        """Returns the facts about the current or last task, as plain values."""
        return {**self._log.finish_info(self._settings), **self._result}

    def info(self, s: str) -> None:
        """Logs a message."""
        self._logger.info('%s', s)

    def debug(self, s: str) -> None:
        """Logs a message of interest to developers."""
        self._logger.debug('%s', s)

    def error(self, s: str) -> None:
        """Logs an error."""
        self._logger.error('%s', s)

    def __repr__(self) -> str:
        return f'{type(self).__name__}(rank {self.rank})'


def _facts_of(counts: Counts) -> dict[str, Any]:
    """Returns the facts about a part that its message contains."""
    return {
        'episodes': counts.episodes.tolist(),
        'infos': {name: list(sums) for name, sums in counts.infos.items()},
        'episode_count': counts.episode_count,
    }
