"""What every registered metric of evaluations has to do, also those of modules named in ``RLFRAME_IMPORT``.

To check your own: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_eval_metric.py``.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from checked_names import names_of

from rlframe.registry import EVAL_METRIC_REGISTRY
from rlframe.worker import EvalMetric, PlayedEpisodes


def played(returns: list[float], lengths: list[float] | None = None, infos: Any = None) -> PlayedEpisodes:
    count = len(returns)
    return PlayedEpisodes(
        np.array(returns),
        np.ones(count) if lengths is None else np.array(lengths),
        np.zeros(count, bool),
        [{}] * count if infos is None else infos,
    )


@pytest.mark.parametrize('name', names_of(EVAL_METRIC_REGISTRY))
@pytest.mark.parametrize(
    'episodes',
    [
        played([3.0]),
        played([3.0, -1.0, 2.5], [1, 2, 3], [{'is_success': 1.0}, {}, {'drag': 2.0}]),
        played([1.0] * 9, [], [{'is_success': float(i % 2)} for i in range(9)]),
    ],
)
def test_gives_finite_numbers_by_names_of_its_own_and_leaves_the_episodes_alone(
    name: str, episodes: PlayedEpisodes
) -> None:
    cls = EVAL_METRIC_REGISTRY.get(name)
    assert issubclass(cls, EvalMetric) and inspect.getdoc(cls)
    before = episodes.returns.copy()
    values = cls(None).measure(episodes)
    assert all(isinstance(key, str) and np.isfinite(float(value)) for key, value in values.items())
    assert dict(values) == dict(cls(None).measure(episodes))
    assert np.array_equal(episodes.returns, before)


def test_builtin_metrics_are_what_their_names_say() -> None:
    episodes = played(
        [8.0, 1, 2, 3, 4, 5, 6, 100], [1, 3] * 4, [{'is_success': 1.0}, {'is_success': 0.0}] * 4
    )
    values: dict[str, float] = {}
    for name in ('returns', 'length', 'success_rate', 'median', 'iqm'):
        values |= EVAL_METRIC_REGISTRY.get(name)(None).measure(episodes)
    assert values.pop('std_reward') == pytest.approx(np.std(episodes.returns))
    assert values == {
        'mean_reward': 129 / 8,
        'min_reward': 1,
        'max_reward': 100,
        'mean_ep_length': 2,
        'success_rate': 0.5,
        'median_reward': 4.5,
        'iqm_reward': 4.5,  # of 3, 4, 5, 6
    }
