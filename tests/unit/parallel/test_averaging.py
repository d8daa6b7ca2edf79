"""Data of a round are divided among learners, and their results are put together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlframe.data import Batch
from rlframe.errors import InterfaceError
from rlframe.parallel.coordinator.learner_aggregator import average, shares_of
from rlframe.parallel.held_weights import networks_beside
from rlframe.parallel.transport.base import batches_of
from rlframe.worker import LearnerAggregator


@pytest.mark.parametrize('count', [1, 3])
@pytest.mark.parametrize('learners', [1, 3, 5])
@pytest.mark.parametrize('kind', ['batch', 'list'])
def test_every_row_goes_to_one_learner_and_shares_are_even(kind: str, learners: int, count: int) -> None:
    batches: list[Any] = [Batch(x=10 * i + np.arange(4)) for i in range(count)]
    data: Any = Batch.cat(batches) if count > 1 else batches[0]
    if kind == 'list':
        batches = [[{'x': int(x)} for x in batch['x']] for batch in batches]
        data = batches if count > 1 else batches[0]
    shares = shares_of(data, count, learners)
    assert len(shares) == min(learners, 4) and sum(share.rows for share in shares) == 4 * count
    assert shares[0].data is data or learners > 1
    found = [batches_of(share.data, count) for share in shares]
    for i, batch in enumerate(batches):
        sizes = [len(parts[i]) for parts in found]
        assert max(sizes) - min(sizes) <= 1
        rows = sorted(row['x'] for parts in found for row in parts[i])
        assert rows == sorted(row['x'] for row in batch)


def test_reports_are_merged_into_one() -> None:
    same = {'learner_step': 4, 'name': 'x'}
    first = {**same, 'loss': 1.0, 'learner_done': False, 'list': [1]}
    second = {
        'learner_step': 9,
        'name': 'y',
        'loss': 3.0,
        'learner_done': True,
        'list': [2],
    }
    merged = {**same, 'loss': 2.0, 'learner_done': False, 'list': [1, 2]}
    assert LearnerAggregator.merge_info([first, second]) == merged
    assert LearnerAggregator.merge_info([]) == {}


def test_only_numbers_with_a_fraction_are_averaged_by_their_shares() -> None:
    trees = [
        {'w': torch.full((2,), value), 'n': torch.tensor(int(value)), 'name': str(value)}
        for value in (1.0, 4.0)
    ]
    found = average(trees, [0.75, 0.25])
    assert found['w'].tolist() == [1.75, 1.75] and found['w'].dtype == torch.float32
    assert found['n'] == 1 and found['name'] == '1.0'
    assert average(trees[:1], [1.0]) is trees[0]


class Nameless:
    def state_dict(self) -> dict[str, Any]:
        return {'net': 1}

    def get_attribute(self, name: str) -> Any:
        raise AttributeError(name)


def test_a_policy_without_a_model_has_to_name_its_networks() -> None:
    with pytest.raises(InterfaceError, match=r"do(es)? not have: \['model'\].*names among \['net'\]"):
        networks_beside(Nameless(), {})
