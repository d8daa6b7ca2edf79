"""Training with ``-m parallel`` in a Ray of its own: workers that are killed are replaced, and nothing is left at the end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path

import pytest
from fault_envs import wait_until
from ray_runs import descendants, is_alive
from runs import finish, records, train

RAY = {'num_cpus': 1, 'object_store_memory': 100_000_000, 'log_to_driver': False}
LONG = 600.0
"""Seconds for what takes a few on an idle machine: a test that fails is late, one that passes is not."""
pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(3 * LONG)]
PATIENT = tuple(
    f'parallel.{name}={LONG}'
    for name in ('coordinator.worker_deadline', 'coordinator.stall_deadline', 'close_timeout')
)
"""Limits that a busy machine may not reach, either."""
SMALL = (
    *('-c', 'configs/cartpole_dqn_parallel.py', '-m', 'parallel', 'comm_collector.type=ray'),
    *('comm_learner.type=ray', f'parallel.coordinator.transport={{"ray_init_config": {RAY}}}'),
    *('env.stop_value=10000', 'policy.learn.update_per_collect=4', 'policy.learn.batch_size=16'),
)


def test_a_learner_on_ray_starts_a_lost_one_of_its_own_again(tmp_path: Path) -> None:
    words = ('policy.learn.num_learners=2', 'policy.learn.max_learner_restarts=1', 'max_env_step=1000000000')
    often = 'policy.learn.learner.hook.log_show_after_iter=10'
    process = train(tmp_path, *SMALL, *words, often, *PATIENT, 'parallel.coordinator.role_deadline=0.001')
    folder = tmp_path / 'cartpole_dqn_parallel_seed0'

    def others() -> list[int]:
        found = []
        for pid in descendants(process.pid):
            with contextlib.suppress(OSError):  # it has just ended
                if b"'learner 1 (process)'" in Path(f'/proc/{pid}/cmdline').read_bytes():
                    found.append(pid)
        return found

    def updates_after(restarts: int) -> bool:
        known = records(folder) if (folder / 'metrics.jsonl').exists() else []
        return any(record.get('train/learner_restarts') == restarts for record in known)

    assert wait_until(lambda: updates_after(0), LONG), finish(process)
    family, (other,) = descendants(process.pid), others()
    os.kill(other, signal.SIGKILL)
    assert wait_until(lambda: updates_after(1), LONG), finish(process)
    assert len(others()) == 1 and others() != [other]
    process.send_signal(signal.SIGINT)
    finish(process, 130, LONG)
    assert (folder / 'ckpt' / 'latest').exists()
    assert wait_until(lambda: not any(map(is_alive, family)), LONG)


def test_run_survives_a_killed_collector_and_leaves_no_process(tmp_path: Path) -> None:
    process = train(tmp_path, *SMALL, 'max_env_step=12000')
    folder = tmp_path / 'cartpole_dqn_parallel_seed0'

    def joined() -> list[str]:
        log = folder / 'log.txt'
        text = log.read_text(encoding='utf-8') if log.exists() else ''
        return re.findall(r'collector-\d \(pid (\d+) on [^)]*\) joined', text)

    assert wait_until(lambda: len(joined()) == 2, LONG), finish(process)
    family = descendants(process.pid)
    os.kill(int(joined()[0]), signal.SIGKILL)
    assert wait_until(lambda: len(joined()) == 3, LONG), finish(process)
    finish(process)
    assert 'is lost: in run: ActorDiedError' in (folder / 'log.txt').read_text(encoding='utf-8')
    assert records(folder)[-1]['envstep'] >= 12000 and (folder / 'ckpt' / 'latest').exists()
    assert len(family) > 5 and wait_until(lambda: not any(map(is_alive, family)), LONG)
