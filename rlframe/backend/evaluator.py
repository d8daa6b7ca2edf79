"""WorkerEvaluator: runs any evaluator in a worker during training; see ``submit`` and ``poll``."""

from __future__ import annotations

import copy
import logging
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rlframe.backend.base import LocalBackend
from rlframe.backend.worker import EnvWorker
from rlframe.data.timestep import Array
from rlframe.errors import ConfigError
from rlframe.pipeline import build
from rlframe.registry import SERIAL_EVALUATOR_REGISTRY
from rlframe.remote.supervisor import Call, Supervisor
from rlframe.remote.weights import flatten, unflatten
from rlframe.remote.worker import answers
from rlframe.run.metrics import write_record
from rlframe.worker.evaluator.base_serial_evaluator import (
    EvalResult,
    EvaluatorConfig,
    ISerialEvaluator,
    SaveCheckpoint,
)

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig

LOOK_SECONDS = 0.05
"""Minimum number of seconds between two checks for a result during training."""


class Recorder:
    """Stands in for a ``tb_logger`` in a worker and records calls: method, arguments, and those by name."""

    def __init__(self) -> None:
        self.written: list[tuple[str, tuple[Any, ...], Mapping[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        if name != 'write' and not name.startswith('add_'):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.written.append((name, args, kwargs))


class EvaluatorParts(NamedTuple):
    """The parts of an evaluating worker."""

    evaluator: ISerialEvaluator
    env: Any
    """Its env manager."""
    policy: Any
    """Eval face of the policy; its ``load_state_dict`` takes weights."""
    recorder: Recorder
    """The evaluator's ``tb_logger``."""


class MakeEvaluator:
    """Creates the evaluator in a worker; it plays the same episodes as an evaluator in the process of the run.

    Args:
        cfg: A compiled config.
        factory: Creates its envs; an env registered only in the process of the run works there, too.
    """

    def __init__(self, cfg: ExperimentConfig, factory: Any) -> None:
        self._cfg, self._factory = cfg, factory
        self.given: Mapping[str, Any] = {}
        """Further arguments of the evaluator."""
        self.model: Any = None
        """A custom network, if given; it is copied."""

    def __call__(self, rank: int, incarnation: int) -> EvaluatorParts:
        """Creates envs, policy and evaluator."""
        cfg = copy.deepcopy(self._cfg)
        section = cfg.policy.eval.evaluator
        resources = build.get_backend_cls(section).evaluator_resources(section)
        if not any('GPU' in each for each in resources):
            cfg.policy.device, cfg.policy.cuda = 'cpu', None
        section.backend, cfg.policy.init_from = 'local', None
        build.prepare(cfg)
        factory = self._factory
        policy = build.make_policy(cfg, factory.spec, self.model, ('eval',), rank)
        backend = LocalBackend(factory)
        recorder = Recorder()
        backend.open_evaluator(cfg)
        evaluator = build.make_evaluator(cfg, backend, policy, factory.spec, tb_logger=recorder, **self.given)
        return EvaluatorParts(evaluator, backend.env, policy.eval_mode, recorder)


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
    """Keeps the log messages of a worker for the process of the run."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append((record.name, record.levelno, record.getMessage()))


class EvaluatorWorker(EnvWorker):
    """Worker that holds an evaluator. It keeps no state between calls, so it can be replaced at any time."""

    role = 'evaluator'

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
    """What a call brings the weights by."""
    stored: Sequence[Array]
    """The weights, as from ``flatten``."""
    train_iter: int
    envstep: int
    n_episode: int | None = None
    """Episodes to play; None: as configured."""
    save_ckpt_fn: SaveCheckpoint | None = None
    """Called if the score is the best."""

    def state_dict(self) -> dict[str, Any]:
        """Returns all but the function."""
        return {
            'weights': unflatten(self.stored),
            'train_iter': self.train_iter,
            'envstep': self.envstep,
            'n_episode': self.n_episode,
        }


class WorkerEvaluatorConfig(EvaluatorConfig):
    """Options of an evaluator in a worker that this process reads."""

    max_pending: int


class WorkerEvaluator(ISerialEvaluator):
    """Evaluates a policy as it was at ``submit``, in a worker, while training continues.

    Evaluations run one at a time, in the order of the requests. The evaluation of a lost worker is repeated by another.
    The function that ``submit`` is given to save the best is called when the result arrives: it must know itself which
    policy to save.

    Args:
        cfg: Complete options of the evaluator that runs in the worker, and of its backend.
        pool: The worker, which has started.
        policy: Eval face of the trained policy.
        common: Further arguments of every evaluator, such as ``tb_logger`` and ``seed``.
    """

    _cfg: WorkerEvaluatorConfig
    answers_later = True

    def __init__(self, cfg: Mapping[str, Any], pool: Supervisor, policy: Any, **common: Any) -> None:
        kind = SERIAL_EVALUATOR_REGISTRY.get(cfg.get('type', 'interaction'))
        self.worst = kind.worst
        self._pool = pool
        self._pending: deque[Pending] = deque()
        self._call: Any = None  # of the first one, while the worker has it
        self._next_look = 0.0
        self.repeated = 0
        """Number of evaluations repeated because their worker was lost."""
        weakref.finalize(self, pool.close).atexit = False  # at exit workers end by themselves
        super().__init__(cfg, None, policy, **common)

    def reset_env(self, _env: Any = None) -> None:
        """Does nothing: every evaluation resets the envs of the worker.

        Raises:
            ConfigError: If an env is given.
        """
        if _env is not None:
            raise ConfigError('the envs of this evaluator are created in another process', where='reset_env')

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
        weights = self._pool.put(flatten(self._policy.state_dict()))
        self._pending.append(Pending(*weights, train_iter, envstep, n_episode, save_ckpt_fn))
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
        """Whether a mean return reaches ``stop_value``; scores of other kinds are compared only in the worker."""
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
        """Gives the worker the next evaluation, if it has none."""
        if self._call is not None or not self._pending:
            return
        first = self._pending[0]
        state = super().state_dict()
        self._call = self._pool.ask(0, 'evaluate', state, self.stop_value, first.weights, *first[2:5])

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
            Pending(
                *self._pool.put(flatten(asked['weights'])), *(asked[name] for name in Pending._fields[2:5])
            )
            for asked in state.get('pending', ())
        )
        self._ask()
