"""What a user of the command line meets: a signal, too small a cluster, an address where nobody is."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import pytest
from runs import DQN, finish, records, train

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures('copies')]
OWN = "evaluator.ray_init_config={'num_cpus': 1, 'object_store_memory': 1e8, 'log_to_driver': False}"
BESIDE = (*DQN, 'evaluator.backend=ray', OWN)


def test_signal_during_a_run_with_ray_saves_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    process = train(tmp_path, *BESIDE, '--train-iter', '100000', 'env.n_evaluator_episode=300')
    folder, limit = tmp_path / 'cartpole_dqn_seed0', time.monotonic() + 120
    while not (folder / 'metrics.jsonl').exists() or len(records(folder)) < 3:
        assert time.monotonic() < limit and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, _ = finish(process, 143)
    assert 'interrupted and saved' in out
    before = records(folder)[-1]['train_iter']
    more = ('--train-iter', str(before + 200), 'env.n_evaluator_episode=2')
    finish(train(tmp_path, '--resume', str(folder), *more))
    assert records(folder)[-1]['train_iter'] >= before + 200


def test_more_cpus_than_the_cluster_has_is_an_error_that_leaves_nothing_behind(tmp_path: Path) -> None:
    process = train(tmp_path, *BESIDE, "evaluator.remote_config={'num_cpus': 9}")
    _, err = finish(process, 2)
    assert 'ResourceError: policy.eval.evaluator' in err and '1 x {CPU: 9}; free: CPU 1 of 1 on 1 node' in err
    assert not list(tmp_path.iterdir())


def test_address_where_nobody_answers_is_an_error_that_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        address = f'127.0.0.1:{probe.getsockname()[1]}'
        config = f"evaluator.ray_init_config={{'address': '{address}'}}"
        _, err = finish(train(tmp_path, *DQN, 'evaluator.backend=ray', config), 2)
    assert f'policy.eval.evaluator.ray_init_config.address: nothing answers at {address}' in err
    assert not list(tmp_path.iterdir())
