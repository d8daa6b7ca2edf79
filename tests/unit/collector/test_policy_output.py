"""A NaN that a policy hands out is noticed before an env is stepped; what masks actions is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import ScriptedPolicy, counting_manager, frames_of

from rlframe.data import Batch
from rlframe.errors import NonFiniteError
from rlframe.worker import InteractionSerialEvaluator, SampleSerialCollector

NAN, INF = float('nan'), float('inf')


class Telling(ScriptedPolicy):
    """Adds a column to its output from the third step on."""

    def __init__(self, name: str, column: Any, **facts: Any) -> None:
        super().__init__(**facts)
        self._name, self._column = name, column

    def forward(self, obs: Any, env_id: Any, **settings: Any) -> Batch:
        output = dict(super().forward(obs, env_id).items())
        if len(self.given_settings) > 2:
            output[self._name] = np.array(self._column, np.float32)
        return Batch(output)


@pytest.mark.parametrize(
    ('name', 'column', 'words'),
    [
        ('action', [[0.0, 1.0], [-INF, 1.0]], r"env 1: the policy's action is \[-inf"),
        ('log_prob', [0.0, NAN], r"env 1: the policy's log_prob is nan"),
        ('logit', [[0.0, NAN], [0.0, -INF]], r"env 0: the policy's logit is .*nan"),
    ],
)
def test_nan_of_a_policy_is_an_error_that_names_env_and_column(name: str, column: Any, words: str) -> None:
    for evaluate in (False, True):
        policy, manager = Telling(name, column, n_sample=2), counting_manager(2)
        with pytest.raises(NonFiniteError, match=words):
            if evaluate:
                InteractionSerialEvaluator({'n_episode': 2}, manager, policy.eval_mode).eval()
            collector = SampleSerialCollector({}, manager, policy.collect_mode)
            for _ in range(3):
                collector.collect(4)
        assert frames_of(manager) == 4, 'two steps of two envs'


def test_masked_actions_and_large_numbers_are_no_error() -> None:
    for column in ([[0.0, -INF], [-INF, INF]], [[3e38, 3e38], [-3e38, 0.0]]):
        policy = Telling('logit', column)
        collector = SampleSerialCollector({}, counting_manager(2), policy.collect_mode)
        assert len(collector.collect(20)) == 20
