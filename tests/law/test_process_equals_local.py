"""A worker process returns bit for bit what the collector returns in this one; several are replaced and counted as Ray actors are."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from parallel_parts import compiled
from ray_runs import train_to
from runs import CASES, assert_same_end, differences, every, killed_and_straight

from rlframe.pipeline import SerialPipeline

PROCESS = ('collector.backend=process', 'evaluator.backend=process')
MORE = {
    'dqn naive': ('policy.random_collect_size=30', 'policy.nstep=3', 'policy.normalize_obs=true'),
    'ppo parts': ('policy.model.core=lstm', 'policy.normalize_obs=true', 'policy.normalize_reward=true'),
    'sac': ('policy.random_collect_size=30',),
}


@pytest.mark.slow
@pytest.mark.parametrize('case', MORE)
def test_a_run_with_a_process_that_is_resumed_ends_with_the_bits_of_one_without(
    case: str, tmp_path: Path
) -> None:
    words = (*MORE[case], 'evaluator.eval_freq=40')
    straight = train_to(tmp_path / 'straight', 120, case, *words)
    train_to(tmp_path / 'half', 80, case, *words, PROCESS[0])
    resumed = train_to(tmp_path / 'whole', 120, case, *words, PROCESS[0], resume=tmp_path / 'half')
    assert resumed['progress']['train_iter'] >= 120
    assert differences(straight, resumed) == []


@pytest.mark.slow
@pytest.mark.usefixtures('copies')
def test_killed_and_resumed_run_of_two_processes_ends_with_the_same_bits(tmp_path: Path) -> None:
    words = (*CASES['dqn naive'], *PROCESS, 'collector.num_collectors=2')
    assert_same_end(*killed_and_straight(tmp_path, *words, '--train-iter', '300', every(51)))


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced_and_its_rows_are_counted_as_lost(cwd: Path) -> None:
    words = (*PROCESS, 'collector.num_collectors=2', 'collector.sync=false', 'policy.learn.batch_size=8')
    with SerialPipeline(compiled('cartpole_dqn', *words)) as pipeline:
        collector = pipeline.collector
        pipeline.step()
        os.kill(collector._pool.slots[1].facts.pid, signal.SIGKILL)
        while collector._pool.restarts == 0 or collector._pool.slots[1].facts is None:
            pipeline.step()
        assert collector.lost > 0 and collector._pool.slots[1].incarnation == 1
        counted = collector.delivered + collector.lost + collector.stale + collector.in_flight
        assert collector.requested == counted
