"""Inference in one place: the bits of a run without Ray, batches that a lost collector does not hold up, a server that is replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray_runs import RAY, train_to
from runs import differences

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures('ray_of_tests')]
CENTRAL = (*RAY, 'policy.collect.inference=central')
PARTS = {
    'dqn naive': ('policy.random_collect_size=30', 'policy.nstep=3', 'policy.normalize_obs=true'),
    'dqn advanced': ('policy.first_priority=error', 'policy.other.eps=0.0'),
    'dqn c51': ('policy.type=c51', 'collector.type=episode', 'collector.get_train_sample=true', 'policy.collect.n_sample=None', 'policy.collect.n_episode=2'),
    'r2d2': (),
    'ppo parts': ('policy.model.core=lstm', 'policy.normalize_obs=true', 'policy.normalize_reward=true'),
    'sac': ('policy.model.core=gru', 'replay_buffer.type=sequence', 'collector.mark_episodes=true'),
    'ppo': ('collector.overlap=1',),
}  # fmt: skip


@pytest.mark.parametrize('case', PARTS)
def test_a_run_that_is_resumed_ends_with_the_bits_of_one_whose_collector_has_the_network(
    case: str, tmp_path: Path
) -> None:
    name = 'dqn naive' if case == 'dqn c51' else case
    words = (*PARTS[case], 'evaluator.eval_freq=40')
    straight = train_to(tmp_path / 'straight', 120, name, *words)
    assert len(straight['records']) > 3
    train_to(tmp_path / 'half', 80, name, *words, *CENTRAL)
    resumed = train_to(tmp_path / 'whole', 120, name, *words, *CENTRAL, resume=tmp_path / 'half')
    assert differences(straight, resumed) == []
