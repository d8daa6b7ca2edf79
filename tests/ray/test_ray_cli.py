"""What a user of the command line meets: a signal, too small a cluster."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from runs import DQN, ROOT, finish, records, train

from rlframe.entry.__main__ import main

pytestmark = pytest.mark.ray
OWN = "evaluator.ray_init_config={'num_cpus': 1, 'object_store_memory': 1e8, 'log_to_driver': False}"


@pytest.mark.usefixtures('copies')
def test_signal_during_a_run_with_ray_saves_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    words = (*DQN, 'evaluator.backend=ray', OWN, '--train-iter', '100000', 'env.n_evaluator_episode=300')
    process = train(tmp_path, *words)
    folder, limit = tmp_path / 'cartpole_dqn_seed0', time.monotonic() + 120
    while not (folder / 'metrics.jsonl').exists() or len(records(folder)) < 3:
        assert time.monotonic() < limit and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, _ = finish(process, 143)
    assert 'interrupted and saved' in out
    before = records(folder)[-1]['train_iter']
    more = ('--train-iter', str(before + 100), 'env.n_evaluator_episode=2')
    finish(train(tmp_path, '--resume', str(folder), *more))
    assert records(folder)[-1]['train_iter'] >= before + 100


def test_more_cpus_than_the_cluster_has_is_an_error_that_leaves_nothing_behind(
    ray_of_tests: Any, cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ['-c', str(ROOT / DQN[1]), *DQN[2:], 'evaluator.backend=ray']
    assert main([*words, "evaluator.remote_config={'num_cpus': 9}"]) == 2
    err = capsys.readouterr().err
    assert 'ResourceError: policy.eval.evaluator' in err and '1 x {CPU: 9}; free: CPU 4 of 4 on 1 node' in err
    assert not list(cwd.iterdir())
