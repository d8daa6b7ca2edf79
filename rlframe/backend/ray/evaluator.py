"""RaySerialEvaluator: runs any evaluator in a Ray actor during training; see ``submit`` and ``poll``."""

from __future__ import annotations

import logging
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ray

from rlframe.backend.actor import RemoteActor, answers, flatten, unflatten
from rlframe.backend.pool import Call
from rlframe.backend.ray.options import EVALUATOR_OPTIONS, with_ray_options
from rlframe.backend.ray.pool import ActorPool
from rlframe.data.timestep import Array
from rlframe.errors import ConfigError
from rlframe.registry import SERIAL_EVALUATOR_REGISTRY
from rlframe.run.metrics import ScalarWriter, write_record
from rlframe.utils.seed import EVALUATE
from rlframe.worker.evaluator.base_serial_evaluator import (
    EvalResult,
    EvaluatorConfig,
    ISerialEvaluator,
    SaveCheckpoint,
)

LOOK_SECONDS = 0.05
"""Minimum number of seconds between two checks for a result during training."""


class Recorder:
    """Stands in for a ``tb_logger`` in an actor and records calls: method, arguments, and those by name."""

    def __init__(self) -> None:
        self.written: list[tuple[str, tuple[Any, ...], Mapping[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        if name != 'write' and not name.startswith('add_'):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.written.append((name, args, kwargs))


class EvaluatorParts(NamedTuple):
    """The parts of an evaluating actor."""

    evaluator: ISerialEvaluator
    env: Any
    """Its env manager."""
    policy: Any
    """Eval face of the policy; its ``load_state_dict`` takes weights."""
    recorder: Recorder
    """The evaluator's ``tb_logger``."""


class Verdict(NamedTuple):
    """Result of a request."""

    stop: bool
    info: dict[str, Any]
    is_best: bool
    state: Mapping[str, Any]
    written: list[tuple[str, tuple[Any, ...], Mapping[str, Any]]]
    logs: list[tuple[str, int, str]]
    """Name of the logger, level and text of each message."""


class Messages(logging.Handler):
    """Keeps the log messages of an actor for the driver."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append((record.name, record.levelno, record.getMessage()))


class EvaluatorActor(RemoteActor):
    """Actor class that holds an evaluator. It keeps no state between calls, so it can be replaced at any time."""

    def _made(self) -> Any:
        self._messages = Messages()
        logger = logging.getLogger('rlframe')
        logger.addHandler(self._messages)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        return super()._made()

    @answers
    def evaluate(
        self, state: Mapping[str, Any], stop_value: Any, weights: Sequence[Array], *asked: int | None
    ) -> Verdict:
        """Evaluates weights.

        Args:
            state: State of the evaluator, which contains the best score so far.
            stop_value: Score that ends training.
            weights: The weights, as from ``flatten``.
            asked: Train iterations, env steps and episodes, as of ``eval``.
        """
        evaluator, _, policy, recorder = self._parts
        policy.load_state_dict(unflatten(weights))
        evaluator.load_state_dict(state)
        evaluator.stop_value = stop_value
        recorder.written, self._messages.kept = [], []
        best: list[str] = []
        stop, info = evaluator.eval(best.append, *asked)
        kept = self._messages.kept
        return Verdict(stop, info, bool(best), evaluator.state_dict(), recorder.written, kept)


class Pending(NamedTuple):
    """A requested evaluation."""

    weights: Any
    """Reference to the weights to evaluate."""
    train_iter: int
    envstep: int
    n_episode: int | None = None
    """Episodes to play; None: as configured."""
    save_ckpt_fn: SaveCheckpoint | None = None
    """Called if the score is the best."""

    def state_dict(self) -> dict[str, Any]:
        """Returns all but the function."""
        return {
            'weights': unflatten(ray.get(self.weights)),
            'train_iter': self.train_iter,
            'envstep': self.envstep,
            'n_episode': self.n_episode,
        }


class RayEvaluatorConfig(EvaluatorConfig):
    """Options of an evaluator in an actor that this process reads."""

    max_pending: int


class RaySerialEvaluator(ISerialEvaluator):
    """Evaluates a policy as it was at ``submit``, in a Ray actor, while training continues.

    Evaluations run one at a time, in the order of the requests; the weights of each are stored once in the object
    store. The evaluation of a lost actor is repeated by another. The function that ``submit`` is given to save the best
    is called when the result arrives: it must know itself which policy to save.

    Args:
        cfg: Options of the evaluator that runs in the actor.
        pool: The pool with the started actor.
        policy: Eval face of the trained policy.
        tb_logger: Writes metrics; None writes none.
        exp_name: Name of the experiment, for the log.
        instance_name: Name of this evaluator, for the log.
        seed: Seed of the experiment.
        purpose: Purpose of the episodes.
    """

    _cfg: RayEvaluatorConfig
    answers_later = True

    def __init__(
        self,
        cfg: Mapping[str, Any],
        pool: ActorPool,
        policy: Any,
        tb_logger: ScalarWriter | None = None,
        exp_name: str = 'default_experiment',
        instance_name: str = 'evaluator',
        *,
        seed: int = 0,
        purpose: str = EVALUATE,
    ) -> None:
        kind = SERIAL_EVALUATOR_REGISTRY.get(cfg.get('type', 'interaction'))
        self.worst = kind.worst
        self._pool = pool
        self._pending: deque[Pending] = deque()
        self._call: Any = None  # of the first one, while an actor has it
        self._next_look = 0.0
        self.repeated = 0
        """Number of evaluations repeated because their actor was lost."""
        options = with_ray_options(kind, cfg, EVALUATOR_OPTIONS)
        weakref.finalize(self, pool.close).atexit = False  # at exit Ray ends its actors by itself
        super().__init__(
            options, None, policy, tb_logger, exp_name, instance_name, seed=seed, purpose=purpose
        )

    def reset_env(self, _env: Any = None) -> None:
        """Does nothing: every evaluation resets the actor's envs.

        Raises:
            ConfigError: If an env is given.
        """
        if _env is not None:
            raise ConfigError('a Ray evaluator creates its envs in the actor', where='reset_env')

    def eval(  # the name is DI-engine's; no code is evaluated
        self,
        save_ckpt_fn: SaveCheckpoint | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        self.submit(save_ckpt_fn, train_iter, envstep, n_episode)
        self.wait()
        result = self._results.pop()
        return result.stop, result.info

    def submit(
        self,
        save_ckpt_fn: SaveCheckpoint | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
    ) -> None:
        self._pool.check_open()
        while len(self._pending) >= self._cfg.max_pending:
            self._wait_for_one()
        weights = ray.put(flatten(self._policy.state_dict()))
        self._pending.append(Pending(weights, train_iter, envstep, n_episode, save_ckpt_fn))
        self._ask()

    def poll(self) -> list[EvalResult]:
        now = time.monotonic()
        if self._pending and now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            self._take(self._pool.poll())
        return super().poll()

    @property
    def pending(self) -> int:
        return len(self._pending)

    def reached(self, score: Any) -> bool:
        """Whether a mean return reaches ``stop_value``; scores of other kinds are compared only in the actor."""
        return isinstance(score, int | float) and super().reached(score)

    def status(self) -> str:
        return f'evaluations running: {len(self._pending)}' if self._pending else ''

    def wait(self) -> None:
        while self._pending:
            self._wait_for_one()

    def _wait_for_one(self) -> None:
        """Waits for one more result."""
        count = len(self._pending)
        while len(self._pending) == count:
            self._take(self._pool.wait(self.on_step))

    def _ask(self) -> None:
        """Gives an actor the next evaluation, if it has none."""
        if self._call is not None or not self._pending:
            return
        first = self._pending[0]
        state = super().state_dict()
        self._call = self._pool.ask(0, 'evaluate', state, self.stop_value, *first[:4])

    def _take(self, call: Call | None) -> None:
        """Applies a result; one that is no longer wanted is ignored."""
        if call is None or call is not self._call:
            return
        self._call = None
        if call.lost:
            self.repeated += 1
            self._logger.warning('the evaluation of train_iter %d is repeated', self._pending[0].train_iter)
        else:
            self._apply(self._pending.popleft(), call.value)
        self._ask()

    def _apply(self, asked: Pending, verdict: Verdict) -> None:
        super().load_state_dict({**verdict.state, **self.last_due})
        for method, args, kwargs in verdict.written:
            if method == 'write':
                write_record(self._tb_logger, *args, **kwargs)
            elif hasattr(self._tb_logger, method):
                getattr(self._tb_logger, method)(*args, **kwargs)
        for name, level, text in verdict.logs:
            logging.getLogger(name).log(level, '%s', text)
        if verdict.is_best and asked.save_ckpt_fn is not None:
            asked.save_ckpt_fn('ckpt_best.pth.tar')
        self._results.append(
            EvalResult(
                verdict.stop, verdict.info, asked.train_iter, asked.envstep, self.latest, verdict.is_best
            )
        )

    def close(self) -> None:
        self._pool.close()

    def state_dict(self) -> dict[str, Any]:
        """Returns the train iteration of the last evaluation, the best score, and the pending evaluations."""
        return {**super().state_dict(), 'pending': [asked.state_dict() for asked in self._pending]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._call = None
        self._results.clear()
        self._pending = deque(
            Pending(ray.put(flatten(asked['weights'])), *(asked[name] for name in Pending._fields[1:4]))
            for asked in state.get('pending', ())
        )
        self._ask()
