"""Laws of prioritized replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from buffer_helpers import assert_rows_intact, transitions
from error_texts import raises

from rlframe.data import Batch
from rlframe.errors import BufferUnderflowError, NonFiniteError, ResourceError
from rlframe.run import machine
from rlframe.worker.replay_buffer import AdvancedReplayBuffer, NaiveReplayBuffer

EPS = 1e-5


def filled(count: int, size: int = 64, priority: Any = None, **cfg: Any) -> AdvancedReplayBuffer:
    buffer = AdvancedReplayBuffer(dict(replay_buffer_size=size, **cfg))
    buffer.push(transitions(0, count, **({} if priority is None else {'priority': priority})), 0)
    return buffer


def feedback(rows: Batch, priority: Any) -> dict[str, Any]:
    names = ('replay_unique_id', 'replay_buffer_idx')
    return {**{name: rows[name] for name in names}, 'priority': priority}


def priorities(buffer: AdvancedReplayBuffer) -> dict[int, float]:
    """Returns the priority of each transition, by its number."""
    twin = AdvancedReplayBuffer(dict(replay_buffer_size=buffer.replay_buffer_size))
    twin.load_state_dict(buffer.state_dict())
    found = {}
    for age in range(twin.count()):
        row = twin.sample(1, 0, slice(age, age + 1))
        found[int(row['action'][0])] = float(row['priority'][0])
    return found


def test_sampled_columns_are_the_pushed_ones_and_six_more() -> None:
    rows = filled(40).sample(16, 5)
    assert_rows_intact(rows)
    types = {name: rows[name].dtype.name for name in list(rows.keys()) if name not in transitions(0, 1)}
    assert types == {
        'replay_unique_id': 'int64',
        'replay_buffer_idx': 'int64',
        'priority': 'float32',
        'IS': 'float32',
        'use': 'int32',
        'staleness': 'int64',
    }
    assert (rows['staleness'] == -1).all()
    rows.map(lambda column: torch.from_numpy(column).zero_())


def test_frequencies_follow_priority_to_the_alpha() -> None:
    alpha = 0.6
    priority = np.array([0.0, 0.1, 0.5, 1, 1, 2, 3, 5, 8, 13])
    buffer = filled(10, size=10, priority=priority, alpha=alpha)
    draws = 10 * 1000
    counts = np.zeros(10)
    for _ in range(1000):
        counts += np.bincount(buffer.sample(10, 0)['action'], minlength=10)
    expected = (priority + EPS) ** alpha
    expected *= draws / expected.sum()
    assert counts.sum() == draws
    present = expected > 5
    chi_square = ((counts - expected)[present] ** 2 / expected[present]).sum()
    assert chi_square < 27.9  # 9 degrees, p = 0.001; stratified sampling lies below


@pytest.mark.parametrize(('normalization', 'age'), [('batch', None), ('buffer', slice(5, 25, 2))])
def test_importance_weights_equal_the_formula(normalization: str, age: slice | None) -> None:
    priority = np.random.default_rng(0).random(40) * 5
    buffer = filled(40, priority=priority, is_normalization=normalization, beta=0.7)
    rows = buffer.sample(12, 0, age)
    weight = (priority + EPS) ** 0.6
    among = np.arange(40)[age or slice(None)]
    assert set(rows['action']) <= set(among)
    probability = weight / weight[among].sum()
    expected = (len(among) * probability[rows['action']]) ** -0.7
    expected /= (
        expected.max() if normalization == 'batch' else (len(among) * probability[among].min()) ** -0.7
    )
    np.testing.assert_allclose(rows['IS'], expected, rtol=1e-5)


def test_zero_priority_leaves_the_other_weights_alive() -> None:
    for buffer in (filled(4, priority=np.array([0.0, 1, 1, 1])), filled(4)):
        rows = buffer.sample(4, 0)
        buffer.update(feedback(rows, np.array([0.0, 1, 1, 1])))
        assert (buffer.sample(4, 0)['IS'] > 0).all()


@pytest.mark.parametrize('bad', [np.nan, -1.0, 1e31])
def test_impossible_priorities_are_refused_and_change_nothing(bad: float) -> None:
    buffer = filled(8)
    rows = buffer.sample(4, 0)
    before = priorities(buffer)
    with raises(NonFiniteError):
        buffer.update(feedback(rows, [3.0, bad, 2.0, bad]))
    assert priorities(buffer) == before
    with raises(NonFiniteError):
        buffer.push(transitions(8, 2, priority=np.array([1.0, bad])), 0)
    assert buffer.count() == 8


def test_updates_reach_the_items_they_were_sampled_from() -> None:
    buffer = filled(20)
    rows = buffer.sample(20, 0)
    buffer.update(feedback(rows, torch.from_numpy(rows['action'] + 0.5).reshape(-1, 1)))
    expected = {i: i + 0.5 + EPS if i in set(rows['action'].tolist()) else 1 + EPS for i in range(20)}
    assert priorities(buffer) == pytest.approx(expected, rel=1e-6)


def test_updates_of_overwritten_items_are_passed_over() -> None:
    buffer = filled(8, size=8)
    rows = buffer.sample(8, 0)
    buffer.push(transitions(8, 4), 0)
    buffer.update(feedback(rows, np.full(8, 9.0)))
    kept = set(rows['action'].tolist())
    assert priorities(buffer) == pytest.approx(
        {i: (9 if i in kept and i < 8 else 1) + EPS for i in range(4, 12)}, rel=1e-6
    )
    buffer.clear()
    buffer.push(transitions(0, 8), 0)
    buffer.update(feedback(rows, np.full(8, 5.0)))
    assert set(priorities(buffer).values()) == {np.float32(1 + EPS)}


def test_new_items_get_the_largest_priority_reported_for_a_present_item() -> None:
    buffer = filled(4, size=4)
    rows = buffer.sample(4, 0)
    buffer.update(feedback(rows, [7.0, 2.0, 0.5, 7.0]))
    buffer.push(transitions(4, 1), 0)
    assert priorities(buffer)[4] == pytest.approx(7 + EPS)
    buffer.push(transitions(5, 4), 0)
    buffer.update(feedback(rows, [100.0] * 4))
    buffer.push(transitions(9, 1), 0)
    assert priorities(buffer)[9] == pytest.approx(7 + EPS)
    buffer.clear()
    buffer.push(transitions(10, 1), 0)
    assert priorities(buffer) == pytest.approx({10: 1 + EPS})


def test_update_without_priority_returns_silently_and_unequal_lengths_do_not() -> None:
    buffer = filled(4)
    rows = buffer.sample(4, 0)
    buffer.update({})
    buffer.update({'priority': None})
    AdvancedReplayBuffer(None).update(feedback(rows, [1.0]))
    with raises(ValueError):
        buffer.update(feedback(rows, [1.0]))


def test_priorities_may_come_with_some_rows_and_pushed_rows_stay_as_they_are() -> None:
    buffer = AdvancedReplayBuffer(None)
    rows = [{'action': 0, 'priority': 5.0}, {'action': 1}, {'action': 2, 'priority': None}]
    buffer.push(rows, 0)
    assert priorities(buffer) == pytest.approx({0: 5 + EPS, 1: 1 + EPS, 2: 1 + EPS})
    assert [set(row) for row in rows] == [{'action', 'priority'}, {'action'}, {'action', 'priority'}]
    with raises(ValueError):
        buffer.push(Batch(action=np.arange(3), priority=np.ones((3, 2))), 0)
    with pytest.raises(TypeError, match='item 1 is a str'):
        buffer.push([{'action': 1}, 'text'], 0)


@pytest.mark.parametrize('kind', [NaiveReplayBuffer, AdvancedReplayBuffer])
@pytest.mark.parametrize(
    ('pushed', 'age', 'expected'),
    [
        (12, slice(0, 3), {4, 5, 6}),
        (5, slice(-4, None), {1, 2, 3, 4}),
    ],
)
def test_sample_range_is_over_age_also_when_wrapped_or_part_filled(
    kind: type[NaiveReplayBuffer], pushed: int, age: slice, expected: set[int]
) -> None:
    buffer = kind(dict(replay_buffer_size=8))
    for i in range(pushed):
        buffer.push(transitions(i, 1), i)
    seen = {int(a) for _ in range(40) for a in buffer.sample(len(expected), 0, age)['action']}
    assert seen == expected
    assert buffer.sample(1, 0, slice(3, 3)) is None


def test_beta_takes_one_step_per_sample_up_to_one() -> None:
    buffer = filled(4, beta=0.4, anneal_step=3)
    seen = []
    for _ in range(5):
        seen.append(buffer.beta)
        buffer.sample(2, 0)
    assert seen == pytest.approx([0.4, 0.6, 0.8, 1, 1])
    buffer.beta = 0.5
    assert buffer.beta == 0.5
    constant = filled(4, anneal_step=0)
    constant.sample(2, 0)
    assert (constant.beta, constant.alpha) == (0.4, 0.6)


def test_a_round_ends_where_too_few_items_are_left() -> None:
    buffer = filled(8, size=8, max_use=1)
    assert 1 <= len(list(buffer.batches(10, 4, 0))) <= 8 and buffer.count() < 4
    with raises(BufferUnderflowError):
        next(buffer.batches(1, 4, 0))


def test_items_used_often_enough_are_removed_and_their_slots_counted_right() -> None:
    buffer = filled(8, size=8, max_use=2, thruput_controller=dict(sample_min_limit_ratio=0))
    uses, number = np.zeros(100, int), 8
    for _ in range(60):
        if buffer.count() < 4:
            buffer.push(transitions(number, 1), 0)
            number += 1
        rows = buffer.sample(2, 0)
        np.add.at(uses, rows['action'], 1)
        buffer.update(feedback(rows, np.ones(2)))
        assert buffer.count() == len(priorities(buffer))
    assert uses.max() in (2, 3)  # 3 when both draws of a batch fall on an item used once
    newest = buffer.sample(1, 0, slice(-1, None))['action'][0]
    assert newest == max({*priorities(buffer), newest})


def test_stale_items_are_removed_from_the_oldest_on() -> None:
    buffer = AdvancedReplayBuffer(dict(replay_buffer_size=1000, max_staleness=10))
    buffer.push(transitions(0, 900, collect_iter=np.arange(900) // 100), 0)
    rows = buffer.sample(50, 14)
    assert rows['staleness'].tolist() == (14 - rows['action'] // 100).tolist()
    assert buffer.count() == 400
    assert rows['action'].min() >= 500
    assert buffer.sample(1, 10**6) is None
    assert buffer.count() == 0


def test_staleness_sweep_passes_removed_items() -> None:
    cfg = dict(replay_buffer_size=20, max_staleness=5, max_use=1)
    buffer = AdvancedReplayBuffer(cfg)
    buffer.push(transitions(0, 10, collect_iter=np.arange(10)), 0)
    buffer.sample(3, 0, slice(0, 3))
    have = buffer.count()
    buffer.sample(1, 8)
    left = priorities(buffer)
    assert have < 10
    assert min(left) >= 4
    assert buffer.count() == len(left)


def test_objects_are_mappings_and_come_back_as_marked_copies() -> None:
    buffer = AdvancedReplayBuffer(dict(replay_buffer_size=3, max_staleness=5))
    buffer.push([{'name': str(i), 'collect_iter': i} for i in range(3)], 0)
    rows = buffer.sample(1, 4)
    assert {'IS', 'use', 'staleness', 'replay_unique_id', 'replay_buffer_idx', 'priority'} < set(rows[0])
    assert rows[0]['staleness'] == 4 - rows[0]['collect_iter']
    buffer.sample(1, 6)
    assert buffer.count() == 1
    with pytest.raises(TypeError, match='takes mappings; item 0 is a str'):
        buffer.push('text', 0)


def test_the_ratio_says_how_many_items_a_sample_needs(caplog: pytest.LogCaptureFixture) -> None:
    assert len(filled(2, thruput_controller=dict(sample_min_limit_ratio=0.5)).sample(4, 0)) == 4
    assert filled(7, thruput_controller=dict(sample_min_limit_ratio=2)).sample(4, 0) is None
    assert 'has 7 items to sample from, need 8' in caplog.text


def test_gigantic_buffer_is_refused_before_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, 'available_memory', lambda: 2**30)
    with raises(ResourceError):
        AdvancedReplayBuffer(dict(replay_buffer_size=10**12))
