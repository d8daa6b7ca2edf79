"""Laws of throughput control and of what is logged, on a clock that stands still."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from buffer_helpers import FakeClock, transitions
from fakes import FakeBoard

from rlframe.errors import BufferUnderflowError
from rlframe.worker.replay_buffer import AdvancedReplayBuffer, NaiveReplayBuffer, ThroughputLimitError
from rlframe.worker.replay_buffer.base_buffer import ThroughputControl


def test_old_counts_fade_to_a_hundredth_in_the_window() -> None:
    clock = FakeClock()
    control = ThroughputControl(2.0, 0.0, 30.0, clock)
    assert control.can_push(10**9)  # nothing was sampled yet
    control.pushed(100)
    control.sampled(100)
    assert control.can_push(100)
    assert not control.can_push(101)
    clock.now = 30.0
    assert control.can_push(1)
    assert not control.can_push(2)
    assert control.state_dict() == pytest.approx({'pushed': 1.0, 'sampled': 1.0})


def test_refused_push_is_dropped_logged_and_counted_as_none(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    limit = dict(push_sample_rate_limit=dict(max=1))
    buffer = AdvancedReplayBuffer(dict(thruput_controller=limit), clock=clock)
    assert buffer.push(transitions(0, 10), 0) == 10
    buffer.sample(10, 0)
    with caplog.at_level(logging.WARNING):
        assert buffer.push(transitions(10, 5), 0) == 0
    assert 'buffer dropped a push of 5: 10 pushed and 10 sampled in the last 30 s' in caplog.text
    assert (buffer.count(), buffer.push_count) == (10, 10)
    clock.now = 300.0
    assert buffer.push(transitions(10, 5), 0) == 5


def test_refused_sample_gives_none_and_takes_no_step(caplog: pytest.LogCaptureFixture) -> None:
    buffer = AdvancedReplayBuffer(
        dict(thruput_controller=dict(push_sample_rate_limit=dict(min=0.5))), clock=FakeClock()
    )
    buffer.push(transitions(0, 10), 0)
    buffer.sample(10, 0)
    buffer.sample(10, 0)
    before = buffer.state_dict()
    assert buffer.sample(1, 0) is None and 'refuses a sample of 1' in caplog.text
    with pytest.raises(ThroughputLimitError, match='refuses a sample of 1'):
        next(buffer.batches(1, 1, 0))
    assert issubclass(ThroughputLimitError, BufferUnderflowError)
    assert buffer.state_dict()['rng'] == before['rng']
    assert buffer.beta == before['beta']


@pytest.mark.parametrize('cls', [NaiveReplayBuffer, AdvancedReplayBuffer])
def test_throughput_is_logged_when_its_time_has_come(cls, caplog: pytest.LogCaptureFixture) -> None:
    clock, writer = FakeClock(), FakeBoard()
    buffer = cls(dict(replay_buffer_size=8), writer, clock=clock)
    buffer.push(transitions(0, 12), 3)
    buffer.sample(4, 0)
    assert not writer.scalars
    clock.now = 60.0
    with caplog.at_level(logging.INFO):
        buffer.push(transitions(12, 1), 5)
    assert 'pushed_in 13, sampled_out 4, removed 5, current_have 8' in caplog.text
    assert ('buffer_sec/removed', 5, 5) in writer.scalars
    buffer.sample(4, 0)
    assert len(writer.scalars) == 4


def test_averages_are_logged_every_print_freq_samples_at_the_last_envstep() -> None:
    writer = FakeBoard()
    cfg = dict(monitor=dict(sampled_data_attr=dict(average_range=2, print_freq=5)), anneal_step=0)
    buffer = AdvancedReplayBuffer(cfg, writer)
    buffer.push(transitions(0, 4, collect_iter=np.full(4, 3)), 77)
    for _ in range(9):
        buffer.sample(4, 10)
    assert writer.tags() == {
        f'buffer/{n}' for n in ('use_avg', 'priority_avg', 'staleness_avg', 'beta', 'count')
    }
    values = {tag: value for tag, value, _ in writer.scalars}
    assert len(writer.scalars) == 5
    assert {step for _, _, step in writer.scalars} == {77}
    assert values['buffer/use_avg'] == pytest.approx(4.5)
    assert values['buffer/staleness_avg'] == 7
    assert (values['buffer/count'], values['buffer/beta']) == (4, 0.4)
