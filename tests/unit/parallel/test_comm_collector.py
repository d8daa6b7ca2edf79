"""A comm collector and its parallel collector, with a coordinator that follows a script."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from parallel_parts import NONE, PATIENCE, ScriptedCoordinator, compiled, task_of, wait_until, weights_of

from rlframe.errors import CoordinatorLostError, PayloadError
from rlframe.parallel.comm_collector import BaseCommCollector
from rlframe.parallel.parallel_collectors import ZerglingParallelCollector
from rlframe.parallel.roles import collector_maker, evaluator_maker
from rlframe.parallel.transport.base import Reply
from rlframe.parallel.transport.messages import AskTask, Beat, Collected, Join, Orders, Refused, Taken, Wait

DQN = ('cartpole_dqn', 'policy.collect.n_sample=6')


@pytest.fixture(scope='module')
def cfg() -> Any:
    return compiled(*DQN)


def connect(coordinator: ScriptedCoordinator, cfg: Any, **options: Any) -> BaseCommCollector:
    """Returns a comm collector that has not started."""
    collector = ZerglingParallelCollector(None, collector_maker(cfg), evaluator_maker(cfg))
    transport = coordinator.server.connect()
    return BaseCommCollector(options, collector=collector, transport=transport, name='c', fingerprint='f')


def is_conserved(comm: BaseCommCollector, coordinator: ScriptedCoordinator) -> bool:
    """Whether every row was taken or counted as dropped, on both sides."""
    assert comm.produced == coordinator.produced
    return comm.produced == comm.pushed + comm.dropped and coordinator.pushed <= comm.produced


def test_messages_come_in_the_order_of_the_conversation(cfg: Any) -> None:
    tasks = [task_of('collect_at_random', task='warm', target=5), task_of(target=0, parts=2, newer_than=0)]
    coordinator = ScriptedCoordinator(tasks, {0: weights_of(cfg, 1)})
    connect(coordinator, cfg).run()
    assert coordinator.kinds == [
        *('Join', 'AskTask', 'Collected', 'Finished'),
        *('AskTask', 'AskWeights', 'Collected', 'Collected', 'Finished'),
        *('AskTask', 'Farewell'),
    ]
    assert [message.part for message, _ in coordinator.parts] == [0, 0, 1]
    assert [message.rows for message, _ in coordinator.parts] == [5, 6, 6]


def test_an_evaluation_is_reported_with_its_facts(cfg: Any) -> None:
    task = task_of('evaluate', target=0, newer_than=3)
    coordinator = ScriptedCoordinator([task], {3: weights_of(cfg, 5)})
    connect(coordinator, cfg).run()
    facts = coordinator.finished[0].facts
    assert facts['score'] == np.mean(facts['reward_raw'])
    assert (facts['version'], facts['train_iter'], facts['eval_flag']) == (3, 30, True)
    assert facts['step_count'] == sum(facts['reward_raw']) and facts['real_episode_count'] == 3


def test_a_task_waits_for_the_version_that_it_requires(cfg: Any) -> None:
    coordinator = ScriptedCoordinator([task_of(newer_than=4)], {3: weights_of(cfg, 1)})
    comm = connect(coordinator, cfg)
    comm.start()
    wait_until(lambda: coordinator.kinds.count('AskWeights') > 2)
    assert not coordinator.parts
    coordinator.weights[4] = weights_of(cfg, 2)
    assert comm.wait(PATIENCE)
    assert [message.version for message, _ in coordinator.parts] == [4]
    comm.close()


def test_a_task_ends_when_the_coordinator_has_enough(cfg: Any) -> None:
    coordinator = ScriptedCoordinator([task_of(parts=0)], {0: weights_of(cfg, 1)})

    def enough(message: Any, payload: Any) -> Reply | None:
        if message.part < 3:
            return None
        coordinator.pushed += 2
        return Reply(Taken(2, True, 0, {}))

    coordinator.on[Collected] = enough
    comm = connect(coordinator, cfg)
    comm.run()
    assert (comm.produced, comm.pushed, comm.dropped) == (24, 20, 4) and is_conserved(comm, coordinator)


def test_an_abandoned_task_ends_in_the_middle_of_a_rollout_and_the_next_one_starts_anew(cfg: Any) -> None:
    tasks = [task_of(task='endless', target=300_000), task_of(task='next', target=6)]
    coordinator = ScriptedCoordinator(tasks, {0: weights_of(cfg, 1)})
    comm = connect(coordinator, cfg)
    comm.start()
    wait_until(lambda: comm._collector.steps > 5)
    coordinator.orders = Orders(False, True, -1, 'another one has it')
    wait_until(lambda: coordinator.finished)
    coordinator.orders = NONE
    assert comm.wait(PATIENCE)
    first = coordinator.finished[0]
    assert (first.task, first.completed, first.reason) == ('endless', False, 'another one has it')
    if len(coordinator.parts):
        assert coordinator.parts[0][0].envstep > 6  # the abandoned steps were taken, too
    assert is_conserved(comm, coordinator)
    comm.close()


def test_close_in_the_middle_of_a_rollout_ends_with_a_farewell(cfg: Any) -> None:
    coordinator = ScriptedCoordinator([task_of(target=300_000)], {0: weights_of(cfg, 1)})
    comm = connect(coordinator, cfg)
    comm.start()
    wait_until(lambda: comm._collector.steps > 5)
    comm.close()
    comm.close()
    assert coordinator.kinds[-2:] == ['Finished', 'Farewell'] and not coordinator.finished[0].completed
    assert is_conserved(comm, coordinator) and comm.wait(0)


def test_a_coordinator_that_dies_is_named_after_the_timeout_and_its_rows_count_as_dropped(cfg: Any) -> None:
    coordinator = ScriptedCoordinator([task_of(parts=5)], {0: weights_of(cfg, 1)})

    def die(message: Any, payload: Any) -> Reply | None:
        if message.part == 2:
            coordinator.server.close()
        return None

    coordinator.on[Collected] = die
    comm = connect(coordinator, cfg, timeout=0.3)
    with pytest.raises(CoordinatorLostError, match='in_process'):
        comm.run()
    assert comm.produced == 24 and (comm.pushed, comm.dropped) == (18, 6)


def test_a_restarted_coordinator_is_joined_again(cfg: Any) -> None:
    tasks = [task_of(task='a', parts=3), task_of(task='b', parts=1)]
    coordinator = ScriptedCoordinator(tasks, {5: weights_of(cfg, 1)})

    def forget(message: Any, payload: Any) -> Reply | None:
        if message.task == 'a' and message.part == 1:
            coordinator.is_known = False
            coordinator.weights = {2: weights_of(cfg, 2)}
            return Reply(Refused('the coordinator does not know this task', '', False))
        return None

    coordinator.on[Collected] = forget
    comm = connect(coordinator, cfg)
    comm.run()
    assert coordinator.kinds.count('Join') == 2
    assert [message.version for message, _ in coordinator.parts] == [5, 2]
    assert (comm.produced, comm.pushed, comm.dropped) == (18, 12, 6)
    joins = [message.produced for message in coordinator.messages if isinstance(message, Join)]
    assert joins == [0, 12] and coordinator.produced == 18, 'a restarted coordinator is told of all rows'


def failing(comm: BaseCommCollector, monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> list[Exception]:
    """Lets requests with data fail by these errors in turn; returns those that are left."""
    transport, left = comm._connected(), list(errors)
    request = transport.request

    def fail(message: Any, payload: Any = None, timeout: Any = None) -> Reply:
        if payload is not None and left:
            raise left.pop()
        return request(message, payload, timeout)

    monkeypatch.setattr(transport, 'request', fail)
    return left


def test_data_that_can_never_be_sent_end_the_worker_at_once(
    cfg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = ScriptedCoordinator([task_of(parts=2)], {0: weights_of(cfg, 1)})
    comm = connect(coordinator, cfg)
    left = failing(comm, monkeypatch, PayloadError('not again'), PayloadError('the payload is too large'))
    with pytest.raises(PayloadError, match='too large'):
        comm.run()
    assert len(left) == 1 and (comm.produced, comm.pushed, comm.dropped) == (6, 0, 6)
    assert 'too large' in coordinator.finished[0].reason and is_conserved(comm, coordinator)


def test_an_error_of_an_env_is_told_and_raised(cfg: Any) -> None:
    coordinator = ScriptedCoordinator([task_of(parts=3)], {0: weights_of(cfg, 1)})
    comm = connect(coordinator, cfg)
    make = comm._collector._make_collector

    def failing_later(rank: int, incarnation: int) -> Any:
        parts = make(rank, incarnation)
        collect = parts.collector.collect

        def collect_once(*args: Any, **options: Any) -> Any:
            if coordinator.parts:
                raise ZeroDivisionError('in an env')
            return collect(*args, **options)

        parts.collector.collect = collect_once
        return parts

    comm._collector._make_collector = failing_later
    with pytest.raises(ZeroDivisionError):
        comm.run()
    (finished,) = coordinator.finished
    assert not finished.completed and finished.reason == 'ZeroDivisionError: in an env'
    assert 'in an env' in coordinator.messages[-1].reason and is_conserved(comm, coordinator)


def test_signs_of_life_report_progress_while_a_rollout_runs(cfg: Any) -> None:
    coordinator = ScriptedCoordinator([task_of(target=300_000)], {0: weights_of(cfg, 1)})
    seen: list[Any] = []
    coordinator.on[Beat] = lambda message, payload: seen.append(message)
    comm = connect(coordinator, cfg)
    comm.start()
    wait_until(lambda: len({beat.progress for beat in seen}) > 2)
    comm.close()
    assert 'task_1' in {beat.task for beat in seen}


def test_waiting_ends_when_the_worker_is_closed(cfg: Any) -> None:
    coordinator = ScriptedCoordinator()
    coordinator.on[AskTask] = lambda message, payload: Reply(Wait(1000.0, False, 'nothing to do'))
    comm = connect(coordinator, cfg)
    comm.start()
    wait_until(lambda: 'AskTask' in coordinator.kinds)
    comm.close()
    assert coordinator.kinds == ['Join', 'AskTask', 'Farewell']
