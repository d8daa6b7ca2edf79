"""MetricSerialEvaluator: scores a policy on labelled data instead of in an env."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from rlframe.registry import SERIAL_EVALUATOR_REGISTRY
from rlframe.utils.field import Field
from rlframe.utils.metrics import write_record
from rlframe.utils.seed import preserved_rng
from rlframe.worker.collector.base_serial_evaluator import ISerialEvaluator, SaveCheckpoint


class IMetric(ABC):
    """Says how good outputs are, and which of two scores is better. A score is a dict of numbers."""

    @abstractmethod
    def eval(self, inputs: Any, label: Any) -> Mapping[str, Any]:
        """Returns the score of one batch.

        Args:
            inputs: What the policy answered.
            label: What it should have answered.
        """

    @abstractmethod
    def reduce_mean(self, inputs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Returns the mean of the scores of batches."""

    @abstractmethod
    def gt(self, metric1: Mapping[str, Any], metric2: Any) -> bool:
        """Whether the first score is at least as good as the second; True where the second is None.

        Args:
            metric1: A score.
            metric2: A score, what ``stop_value`` says, or None where there is no score yet.
        """


@SERIAL_EVALUATOR_REGISTRY.register('metric')
class MetricSerialEvaluator(ISerialEvaluator):
    """Lets a policy answer labelled data and scores its answers.

    The env is a pair of a loader, any iterable of ``(inputs, label)``, and an ``IMetric``. ``best`` and ``latest`` are
    scores, ``best`` is None at first. A score is better than the best one where ``gt`` says so and does not say so of the
    two exchanged.
    """

    config = dict(
        eval_freq=50,
        n_episode=Field(None, int, '[1, inf)', 'episodes', 'has no effect: all data of the loader are used'),
        stop_value=Field(
            None, object, '', '', 'what ends training when `gt(score, stop_value)`; None: nothing'
        ),
    )
    worst = None

    def reset_env(self, _env: Any = None) -> None:
        """Takes over other data.

        Args:
            _env: A loader and an ``IMetric``.

        Raises:
            TypeError: If it is something else.
        """
        if _env is None:
            return
        is_pair = isinstance(_env, list | tuple) and len(_env) == 2
        if not is_pair or not all(hasattr(_env[1], name) for name in ('eval', 'reduce_mean', 'gt')):
            raise TypeError(f'the evaluator "metric" takes a pair (loader, IMetric), got {_env!r}')
        self._env = _env

    def eval(
        self,
        save_ckpt_fn: SaveCheckpoint | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """Scores the policy.

        Args:
            save_ckpt_fn: Called with ``'ckpt_best.pth.tar'`` when the score is better than ever before.
            train_iter: Train iterations so far.
            envstep: Env steps so far.
            n_episode: Has no effect.

        Returns:
            Whether the score reached ``stop_value`` (never before training began), and the score.

        Raises:
            ValueError: If there are no data, no policy, or nothing comes from the loader.
        """
        if self._env is None or self._policy is None:
            raise ValueError('eval needs a policy and a pair (loader, IMetric)')
        metric: IMetric = self._env[1]
        start = perf_counter()
        with preserved_rng():
            score, count = self._score(*self._env)
        self._report(score, count, perf_counter() - start, train_iter, envstep)
        self.latest = score
        if self.best is None or (metric.gt(score, self.best) and not metric.gt(self.best, score)):
            self.best = score
            if save_ckpt_fn is not None:
                save_ckpt_fn('ckpt_best.pth.tar')
        is_enough = self.stop_value is not None and bool(metric.gt(score, self.stop_value))
        return is_enough and train_iter > 0, dict(score)

    def _score(self, loader: Any, metric: IMetric) -> tuple[dict[str, float], int]:
        """Returns the mean score and how many data it is of."""
        self._policy.reset(None)
        scores, count = [], 0
        for inputs, label in loader:
            scores.append(metric.eval(self._policy.forward(inputs, np.arange(len(inputs))), label))
            count += len(inputs)
        if not scores:
            raise ValueError('the loader of the evaluator "metric" yields nothing')
        mean = metric.reduce_mean(scores)
        return {name: float(value) for name, value in mean.items()}, count

    def _report(
        self, score: Mapping[str, float], count: int, seconds: float, train_iter: int, envstep: int
    ) -> None:
        values = {f'eval/{name}': value for name, value in score.items()}
        more = {'eval/data_length': float(count), 'time/eval_seconds': seconds}
        write_record(self._tb_logger, values | more, envstep, train_iter=train_iter)
        shown = ', '.join(f'{name} {value:.4g}' for name, value in score.items())
        self._logger.info(
            'evaluation at train_iter %d: %s over %d data (%.1f s)', train_iter, shown, count, seconds
        )

    def close(self) -> None:
        """Does nothing: the loader stays its maker's to close."""

    def state_dict(self) -> dict[str, Any]:
        return {
            'last_eval_iter': self.last_eval_iter,
            'best': copy.deepcopy(self.best),
            'latest': copy.deepcopy(self.latest),
        }
