"""What cannot be scored on recorded data is refused; ``tests/unit/test_scored_on_data.py`` has the runs."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import ScriptedPolicy

from rlframe.worker import IMetric, MetricSerialEvaluator


class Nothing(IMetric):
    eval = reduce_mean = gt = lambda self, *given: None


def test_bad_pairs_and_empty_loaders_are_refused() -> None:
    for bad in ([1, 2, 3], (np.zeros(3), 'metric'), 7):
        with pytest.raises(TypeError, match=r'takes a pair \(loader, IMetric\)'):
            MetricSerialEvaluator({}, bad)
    with pytest.raises(ValueError, match='needs a policy'):
        MetricSerialEvaluator({}, ([], Nothing())).eval()
    with pytest.raises(ValueError, match='yields nothing'):
        MetricSerialEvaluator({}, ([], Nothing()), ScriptedPolicy().eval_mode).eval()
