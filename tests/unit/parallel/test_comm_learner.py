"""A comm learner with a coordinator that follows a script."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from parallel_parts import NONE, PATIENCE, ScriptedCoordinator, batches_of, compiled, task_of, wait_until
from runs import differences

from rlframe.data import Batch
from rlframe.parallel.comm_learner import BaseCommLearner
from rlframe.parallel.roles import collector_maker, learner_maker
from rlframe.parallel.transport.base import Reply
from rlframe.parallel.transport.messages import AskData, LearnInfo, Orders, PutWeights, Wait
from rlframe.worker.learner.learner_hook import LearnerHook

LEARN = {'kind': 'learn', 'target': 0, 'parts': 0}
DQN = ('cartpole_dqn', 'policy.collect.n_sample=12', 'policy.learn.update_per_collect=2')
CONSTANT = ('policy.learn.learning_rate=1e-3', 'policy.learn.clip_ratio=0.2')
"""Instead of schedules, since scripted batches come without env steps."""
PPO = ('cartpole_ppo', 'policy.collect.n_sample=24', 'policy.learn.epoch_per_collect=2', *CONSTANT)


@pytest.fixture(scope='module')
def cfg() -> Any:
    return compiled(*DQN)


def connect(coordinator: ScriptedCoordinator, cfg: Any, **options: Any) -> BaseCommLearner:
    """Returns a comm learner that has not started."""
    transport = coordinator.server.connect()
    return BaseCommLearner(options, make_learner=learner_maker(cfg), transport=transport, name='l')


def test_several_batches_of_one_payload_are_trained_on_one_after_the_other() -> None:
    cfg = compiled(*DQN, 'replay_buffer.type=advanced', 'policy.priority=true')
    columns = {'replay_buffer_idx': np.arange(16), 'IS': np.ones(16, np.float32)}
    batches = [batch.replace(**columns) for batch in batches_of(cfg, 4)]
    payloads = [Batch.cat(batches[:2]), Batch.cat(batches[2:])]
    coordinator = ScriptedCoordinator([task_of(**LEARN)], batches=payloads)
    coordinator.batches_each = 2
    comm = connect(coordinator, cfg)
    comm.run()
    parts, priorities = learner_maker(cfg)(0, 0), []
    for batch in batches:
        parts.learner.train(batch)
        priorities.append(parts.learner.priority_info['priority'].numpy().copy())
    assert differences(comm.learner.state_dict()['policy'], parts.learner.state_dict()['policy']) == []
    told = [np.asarray(payload['priority']) for _, payload in coordinator.infos]
    assert differences(told, [np.concatenate(priorities[:2]), np.concatenate(priorities[2:])]) == []
    assert [(info.batches, info.train_iter) for info, _ in coordinator.infos] == [(2, 2), (2, 4)]
    assert coordinator.infos[0][0].info.keys() >= {'total_loss'}


def test_published_weights_do_not_change_with_training(cfg: Any) -> None:
    coordinator = ScriptedCoordinator([task_of(**LEARN)], batches=batches_of(cfg, 3))
    copies: list[Any] = []
    coordinator.on[PutWeights] = lambda message, payload: copies.append(copy.deepcopy(payload))
    connect(coordinator, cfg).run()
    assert differences([tree for _, tree in coordinator.put], copies) == [] and len(copies) == 4
    assert differences(copies[0], copies[1]) != []


def test_weights_are_published_as_often_as_configured_and_at_the_end(cfg: Any) -> None:
    coordinator = ScriptedCoordinator([task_of(**LEARN)], batches=batches_of(cfg, 8))
    connect(coordinator, cfg, send_policy_freq=3).run()
    assert [message.version for message, _ in coordinator.put] == [0, 3, 6, 8]


def test_the_state_is_sent_once_when_it_is_asked_for_and_another_learner_continues_from_it(cfg: Any) -> None:
    batches = batches_of(cfg, 6)
    coordinator = ScriptedCoordinator([task_of(**LEARN)], batches=batches[:4])
    coordinator.on[LearnInfo] = lambda message, payload: Reply(Orders(False, False, 3, ''))
    connect(coordinator, cfg).run()
    (message, state), *_ = coordinator.states
    assert message.train_iter in (3, 4)
    assert [sent.purpose for sent, _ in coordinator.states] == ['spare', 'checkpoint']
    other = ScriptedCoordinator([task_of(**LEARN)], batches=batches[message.train_iter :])
    other.state = state
    comm = connect(other, cfg)
    comm.run()
    parts = learner_maker(cfg)(0, 0)
    for batch in batches:
        parts.learner.train(batch)
    assert differences(comm.learner.state_dict()['policy'], parts.learner.state_dict()['policy']) == []
    assert other.put[0][0].train_iter == message.train_iter and comm.learner.train_iter == 6


def test_a_request_for_data_is_one_ahead_of_training_only_without_lockstep(cfg: Any) -> None:
    for lockstep in (True, False):
        task = task_of(**LEARN, settings={'lockstep': lockstep})
        coordinator = ScriptedCoordinator([task], batches=batches_of(cfg, 6))
        asked: list[int] = []
        coordinator.on[AskData] = lambda message, payload, asked=asked: asked.append(message.train_iter)
        comm = connect(coordinator, cfg)
        trained: list[int] = []
        learn = comm.deal_with_learner_learn

        def wait_for_request(
            data: Any,
            asked: Any = asked,
            trained: Any = trained,
            learn: Any = learn,
            is_in_turn: bool = lockstep,
        ) -> Any:
            if not is_in_turn:
                wait_until(lambda: len(asked) == len(trained) + 2)
            trained.append(len(asked))
            return learn(data)

        comm.deal_with_learner_learn = wait_for_request
        comm.run()
        assert trained == [n + (1 if lockstep else 2) for n in range(6)]


def test_a_learner_waits_for_data_and_ends_when_it_is_closed(cfg: Any) -> None:
    for lockstep in (True, False):
        coordinator = ScriptedCoordinator([task_of(**LEARN, settings={'lockstep': lockstep})])
        coordinator.on[AskData] = lambda message, payload: Reply(Wait(1000.0, False, 'no data yet'))
        comm = connect(coordinator, cfg)
        comm.start()
        wait_until(lambda coordinator=coordinator: 'AskData' in coordinator.kinds)
        comm.close()
        comm.close()
        assert coordinator.kinds[-3:] == ['PutState', 'Finished', 'Farewell']
        assert not coordinator.finished[0].completed


def test_an_abandoned_task_ends_and_the_next_one_is_done(cfg: Any) -> None:
    coordinator = ScriptedCoordinator([task_of(**LEARN, task='a'), task_of(**LEARN, task='b')])
    coordinator.on[AskData] = lambda message, payload: (
        Reply(Wait(0.001, False, 'no data yet')) if message.task == 'a' else None
    )
    comm = connect(coordinator, cfg)
    comm.start()
    wait_until(lambda: 'AskData' in coordinator.kinds)
    coordinator.orders = Orders(False, True, -1, 'it is done elsewhere')
    wait_until(lambda: coordinator.finished)
    coordinator.orders, coordinator.batches = NONE, []
    assert comm.wait(PATIENCE)
    assert coordinator.finished[0].reason == 'it is done elsewhere' and not coordinator.finished[0].completed
    comm.close()


class AfterUpdate(LearnerHook):
    """Calls ``act`` after an update."""

    position = 'after_iter'
    act: Any
    at = 3

    def __call__(self, learner: Any) -> None:
        if learner.train_iter == self.at:
            self.act()


@pytest.mark.parametrize('how', ['closed', 'ended', 'abandoned'])
def test_an_end_between_the_updates_of_a_batch_takes_effect_at_once(how: str) -> None:
    cfg = compiled(*PPO, 'policy.learn.epoch_per_collect=10', 'policy.learn.batch_size=12')
    block = collector_maker(cfg)(0, 0).collector.collect(24)
    coordinator = ScriptedCoordinator([task_of(**LEARN)], batches=[block, block])
    comm = connect(coordinator, cfg)
    task_id = task_of(**LEARN).task
    ends = {
        'closed': comm.stop,
        'ended': lambda: comm._obey(Orders(True, False, -1, 'solved')),
        'abandoned': lambda: comm._obey(Orders(False, True, -1, 'it is done elsewhere'), task_id),
    }
    comm.learner.register_hook(AfterUpdate('end', act=ends[how]))
    comm.run()
    parts = learner_maker(cfg)(0, 0)
    parts.learner.register_hook(AfterUpdate('end', act=lambda: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        parts.learner.train(block)
    assert comm.learner.train_iter == parts.learner.train_iter == 3
    assert differences(comm.learner.state_dict()['policy'], parts.learner.state_dict()['policy']) == []
    (finished,) = coordinator.finished
    assert finished.completed == (how == 'ended')
    infos = [(info.batches, info.train_iter) for info, _ in coordinator.infos]
    assert infos == ([] if how == 'abandoned' else [(0, 3)])  # the batch was not used up
    expected = {'closed': [('spare', 3)], 'ended': [('checkpoint', 3)], 'abandoned': []}
    assert [(state.purpose, state.train_iter) for state, _ in coordinator.states] == expected[how]


def test_batches_of_an_abandoned_task_are_not_reported_with_the_next_one(cfg: Any) -> None:
    batches = [Batch.cat(batches_of(cfg, 2)) for _ in range(2)]
    tasks = [task_of(**LEARN, task=name, settings={'lockstep': True}) for name in ('a', 'b')]
    coordinator = ScriptedCoordinator(tasks, batches=batches)
    coordinator.batches_each = 2
    comm = connect(coordinator, cfg)
    abandon = AfterUpdate('end', act=lambda: comm._obey(Orders(False, True, -1, 'enough'), 'a'), at=1)
    comm.learner.register_hook(abandon)
    comm.run()
    assert [(info.task, info.batches, info.train_iter) for info, _ in coordinator.infos] == [('b', 2, 3)]
