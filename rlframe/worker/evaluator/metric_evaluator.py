"""MetricSerialEvaluator: scores a policy on labelled data instead of in an env."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import Any, Literal, NamedTuple

import numpy as np

from rlframe.data.data_checks import check_batch
from rlframe.data.dataset import DATA_FORMS, Selection, check_source, open_data
from rlframe.data.recording import Recording
from rlframe.data.sources import DataSource, RowSource
from rlframe.data.timestep import Batch, EnvSpec
from rlframe.errors import ConfigError
from rlframe.registry import SERIAL_EVALUATOR_REGISTRY
from rlframe.run.metrics import write_record
from rlframe.scores import number_text
from rlframe.utils.field import option
from rlframe.utils.seed import preserved_rng
from rlframe.worker.evaluator.base_serial_evaluator import EvaluatorConfig, ISerialEvaluator, SaveCheckpoint
from rlframe.worker.evaluator.eval_metric import IMetric, action_metric
from rlframe.worker.evaluator.off_policy import EstimateSettings, OffPolicyMetric

DATA = 'policy.eval.evaluator.data'


class RecordedActions:
    """Recorded observations of an env and the actions taken, in batches, always in the same order.

    Raises:
        ConfigError: When the data are iterated over, if there are none or they are not of that env.
    """

    def __init__(self, source: DataSource, spec: EnvSpec, batch_size: int) -> None:
        self._source, self._spec, self._batch_size = source, spec, batch_size

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        count = 0
        for batch in self._source.batches(self._batch_size, np.random.default_rng(0)):
            if not count:
                check_batch(batch, self._spec, DATA)
            count += len(batch)
            yield batch['obs'], batch['action']
        if not count:
            raise ConfigError(
                'the data contain no rows',
                where=DATA,
                remedy='What can be gone through only once, such as a generator, is empty at the second evaluation.',
            )

    def close(self) -> None:
        """Closes the data."""
        self._source.close()


class ScoredData(NamedTuple):
    """Labelled data, and the metric that scores answers to them."""

    loader: Any
    """Iterable of ``(inputs, label)``."""
    metric: IMetric

    def close(self) -> None:
        """Closes the data."""
        self.loader.close()


class MetricConfig(EvaluatorConfig):
    """Options of ``MetricSerialEvaluator``."""

    n_episode: int | None = option(
        None, range='[1, inf)', unit='episodes', doc='has no effect: all data of the loader are used'
    )
    stop_value: Any = option(
        None, doc='score that ends training, such as an accuracy of 0.99; None: nothing', may_change=True
    )
    data: Any = option(
        None, doc=f'held-out records to score by: {DATA_FORMS}', may_change=True, reaches='code'
    )
    held_out: float = option(
        0.0,
        range='[0, 1)',
        doc='share of the episodes of the data that are read: those that a collector with the same share leaves out; 0: all',
    )
    estimate: Literal['fqe', 'pdis', 'wis', 'dr', None] = option(
        None,
        doc='estimate the discounted return from the data: by fitted Q evaluation, or importance sampling that is per decision, weighted,'
        ' or doubly robust; None: compare actions',
        may_change=True,
    )
    discount_factor: float = option(
        0.99, range='[0, 1]', unit='per env step', doc='of an estimate', may_change=True
    )
    updates: int = option(
        2000, range='[1, inf)', unit='updates', doc='of the networks that one estimate fits', may_change=True
    )
    batch_size: int = option(1024, range='[1, inf)', unit='rows', doc='answered at a time', may_change=True)


@SERIAL_EVALUATOR_REGISTRY.register('metric')
class MetricSerialEvaluator(ISerialEvaluator):
    """Lets a policy answer labelled data and scores its answers.

    Its data are a pair of a loader, any iterable of ``(inputs, label)``, and an ``IMetric``. In a training run, the
    option ``data`` names held-out recorded data of the env: the score is the share of actions on which policy and data
    agree (``accuracy``) or, for continuous actions, the mean squared distance (``mse``).

    ``best`` and ``latest`` are scores, ``best`` is None at first. A score is better than the best one if ``gt`` is true
    for the pair and false for the reversed pair.
    """

    _cfg: MetricConfig
    config = dict(eval_freq=50)
    worst = None
    scores_returns = False
    _data: ScoredData | None = None

    @classmethod
    def open_data(cls, cfg: Mapping[str, Any], spec: EnvSpec) -> ScoredData:
        """Returns the data and the metric on which the config scores the policy.

        Raises:
            ConfigError: If there are no such data, or they are not of the env.
        """
        held_out = float(cfg['held_out'])
        source = open_data(cfg['data'], DATA, Selection(held_out=held_out, is_held_out=held_out > 0))
        check_source(source, spec, DATA)
        if cfg['estimate'] is not None:
            source.check_ends(spec, DATA)
            if not isinstance(source, RowSource) or not isinstance(source.rows, Batch):
                raise ConfigError('an estimate needs recorded data in memory', where=DATA)
            settings = EstimateSettings(cfg['estimate'], cfg['discount_factor'], cfg['updates'])
            rows = Recording(source.rows.columns, {}, DATA, 'columns')
            return ScoredData(source, OffPolicyMetric(rows, spec, settings, DATA))
        return ScoredData(RecordedActions(source, spec, cfg['batch_size']), action_metric(spec.action_space))

    def reset_env(self, _env: Any = None) -> None:
        """Replaces the data by those given in place of an env; see ``reset_data``."""
        if _env is not None:
            self.reset_data(_env)

    def reset_data(self, data: Any) -> None:
        """Replaces the data, a loader and an ``IMetric``.

        Raises:
            TypeError: If it is something else.
        """
        is_pair = isinstance(data, list | tuple) and len(data) == 2
        if not is_pair or not all(hasattr(data[1], name) for name in ('eval', 'reduce_mean', 'gt')):
            raise TypeError(f'the evaluator "metric" takes a pair (loader, IMetric), got {data!r}')
        self._data = ScoredData(*data)

    def eval(  # the name is DI-engine's; no code is evaluated
        self,
        save_ckpt_fn: SaveCheckpoint | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """Scores the policy; ``n_episode`` has no effect.

        Returns:
            Whether the score reached ``stop_value`` (never before training began), and the score.

        Raises:
            ValueError: If there are no data, no policy, or the loader is empty.
        """
        if self._data is None or self._policy is None:
            raise ValueError('eval needs a policy and a pair (loader, IMetric)')
        metric = self._data.metric
        start = perf_counter()
        with preserved_rng():
            score, count = self._score(*self._data)
        self._report(score, count, perf_counter() - start, train_iter, envstep)
        self.latest = score
        if self.best is None or (metric.gt(score, self.best) and not metric.gt(self.best, score)):
            self.best = score
            if save_ckpt_fn is not None:
                save_ckpt_fn('ckpt_best.pth.tar')
        return self.reached(score) and train_iter > 0, dict(score)

    def reached(self, score: Any) -> bool:
        if self._data is None or score is None or self.stop_value is None:
            return False
        return bool(self._data.metric.gt(score, self.stop_value))

    def _score(self, loader: Any, metric: IMetric) -> tuple[dict[str, float], int]:
        """Returns the mean score and the number of data that it covers."""
        self._policy.reset(None)
        if isinstance(metric, OffPolicyMetric):
            found = metric.score(lambda obs: self._policy.forward(obs, np.arange(len(obs)))['action'])
            return found, len(loader)
        scores = []
        count = 0
        for inputs, label in loader:
            scores.append(metric.eval(self._policy.forward(inputs, np.arange(len(inputs))), label))
            count += len(inputs)
            if self.on_step is not None:
                self.on_step()
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
        self._logger.info(
            'evaluation at train_iter %d: %s over %d data (%.1f s)',
            train_iter,
            self.describe(score),
            count,
            seconds,
        )

    @property
    def score(self) -> float:
        if self._data is None or not isinstance(self.latest, Mapping):
            return math.nan
        return self._data.metric.number(self.latest)

    def describe(self, score: Any) -> str:
        if not isinstance(score, Mapping):
            return ''
        return ', '.join(f'{name} {number_text(value)}' for name, value in score.items())

    def summary(self) -> dict[str, float]:
        kinds = {'eval/': self.latest, 'eval/best_': self.best}
        return {
            start + name: value
            for start, score in kinds.items()
            if isinstance(score, Mapping)
            for name, value in score.items()
        }

    def close(self) -> None:
        """Does nothing: whoever made the loader closes it."""

    def state_dict(self) -> dict[str, Any]:
        return {**self.last_due, 'best': copy.deepcopy(self.best), 'latest': copy.deepcopy(self.latest)}
