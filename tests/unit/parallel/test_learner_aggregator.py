"""Several learners behind an aggregator, with a coordinator that follows a script."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest
from learner_team import Descent, Team, descending, lines, started, whole
from parallel_parts import PATIENCE, ScriptedCoordinator, batches_of, compiled, task_of, wait_until
from runs import differences

from rlframe.data import Batch
from rlframe.errors import WorkerLostError
from rlframe.parallel.comm_learner import LearnerParts, TransportLearner
from rlframe.parallel.roles import collector_maker, learner_maker
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import Reply
from rlframe.parallel.transport.http import HTTPServer
from rlframe.parallel.transport.messages import AskData, LearnInfo, Orders, Wait

LEARN = {'kind': 'learn', 'target': 0, 'parts': 0}
DQN = ('cartpole_dqn', 'policy.collect.n_sample=12', 'policy.learn.update_per_collect=2')
CONSTANT = ('policy.learn.learning_rate=1e-3', 'policy.learn.clip_ratio=0.2')
"""Instead of schedules, since scripted batches come without env steps."""
PPO = ('cartpole_ppo', 'policy.collect.n_sample=24', 'policy.learn.epoch_per_collect=2', *CONSTANT)


def sent(coordinator: ScriptedCoordinator) -> dict[str, Any]:
    """Returns everything that a learner sent, in order."""
    kept = {'Finished', 'PutWeights', 'LearnInfo', 'PutState'}
    return {
        'messages': [message for message in coordinator.messages if type(message).__name__ in kept],
        'weights': [payload for _, payload in coordinator.put],
        'priorities': [payload for _, payload in coordinator.infos],
        'states': [payload for _, payload in coordinator.states],
    }


# one learner


@pytest.mark.parametrize(('name', 'freq'), [('per', 1), ('normalised', 3)])
def test_one_learner_behind_an_aggregator_equals_a_learner_bit_for_bit(name: str, freq: int) -> None:
    cfg, batches, each = case(name)
    options = {'send_policy_freq': freq}
    alone = ScriptedCoordinator([task_of(**LEARN)], batches=copy.deepcopy(batches))
    alone.batches_each = each
    transport = alone.server.connect()
    learner = TransportLearner(options, make_learner=learner_maker(cfg), transport=transport, name='all')
    learner.run()
    grouped = ScriptedCoordinator([task_of(**LEARN)], batches=copy.deepcopy(batches))
    grouped.batches_each = each
    team = Team(grouped, learner_maker(cfg), 1, **options)
    team.run()
    ours, theirs = sent(grouped), sent(alone)
    assert [str(one) for one in ours.pop('messages')] == [str(one) for one in theirs.pop('messages')]
    assert differences(ours, theirs) == []
    states = [one.learner.state_dict() for one in (*team.learners, learner)]
    assert differences(*states) == [] and states[0]['progress']['train_iter'] > 3


def case(name: str) -> tuple[Any, list[Any], int]:
    """Returns a config, payloads, and the number of batches in each."""
    if name == 'normalised':
        cfg = compiled(*PPO, 'policy.normalize_obs=true')
        collector = collector_maker(cfg)(0, 0).collector
        return cfg, [collector.collect(24) for _ in range(4)], 1
    extra = ('replay_buffer.type=advanced', 'policy.priority=true') if name == 'per' else ()
    cfg = compiled(*DQN, *extra)
    payloads = [Batch.cat(batches_of(cfg, 2)) for _ in range(4)]
    if name == 'per':
        of_buffer = {'replay_buffer_idx': np.arange(32), 'IS': np.ones(32, np.float32)}
        payloads = [one.replace(**of_buffer) for one in payloads]
    return cfg, payloads, 2


def scripted(batches: list[Any], **fields: Any) -> ScriptedCoordinator:
    """Returns a coordinator that lets a learner train on batches."""
    return ScriptedCoordinator([task_of(**{**LEARN, **fields})], batches=batches)


def assert_trained(coordinator: ScriptedCoordinator, batches: list[Any], lost: int | None = None) -> None:
    """Makes sure that weights are those of training on all batches, each in one round; of one, half of the rows were lost."""
    half = [batch[np.arange(0, 8, 2)] if i == lost else batch for i, batch in enumerate(batches)]
    assert float(coordinator.put[-1][1]['model']['w']) == pytest.approx(whole(half), rel=1e-5)
    infos = [(info.batches, info.train_iter) for info, _ in coordinator.infos]
    assert infos == [(1, i + 1) for i in range(len(batches))]


# several learners


def test_with_gradient_descent_the_average_equals_training_on_whole_batches() -> None:
    batches = lines(6, 13)
    coordinator = scripted(batches)
    Team(coordinator, descending(), 4).run()
    for count, (_, weights) in enumerate(coordinator.put):
        assert float(weights['model']['w']) == pytest.approx(whole(batches[:count]), rel=1e-5)
        assert weights.keys() == {'model'}
    assert [message.train_iter for message, _ in coordinator.put] == list(range(7))
    assert [(info.train_iter, info.batches) for info, _ in coordinator.infos] == [
        (i + 1, 1) for i in range(6)
    ]
    for (_, priorities), batch in zip(coordinator.infos, batches, strict=True):
        order = np.argsort(priorities['replay_buffer_idx'])
        assert (priorities['priority'][order] == batch['x']).all()
    (state,) = [payload for message, payload in coordinator.states if message.purpose == 'checkpoint']
    assert float(state['policy']['model']['w']) == pytest.approx(whole(batches), rel=1e-5)
    assert float(state['policy']['target_model']['w']) == pytest.approx(whole(batches), rel=1e-5)
    assert state['progress']['train_iter'] == 6
    (finished,) = coordinator.finished
    assert finished.completed and finished.facts['train_iter'] == 6


def test_train_iterations_are_those_of_the_learner_with_most_updates() -> None:
    batches = lines(3)
    coordinator = scripted(batches)
    team = Team(coordinator, descending(), 2)
    team.learners[1] = team.learner('other', descending(times=3))
    team.learners[0].start()
    wait_until(lambda: team.aggregator._group.members)
    team.run()
    assert [message.train_iter for message, _ in coordinator.put] == [0, 3, 6, 9]
    assert [(info.train_iter, info.batches) for info, _ in coordinator.infos] == [(3, 1), (6, 1), (9, 1)]
    message, state = coordinator.states[-1]
    assert message.train_iter == state['progress']['train_iter'] == 9
    assert state['policy']['momentum'] == 3, 'it is the state of the first'
    one = float(state['policy']['model']['w'])
    assert one == float(coordinator.put[-1][1]['model']['w'])


def test_data_are_requested_once_for_the_sum_of_the_batch_sizes() -> None:
    coordinator = scripted(lines(2), target=7)
    Team(coordinator, descending(), 3).run()
    asked = [message for message in coordinator.messages if isinstance(message, AskData)]
    assert [(message.batch_size, message.count) for message in asked] == [(12, 7)] * 3
    updates = [message.train_iter for message in asked]
    # each batch is asked for while the one before it is learned from, or when it was
    assert all(made in (max(i - 1, 0), i) for i, made in enumerate(updates)) and updates == sorted(updates)


# learners that come and go


class Gate:
    """Holds the data back until it is opened."""

    def __init__(self, coordinator: ScriptedCoordinator, after: int) -> None:
        self._left, self.opened = after, threading.Event()
        coordinator.on[AskData] = self._answer

    def _answer(self, message: AskData, payload: Any) -> Reply | None:
        if self._left == 0 and not self.opened.is_set():
            return Reply(Wait(0.005, False, 'no data yet'))
        self._left -= 1
        return None


def hanging(begun: threading.Event, release: threading.Event, fails: bool) -> Any:
    """Makes learners whose third update hangs, or fails."""

    def make(rank: int, incarnation: int) -> LearnerParts:
        parts = descending()(rank, incarnation)
        train = parts.learner.train

        def slow(*args: Any) -> Any:
            if parts.learner.train_iter == 2 and not begun.is_set():
                begun.set()
                if fails:
                    raise KeyError('obs')
                assert release.wait(PATIENCE)
            return train(*args)

        parts.learner.train = slow
        return parts

    return make


@pytest.mark.parametrize('how', ['silent', 'stuck', 'failed', 'left'])
def test_when_a_learner_is_lost_all_begin_again_from_the_last_state(how: str) -> None:
    begun, release = threading.Event(), threading.Event()
    batches = lines(4)
    tasks = [task_of(**LEARN, task=name) for name in 'ab']
    coordinator = ScriptedCoordinator(tasks, batches=[*batches[:3], *batches])
    limits = {'silent': {'worker_deadline': 0.4, 'beat_interval': 0.05}, 'stuck': {'stall_deadline': 0.4}}
    team = Team(coordinator, descending(), 2, start_timeout=0.1, lockstep=True, **limits.get(how, {}))
    lost = team.learners[1] = team.learner('lost', hanging(begun, release, how == 'failed'), lockstep=True)
    with started(team):
        assert begun.wait(PATIENCE)
        coordinator.state = state_of(Descent(), 0)
        if how == 'silent':
            lost._disconnect()
        elif how == 'left':
            lost.stop()
            release.set()
        wait_until(lambda: len(coordinator.finished) == 1)
        lost.stop()
        release.set()
        assert team.aggregator.wait(PATIENCE)
        if how == 'failed':
            with pytest.raises(KeyError):
                lost.wait(PATIENCE)
    (first, second) = coordinator.finished
    assert not first.completed and 'lost' in first.reason and second.completed
    coordinator.infos = [(info, payload) for info, payload in coordinator.infos if info.task == 'b']
    assert_trained(coordinator, batches)


def test_a_learner_that_joins_later_waits_until_all_begin_again() -> None:
    coordinator = scripted(lines(6))
    gate = Gate(coordinator, 3)
    team = Team(coordinator, descending(), 1)
    with started(team):
        wait_until(lambda: len(coordinator.infos) == 3)
        late = team.learner('late')
        late.start()
        wait_until(lambda: len(team.aggregator._group.members) == 2)
        gate.opened.set()
        assert team.aggregator.wait(PATIENCE) and late.wait(PATIENCE)
    assert late.learner.train_iter == 0
    assert_trained(coordinator, lines(6))


def test_a_state_that_is_asked_for_is_that_of_the_first_with_the_average() -> None:
    coordinator = scripted(lines(6))
    coordinator.on[LearnInfo] = lambda message, payload: Reply(Orders(False, False, 2, ''))
    Team(coordinator, descending(), 2).run()
    message, state = coordinator.states[0]
    assert message.purpose == 'spare' and message.train_iter == state['progress']['train_iter'] >= 2
    average = next(tree for put, tree in coordinator.put if put.train_iter == message.train_iter)
    assert differences(state['policy']['model'], average['model']) == []


def test_learners_may_join_over_http() -> None:
    batches = lines(5)
    coordinator = scripted(batches)
    team = Team(coordinator, descending(), 2, server=HTTPServer())
    team.run()
    assert_trained(coordinator, batches)


def test_without_learners_the_aggregator_says_so_and_ends() -> None:
    coordinator = scripted(lines(2))
    team = Team(coordinator, descending(), 0 + 1, role_deadline=0.3)
    team.learners = []
    with pytest.raises(WorkerLostError, match='no learner for 0 s'):
        team.run()
    (finished,) = coordinator.finished
    assert not finished.completed and 'no learner for' in finished.reason
    assert 'WorkerLostError' in coordinator.messages[-1].reason


# states, orders and the end


def state_of(policy: Descent, train_iter: int) -> dict[str, Any]:
    """Returns the state of a learner of a policy."""
    progress = {**descending()(0, 0).learner.state_dict()['progress'], 'train_iter': train_iter}
    return {'policy': policy.state_dict(), 'progress': progress}


def test_an_aggregator_that_is_closed_sends_its_state_and_lets_its_learners_leave() -> None:
    coordinator = scripted(lines(3))
    Gate(coordinator, 3)
    team = Team(coordinator, descending(), 2)
    with started(team):
        wait_until(lambda: len(coordinator.infos) == 3)
        team.aggregator.close()
        assert all(one.wait(PATIENCE) for one in team.learners)
    assert coordinator.states[-1][0].train_iter == 3
    assert not coordinator.finished[0].completed
    assert coordinator.kinds[-3:] == ['PutState', 'Finished', 'Farewell']


def test_an_abandoned_task_ends_for_all_and_the_next_one_is_done() -> None:
    tasks = [task_of(**LEARN, task='a'), task_of(**LEARN, task='b')]
    batches = lines(5)
    coordinator = ScriptedCoordinator(tasks, batches=batches)
    gate = Gate(coordinator, 2)

    def lost(message: Any, payload: Any) -> None:
        coordinator.state = coordinator.state or state_of(Descent(start=5.0), 9)

    coordinator.on[m.Finished] = lost
    team = Team(coordinator, descending(), 2)
    with started(team):
        wait_until(lambda: len(coordinator.infos) == 2)
        coordinator.on[m.Beat] = lambda message, payload: Reply(
            Orders(False, message.task == 'a', -1, 'it is done elsewhere')
        )
        wait_until(lambda: coordinator.finished)
        gate.opened.set()
        assert team.aggregator.wait(PATIENCE)
    assert [(one.task, one.completed) for one in coordinator.finished] == [('a', False), ('b', True)]
    assert sum(info.batches for info, _ in coordinator.infos) == 5
    begun = [(message.version, float(tree['model']['w'])) for message, tree in coordinator.put[3:4]]
    assert begun == [(9, 5.0)], 'it begins with the weights of the state, not with those of before'
