"""Laws of what buffers log, on a clock that stands still."""

from __future__ import annotations

import numpy as np
import pytest
from buffer_helpers import transitions
from fakes import FakeBoard

from rlframe.worker.replay_buffer import AdvancedReplayBuffer


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
