"""Several learners of one coordinator."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from learner_team import Descent, Team, descending, lines, whole
from parallel_parts import PATIENCE

from rlframe.parallel.comm_learner import LearnerParts
from rlframe.parallel.transport.http import HTTPServer


def weight_of(tree: Any) -> float:
    return float(tree['model']['w'])


def assert_trained(team: Team, batches: list[Any]) -> None:
    """Makes sure that the last weights and the last state are those of training on all batches, each in one round."""
    assert [train_iter for train_iter, *_ in team.record.reports[-len(batches) :]] == [
        i + 1 for i in range(len(batches))
    ]
    train_iter, state = team.record.states[-1]
    assert train_iter == state['progress']['train_iter'] == len(batches)
    for tree in (team.record.reports[-1][1], state['policy']):
        assert weight_of(tree) == pytest.approx(whole(batches), rel=1e-5)


@pytest.mark.parametrize('server', [None, HTTPServer])
def test_with_gradient_descent_the_average_equals_training_on_whole_batches(server: Any) -> None:
    batches = lines(6, 13)
    team = Team(batches, 4, server() if server else None)
    reported: list[Any] = []
    report = team.coordinator.data.report

    def noted(updates: int, priorities: Any = None) -> None:
        reported.append((updates, priorities))
        report(updates, priorities)

    team.coordinator.data.report = noted  # type: ignore[method-assign]
    team.run()
    assert_trained(team, batches)
    for count, (_, weights, info) in enumerate(team.record.reports):
        assert weight_of(weights) == pytest.approx(whole(batches[: count + 1]), rel=1e-5)
        assert weights.keys() == {'model'} and 'loss' in info
    for (updates, priorities), batch in zip(reported, batches, strict=True):
        order = np.argsort(priorities['replay_buffer_idx'])
        assert updates == 1 and (priorities['priority'][order] == batch['x']).all()
    policy = team.record.states[-1][1]['policy']
    assert float(policy['target_model']['w']) == pytest.approx(whole(batches), rel=1e-5)
    assert not team.coordinator.commander.running and team.coordinator.data.due == 0


def test_train_iterations_are_those_of_the_learner_with_most_updates() -> None:
    team = Team(lines(3), 2)
    team.learners[1] = team.learner('other', descending(times=3))
    team.run()
    assert [train_iter for train_iter, *_ in team.record.reports] == [3, 6, 9]
    train_iter, state = team.record.states[-1]
    assert train_iter == state['progress']['train_iter'] == 9
    assert weight_of(state['policy']) == weight_of(team.record.reports[-1][1])


def test_rows_that_are_fewer_than_the_learners_go_to_some_of_them() -> None:
    batches = lines(3, 2)
    team = Team(batches, 3)
    team.run()
    assert_trained(team, batches)


# learners that come and go


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


def test_learners_that_are_all_stuck_begin_again() -> None:
    begun, release = [threading.Event(), threading.Event()], threading.Event()
    team = Team(lines(6), 2)
    team.learners = [team.learner(f'l{i}', hanging(begun[i], release, False)) for i in range(2)]
    workers = team.coordinator.workers
    with team:
        assert all(event.wait(PATIENCE) for event in begun)
        for worker in workers.by_id.values():
            worker.moved = -1e9
        team.coordinator.check()
        assert team.aggregator.task is None and len(workers.lost) == 1, 'the others owe nothing any longer'
        release.set()
        team.until(lambda: team.coordinator.reason and not workers.by_id)


@pytest.mark.parametrize('how', ['stuck', 'failed', 'left'])
def test_when_a_learner_is_lost_all_begin_again_from_the_last_state(how: str) -> None:
    begun, release = threading.Event(), threading.Event()
    batches = lines(6)
    limits: dict[str, Any] = {'stall_deadline': 0.4} if how == 'stuck' else {}
    team = Team(batches, 2, start_timeout=0.1, **limits)
    lost = team.learners[1] = team.learner('lost', hanging(begun, release, how == 'failed'))
    state = {'policy': Descent(start=5.0).state_dict(), 'progress': progress_of(9)}
    with team:
        assert begun.wait(PATIENCE)
        team.coordinator.keep_state(state, 9)
        if how == 'left':
            lost.stop()
            release.set()
        team.until(lambda: team.aggregator.task is None or 'lost' not in str(team.coordinator.workers.by_id))
        lost.stop()
        release.set()
        team.until(lambda: team.coordinator.reason and not team.coordinator.workers.by_id)
        if how == 'failed':
            with pytest.raises(KeyError):
                lost.wait(PATIENCE)
    iterations = [train_iter for train_iter, *_ in team.record.reports]
    assert iterations[:2] == [1, 2] and iterations[2:] == [*range(10, 10 + len(iterations) - 2)]
    rest = Descent(start=5.0)
    for batch in batches[-(len(iterations) - 2) :]:
        rest.forward(batch)
    assert weight_of(team.record.states[-1][1]['policy']) == pytest.approx(float(rest.weight), rel=1e-5)


def progress_of(train_iter: int) -> dict[str, Any]:
    return {**descending()(0, 0).learner.state_dict()['progress'], 'train_iter': train_iter}


def test_a_learner_that_joins_later_waits_until_all_begin_again() -> None:
    batches = lines(4)
    team = Team(batches[:2], 1)
    push = team.coordinator.data.push
    push(8, batches[2], 0)
    with team:
        team.until(lambda: team.record.reports)
        late = team.learner('late')
        team.learners.append(late)
        late.start()
        team.until(lambda: len(team.coordinator.workers.by_id) != 1)
        team.until(lambda: team.coordinator.reason and not team.coordinator.workers.by_id)
    assert late._parts is None or late.learner.train_iter == 0
    assert_trained(team, batches[:3])


def test_a_state_that_is_asked_for_is_that_of_the_first_with_the_average() -> None:
    team = Team(lines(6), 2)
    kept: list[tuple[int, Any]] = []
    team.coordinator.keep_state = lambda state, at: kept.append((at, state))  # type: ignore[method-assign]
    team.coordinator.request_state()
    team.run()
    at, state = kept[0]
    weights = {train_iter: tree for train_iter, tree, _ in team.record.reports}
    assert 0 < at == state['progress']['train_iter'] < 6
    assert weight_of(state['policy']) == weight_of(weights[at])


def test_a_run_that_is_shut_down_keeps_the_average_of_what_was_learned() -> None:
    begun, release = threading.Event(), threading.Event()
    team = Team(lines(6), 2)
    team.learners[1] = team.learner('slow', hanging(begun, release, False))
    with team:
        assert begun.wait(PATIENCE)
        team.coordinator.shut_down('enough')
        release.set()
        team.until(lambda: not team.coordinator.workers.by_id)
    train_iter, state = team.record.states[-1]
    assert train_iter == state['progress']['train_iter'] >= 3
    assert weight_of(state['policy']) == weight_of(team.record.reports[-1][1])
