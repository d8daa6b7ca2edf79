"""Metrics of evaluation episodes: registered components that the option ``metrics`` of an evaluator lists."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlframe.data.timestep import BoolArray, FloatArray
from rlframe.registry import EVAL_METRIC_REGISTRY
from rlframe.scores import interquartile_mean
from rlframe.utils.component_list import ComponentList
from rlframe.utils.field import Configurable
from rlframe.worker.collector.episode_log import ALL, wanted_names

if TYPE_CHECKING:
    import gymnasium

INFO = 'info/'
"""Start of the names under which an evaluator returns the numbers in the infos of its episodes."""
METRICS = ComponentList(
    ['returns', 'length', 'success_rate'],
    type=list,
    doc='metrics of each evaluation; returns are always among them',
    may_change=True,
    reaches='code',
    registry=EVAL_METRIC_REGISTRY,
)
"""The option ``metrics`` of evaluators."""


class IMetric(ABC):
    """Scores outputs, and compares two scores. A score is a dict of numbers."""

    @abstractmethod
    def eval(self, inputs: Any, label: Any) -> Mapping[str, Any]:  # DI-engine's name; runs no code
        """Returns the score of one batch: of the policy's output (``inputs``) compared with the expected one (``label``)."""

    @abstractmethod
    def reduce_mean(self, inputs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Returns the mean of the scores of batches."""

    @abstractmethod
    def gt(self, metric1: Mapping[str, Any], metric2: Any) -> bool:
        """Whether the first score is at least as good as the second, a score or ``stop_value``; True if that is None."""

    def number(self, metric: Mapping[str, Any]) -> float:
        """Returns a score as a number to compare checkpoints, higher is better; NaN if unknown."""
        return math.nan


class _MeanMetric(IMetric):
    """A number for each batch, and its mean over all rows."""

    name: str
    sign: int
    """1 if a larger number is better, else -1."""

    def reduce_mean(self, inputs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Returns the mean over rows, not over batches."""
        counts = [score['count'] for score in inputs]
        return {self.name: float(np.average([score[self.name] for score in inputs], weights=counts))}

    def gt(self, metric1: Mapping[str, Any], metric2: Any) -> bool:
        if metric2 is None:
            return True
        other = metric2[self.name] if isinstance(metric2, Mapping) else metric2
        return bool(self.number(metric1) >= self.sign * float(other))

    def number(self, metric: Mapping[str, Any]) -> float:
        return self.sign * float(metric[self.name])


class AccuracyMetric(_MeanMetric):
    """Share of discrete actions that are the recorded ones, counted row by row: ``accuracy``.

    Several switches or classes a row are one action: all must agree.
    """

    name, sign = 'accuracy', 1

    def eval(self, inputs: Any, label: Any) -> Mapping[str, Any]:  # DI-engine's name; runs no code
        """Scores a policy's output [n] against recorded actions [n, ...]."""
        same = np.asarray(inputs['action']) == np.asarray(label)
        return {'accuracy': float(same.reshape(len(same), -1).all(1).mean()), 'count': len(same)}


class SquaredErrorMetric(_MeanMetric):
    """Mean squared distance of continuous actions from the recorded ones, in the env's own unit: ``mse``."""

    name = 'mse'
    sign = -1

    def eval(self, inputs: Any, label: Any) -> Mapping[str, Any]:  # DI-engine's name; runs no code
        """Scores a policy's output [n] against recorded actions [n, ...]."""
        error = np.asarray(inputs['action'], np.float64) - np.asarray(label, np.float64)
        return {'mse': float(np.square(error).mean()), 'count': len(error)}


def action_metric(space: gymnasium.Space[Any]) -> IMetric:
    """Returns the metric for recorded actions of a space: squared error if they have real numbers, accuracy otherwise."""
    parts: Any = getattr(space, 'parts', {'action': space}).values()
    return SquaredErrorMetric() if any(type(part).__name__ == 'Box' for part in parts) else AccuracyMetric()


class PlayedEpisodes(NamedTuple):
    """The finished episodes of one evaluation."""

    returns: FloatArray
    """[n]."""
    lengths: FloatArray
    """Env steps, [n]; empty if the evaluator does not know them."""
    is_cut: BoolArray
    """Whether a limit of the evaluator ended the episode, [n]."""
    infos: Sequence[Mapping[str, float]]
    """The finite numbers in each episode's last info, n mappings."""


class EvalMetric(ABC, Configurable):
    """Computes numbers from the episodes of an evaluation."""

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        self._cfg: Any = self.resolve_config(cfg)

    @abstractmethod
    def measure(self, episodes: PlayedEpisodes) -> Mapping[str, float]:
        """Returns numbers by name, which are logged as ``eval/NAME``; none if they cannot be computed."""


@EVAL_METRIC_REGISTRY.register('returns')
class ReturnMetric(EvalMetric):
    """Mean, standard deviation, minimum and maximum of the returns; every evaluation has these."""

    def measure(self, episodes: PlayedEpisodes) -> Mapping[str, float]:
        returns = episodes.returns
        return {
            'mean_reward': returns.mean(),
            'std_reward': returns.std(),
            'min_reward': returns.min(),
            'max_reward': returns.max(),
        }


@EVAL_METRIC_REGISTRY.register('length')
class LengthMetric(EvalMetric):
    """Mean number of env steps of an episode."""

    def measure(self, episodes: PlayedEpisodes) -> Mapping[str, float]:
        return {'mean_ep_length': episodes.lengths.mean()} if len(episodes.lengths) else {}


@EVAL_METRIC_REGISTRY.register('success_rate')
class SuccessMetric(EvalMetric):
    """Share of episodes whose last ``info['is_success']`` is true, if all of them say so."""

    def measure(self, episodes: PlayedEpisodes) -> Mapping[str, float]:
        rate = _success_rate(episodes)
        return {} if rate is None else {'success_rate': rate}


@EVAL_METRIC_REGISTRY.register('median')
class MedianMetric(EvalMetric):
    """Median return."""

    def measure(self, episodes: PlayedEpisodes) -> Mapping[str, float]:
        return {'median_reward': float(np.median(episodes.returns))}


@EVAL_METRIC_REGISTRY.register('iqm')
class InterquartileMetric(EvalMetric):
    """Interquartile mean of the returns: the mean without the lowest and the highest quarter."""

    def measure(self, episodes: PlayedEpisodes) -> Mapping[str, float]:
        return {'iqm_reward': float(interquartile_mean(episodes.returns))}


def success_rate(info: Mapping[str, Any]) -> float | None:
    """Returns the share of episodes that succeeded, in the result of an evaluator; None if not all of them tell."""
    return _success_rate(_episodes_of(info))


def _success_rate(episodes: PlayedEpisodes) -> float | None:
    told = [info['is_success'] for info in episodes.infos if 'is_success' in info]
    return float(np.mean(told)) if told and len(told) == len(episodes.infos) else None


def evaluation_metrics(
    info: Mapping[str, Any], seconds: float, metrics: Any = METRICS.default, info_metrics: Any = ALL
) -> dict[str, float]:
    """Returns the metrics of an evaluation by their tags; ``seconds`` is its duration.

    ``info`` has the values of every episode, as ``EvaluatedEpisodes.result`` returns them; only the returns are necessary. The
    last arguments are the values of the options of their names.
    """
    episodes = _episodes_of(info)
    chosen = METRICS.classes(metrics)
    if 'returns' not in [name for name, *_ in chosen]:
        chosen = [('returns', ReturnMetric, {}), *chosen]
    values: dict[str, float] = {}
    for _, cls, options in chosen:
        values |= cls(options).measure(episodes)
    values['episodes'] = len(episodes.returns)
    if cut := episodes.is_cut.sum():
        values['cut_episodes'] = cut
    wanted = wanted_names(info_metrics)
    for name in dict.fromkeys(name for numbers in episodes.infos for name in numbers):
        if wanted is None or name in wanted:
            values[INFO + name] = float(np.mean([row[name] for row in episodes.infos if name in row]))
    return {'time/eval_seconds': seconds} | {f'eval/{name}': float(value) for name, value in values.items()}


def _episodes_of(info: Mapping[str, Any]) -> PlayedEpisodes:
    """Returns the episodes in the result of an evaluator, which may have come as plain data."""
    returns = np.array(info['eval_episode_return'], float)
    columns = {
        name.removeprefix(INFO): info[name] for name in info if name == 'is_success' or name.startswith(INFO)
    }
    infos: list[dict[str, float]] = [{} for _ in returns]
    for name, column in columns.items():
        for numbers, value in zip(infos, column, strict=True):
            if value is not None and np.isfinite(value):
                numbers[name] = float(value)
    lengths = np.array(info.get('eval_episode_len') or [], float)
    return PlayedEpisodes(returns, lengths, np.array(info.get('eval_episode_cut', ()), bool), infos)
