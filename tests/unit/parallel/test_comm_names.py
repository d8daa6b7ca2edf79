"""Comm collectors and learners under DI-engine's names, and over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parallel_parts import ScriptedCoordinator, compiled, task_of, weights_of
from runs import differences

from rlframe.data import Batch
from rlframe.errors import ConfigError, RegistryError
from rlframe.parallel.comm import NaiveCollector, create_comm_collector, create_parallel_collector
from rlframe.parallel.comm_learner import Round
from rlframe.parallel.parallel_collectors import ZerglingParallelCollector
from rlframe.parallel.roles import collector_maker, evaluator_maker, learner_maker
from rlframe.parallel.transport.http import HTTPServer
from rlframe.remote.payload import pack
from rlframe.worker import FlaskFileSystemCollector, FlaskFileSystemLearner

DQN = ('cartpole_dqn', 'policy.collect.n_sample=6')
TOKEN = 'a-token-that-all-roles-share'


@pytest.fixture(scope='module')
def cfg() -> Any:
    return compiled(*DQN)


def test_the_same_data_arrive_over_http_as_in_process(cfg: Any) -> None:
    tasks = [
        task_of('collect_at_random', task='a'),
        task_of(task='b', parts=2),
        task_of('evaluate', task='c', target=0),
    ]
    coordinators = [ScriptedCoordinator(tasks, {0: weights_of(cfg, 1)}) for _ in range(2)]
    server = HTTPServer({'token': TOKEN, 'port': 0})
    server.start(coordinators[0].handle)
    collectors = [
        ZerglingParallelCollector(None, collector_maker(cfg), evaluator_maker(cfg)) for _ in range(2)
    ]
    over_http = {'type': 'flask_fs', 'transport': {'token': TOKEN}}
    create_comm_collector(over_http, collector=collectors[0], address=server.address, name='c').run()
    server.close()
    transport = coordinators[1].server.connect()
    create_comm_collector(
        {'type': 'in_process'}, collector=collectors[1], transport=transport, name='c'
    ).run()
    one, other = coordinators
    assert [message.rows for message, _ in one.parts] == [6, 6, 6] and one.kinds == other.kinds
    for (_, batch), (_, same) in zip(one.parts, other.parts, strict=True):
        assert differences(dict(batch.items()), dict(same.items())) == []
    assert [f.facts['reward_raw'] for f in one.finished] == [f.facts['reward_raw'] for f in other.finished]


def test_the_steps_of_a_task_have_the_names_of_di_engine(cfg: Any) -> None:
    coordinator = ScriptedCoordinator([], {0: weights_of(cfg, 1)})
    collector = ZerglingParallelCollector(None, collector_maker(cfg), evaluator_maker(cfg))
    comm = FlaskFileSystemCollector({}, collector=collector, transport=coordinator.server.connect(), name='c')
    assert comm.deal_with_resource()['cpu'] >= 1 and comm.collector_uid == ''
    comm._join()
    assert comm.deal_with_collector_start(task_of(parts=2)) == {'message': 'collector task has started'}
    assert comm.deal_with_collector_data() and not comm.deal_with_collector_data()
    info = comm.deal_with_collector_close()
    assert (info['sample_count'], info['collector_done'], comm.collector_uid) == (12, True, 'c-1')
    assert differences(comm.get_policy_update_info('main'), coordinator.weights[0]) == []
    comm.send_stepdata('anywhere', [1])
    assert comm._stepdata == [1]
    comm.close()

    coordinator = ScriptedCoordinator()
    learner = FlaskFileSystemLearner(
        {}, make_learner=learner_maker(cfg), transport=coordinator.server.connect(), name='l'
    )
    assert sorted(repr(hook) for hook in learner.hooks4call) == [
        'send_learn_info(after_iter, priority 100)',
        'send_policy(after_iter, priority 100)',
    ]
    learner._join()
    learner._task = task_of('learn')
    learner.deal_with_learner_start(learner._task)
    assert learner.deal_with_learner_learn(Round([], 2, 0, {}))['learner_step'] == 0
    assert learner.deal_with_get_data() is None and learner.deal_with_resource()['gpu'] == 0
    assert learner.deal_with_learner_close()['learner_done']
    learner.close()


def test_payload_in_a_file_can_be_read(tmp_path: Path) -> None:
    batch = Batch(a=np.arange(3))
    (tmp_path / 'x.safetensors').write_bytes(b''.join(pack({'data': batch})))
    data = FlaskFileSystemLearner.load_data_fn(str(tmp_path / 'x.safetensors'), {'env_id': 1}, None)
    assert data['env_id'] == 1 and data['data']['a'].tolist() == [0, 1, 2]


def test_a_naive_collector_answers_a_task_by_nineteen_parts() -> None:
    coordinator = ScriptedCoordinator([task_of()])
    naive = NaiveCollector(transport=coordinator.server.connect(), prefix='fake_')
    naive.start()
    naive.join()
    naive.close()
    assert [message.part for message, _ in coordinator.parts] == list(range(19))
    assert coordinator.finished[0].completed and coordinator.messages[0].name == 'fake_naive'
    assert naive.produced == naive.pushed == coordinator.produced == 19


def test_what_cannot_run_says_what_is_missing() -> None:
    with pytest.raises(RegistryError, match='flask_fs'):
        create_comm_collector({'type': 'flask_f'})
    with pytest.raises(RegistryError, match='zergling'):
        create_parallel_collector({'type': 'zergling_'})
    comm = create_comm_collector({'type': 'in_process'})
    with pytest.raises(ConfigError, match='needs the address of a coordinator'):
        comm.run()
    coordinator = ScriptedCoordinator([task_of()])
    comm = create_comm_collector({'type': 'in_process'}, transport=coordinator.server.connect())
    with pytest.raises(ValueError, match='make_collector'):
        comm.run()
    with pytest.raises(ConfigError, match='port'):
        FlaskFileSystemLearner({'port': []})
