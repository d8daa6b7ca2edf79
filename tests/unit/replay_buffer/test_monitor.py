"""Laws of what buffers log, on a clock that stands still."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from buffer_helpers import FakeClock, transitions
from fakes import FakeBoard

from rlframe.worker.replay_buffer import AdvancedReplayBuffer, NaiveReplayBuffer


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
