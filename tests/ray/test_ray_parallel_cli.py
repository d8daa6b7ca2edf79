"""Training with ``-m parallel`` in a Ray of its own: workers that are killed are replaced, and nothing is left at the end."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from fault_envs import wait_until
from ray_runs import descendants, is_alive
from runs import finish, records, train

pytestmark = [pytest.mark.ray, pytest.mark.slow]
RAY = {'num_cpus': 1, 'object_store_memory': 100_000_000, 'log_to_driver': False}
SMALL = (
    *('-c', 'configs/cartpole_dqn_parallel.py', '-m', 'parallel', 'comm_collector.type=ray'),
    *('comm_learner.type=ray', f'parallel.coordinator.transport={{"ray_init_config": {RAY}}}'),
    *('env.stop_value=10000', 'policy.learn.update_per_collect=4', 'policy.learn.batch_size=16'),
)


def test_run_survives_a_killed_collector_and_leaves_no_process(tmp_path: Path) -> None:
    process = train(tmp_path, *SMALL, 'max_env_step=12000')
    folder = tmp_path / 'cartpole_dqn_parallel_seed0'

    def joined() -> list[str]:
        log = folder / 'log.txt'
        text = log.read_text(encoding='utf-8') if log.exists() else ''
        return re.findall(r'collector-\d \(pid (\d+) on [^)]*\) joined', text)

    assert wait_until(lambda: len(joined()) == 2, 120), finish(process)
    family = descendants(process.pid)
    os.kill(int(joined()[0]), signal.SIGKILL)
    assert wait_until(lambda: len(joined()) == 3, 60), finish(process)
    finish(process)
    assert 'is lost: ActorDiedError' in (folder / 'log.txt').read_text(encoding='utf-8')
    assert records(folder)[-1]['envstep'] >= 12000 and (folder / 'ckpt' / 'latest').exists()
    assert len(family) > 5 and wait_until(lambda: not any(map(is_alive, family)), 20)
