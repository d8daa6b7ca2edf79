"""The coordinator's bookkeeping: nothing is lost unnoticed, and workers may come, go and come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import differences

from rlframe._version import __version__
from rlframe.data import Batch
from rlframe.errors import NotJoinedError, RequestRefusedError, WorkerLostError
from rlframe.parallel.coordinator.assembly import CoordinatedRun, TrainingData, Version
from rlframe.parallel.coordinator.coordinator import Coordinator
from rlframe.parallel.coordinator.solo_commander import SoloCommander
from rlframe.parallel.coordinator.workers import AwakeClock, WorkerTable
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.answering import InProcessServer
from rlframe.run.progress import Progress
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.run.write_checkpoint import save_checkpoint
from rlframe.worker import create_buffer


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Notes(CoordinatedRun):
    """Ends after some env steps, and notes what it is told."""

    def __init__(self, max_env_step: int = 10**9) -> None:
        self.max_env_step = max_env_step
        self.evaluations: list[tuple[float, int, bool]] = []
        self.states: list[int] = []

    def is_spent(self, progress: Progress, updates_due: int) -> bool:
        return progress.envstep >= self.max_env_step

    def evaluated(self, facts: Mapping[str, Any], weights: Version | None, is_best: bool) -> None:
        self.evaluations.append((facts['score'], -1 if weights is None else weights.version, is_best))

    def take_state(self, state: Any, train_iter: int) -> None:
        self.states.append(train_iter)


class Experiment:
    """A coordinator in this process, and workers that are played by the test."""

    def __init__(self, on_policy: bool = False, stop_value: float | None = None, **options: Any) -> None:
        self.clock, self.run, self.server = (
            Clock(),
            Notes(options.pop('max_env_step', 10**9)),
            InProcessServer(),
        )
        buffer = None if on_policy else create_buffer({'type': 'naive', 'replay_buffer_size': 100})
        commander = SoloCommander(
            {'collector_task_space': 2, **options.pop('commander', {})}, eval_freq=4, stop_value=stop_value
        )
        self.coordinator = Coordinator(
            {'parallel': {'coordinator': {'worker_deadline': 10.0, 'role_deadline': 60.0, **options}}},
            server=self.server,
            commander=commander,
            data=TrainingData(buffer, batch_size=2, update_per_collect=2),
            run=self.run,
            fingerprint='same',
            clock=self.clock,
        )
        self.coordinator.start()

    def join(self, role: str, name: str, **other: Any) -> Callable[..., m.Message]:
        """Returns a function that sends a message and returns the reply's."""
        link = self.server.connect()
        given = {'version': __version__, 'fingerprint': 'same', 'pid': 7, 'host': 'here', **other}
        link.request(m.Join(role, name, **given))

        def send(message: m.Message, payload: Any = None) -> Any:
            reply = link.request(message, payload)
            return (
                (reply.message, reply.payload)
                if isinstance(reply.message, m.Data | m.Weights)
                else reply.message
            )

        return send


def half_trained(experiment: Experiment) -> tuple[Callable[..., Any], str]:
    """Lets a learner make and save two of four updates that are due."""
    learner, task = learning(experiment)
    collector = experiment.join('collector', 'c')
    evaluated(collector, 1.0)
    job = collector(m.AskTask())
    for number in range(2):
        collector(*part(job.task, number))
    learner(m.AskData(task, 0))
    learner(m.LearnInfo(task, 2, {}, 2))
    learner(m.PutState('checkpoint', 2), {'net': np.ones(1)})
    return learner, task


def rows(count: int, value: float = 0.0) -> Batch:
    return Batch(obs=np.full((count, 1), value, np.float32))


def part(task: str, number: int = 0, count: int = 4) -> tuple[m.Collected, Batch]:
    return m.Collected(task, number, count, count, 0, 0, {}), rows(count)


def learning(experiment: Experiment) -> tuple[Callable[..., Any], str]:
    """Lets a learner join, and publish weights."""
    learner = experiment.join('learner', 'l')
    task = learner(m.AskTask())
    assert task.kind == 'learn'
    learner(m.PutWeights('main', 0, 0), {'w': np.zeros(2)})
    return learner, task.task


def evaluated(send: Callable[..., Any], score: float, train_iter: int = 0) -> m.Message:
    task = send(m.AskTask())
    assert task.kind == 'evaluate'
    send(m.AskWeights('main', -1))
    return send(m.Finished(task.task, True, '', {'score': score, 'train_iter': train_iter}))


def test_data_go_to_the_buffer_and_as_batches_to_the_learner() -> None:
    experiment = Experiment()
    learner, task = learning(experiment)
    assert learner(m.AskData(task, 0)).seconds > 0, 'there are no data yet'
    collector = experiment.join('collector', 'c')
    evaluated(collector, 1.0)
    job = collector(m.AskTask())
    assert job.kind == 'collect'
    taken = collector(*part(job.task))
    assert (taken.pushed, taken.stop) == (4, False)
    message, data = learner(m.AskData(task, 0))
    assert message.rows == 2 and len(data) == 4, 'two batches of two'
    assert isinstance(learner(m.AskData(task, 0)), m.Wait), 'the replay ratio is that of serial mode'
    learner(m.LearnInfo(task, 2, {'loss': 1.0}, 2))
    assert experiment.coordinator.progress.train_iter == 2 and experiment.coordinator.data.due == 0


def test_collectors_wait_for_a_learner_that_is_behind() -> None:
    experiment = Experiment(max_updates_due=3)
    learner, task = learning(experiment)
    collector = experiment.join('collector', 'c')
    evaluated(collector, 1.0)
    job = collector(m.AskTask())
    stops = [collector(*part(job.task, number)).stop for number in range(2)]
    assert stops == [False, True]
    collector(m.Finished(job.task, True, '', {}))
    assert isinstance(collector(m.AskTask()), m.Wait)
    learner(m.AskData(task, 0))
    learner(m.LearnInfo(task, 2, {}, 2))
    assert isinstance(collector(m.AskTask()), m.Task)


def test_data_of_a_task_that_is_over_are_dropped_and_counted() -> None:
    experiment = Experiment()
    learning(experiment)
    collector = experiment.join('collector', 'c')
    taken = collector(*part('collect_9'))
    assert (taken.pushed, taken.stop) == (0, True)
    collector(m.Farewell('enough', 6))
    coordinator = experiment.coordinator
    assert (coordinator.received, coordinator.pushed, coordinator.dropped) == (6, 0, 6)


def test_best_evaluation_keeps_the_weights_that_it_used() -> None:
    experiment = Experiment(stop_value=5.0)
    learner, _ = learning(experiment)
    collector = experiment.join('collector', 'c')
    task = collector(m.AskTask())
    collector(m.AskWeights('main', -1))
    learner(m.PutWeights('main', 1, 4), {'w': np.ones(2)})
    collector(m.Finished(task.task, True, '', {'score': 2.0, 'train_iter': 0}))
    assert experiment.run.evaluations == [(2.0, 0, True)]


def test_solved_experiment_tells_everybody_to_stop() -> None:
    experiment = Experiment(stop_value=5.0)
    learner, task = learning(experiment)
    collector = experiment.join('collector', 'c')
    evaluated(collector, 1.0)
    job = collector(m.AskTask())
    collector(*part(job.task))
    learner(m.AskData(task, 0))
    learner(m.PutWeights('main', 1, 4), {'w': np.ones(2)})
    learner(m.LearnInfo(task, 4, {}, 2))
    assert collector(*part(job.task, 1)).stop, 'an evaluation is due'
    collector(m.Finished(job.task, True, '', {}))
    orders = evaluated(collector, 6.0, train_iter=4)
    assert orders.stop and experiment.coordinator.system_shutdown_flag
    beat = m.Beat('', 0)
    assert learner(beat).stop and learner(m.AskData(task, 4)).stop and collector(m.AskTask()).stop


def test_silent_worker_is_lost_and_its_task_given_again() -> None:
    experiment = Experiment()
    learning(experiment)
    first = experiment.join('collector', 'one')
    task = first(m.AskTask())
    experiment.clock.now = 9.0
    second = experiment.join('collector', 'two')
    experiment.clock.now = 11.0
    experiment.coordinator.check()
    assert second(m.AskTask()).kind == task.kind == 'evaluate'
    with pytest.raises(NotJoinedError):
        first(m.AskTask())
    assert 'collector one (pid 7 on here): no sign of life' in experiment.coordinator.workers.lost[-1]


def test_restarted_worker_takes_the_place_of_its_namesake_when_that_has_been_silent_for_the_deadline() -> (
    None
):
    experiment = Experiment()
    learning(experiment)
    before = experiment.join('collector', 'one')
    assert before(m.AskTask()).kind == 'evaluate'
    for _ in range(2):
        with pytest.raises(RequestRefusedError, match='unless it is silent for 10 s') as caught:
            experiment.join('collector', 'one')
        assert not caught.value.is_fatal, 'it may ask again'
        experiment.clock.now += 6.0
    experiment.coordinator.check()
    after = experiment.join('collector', 'one')
    (worker,) = experiment.coordinator.workers.by_id.values()
    assert (worker.rank, worker.incarnation) == (0, 1)
    learning(experiment)
    assert after(m.AskTask()).kind == 'evaluate'


def test_resumed_run_gives_no_worker_the_seeds_of_an_earlier_one() -> None:
    experiment, used = Experiment(), []
    for names in (('a', 'b'), ('a', 'c'), ('b', 'a', 'd')):
        for name in names:
            experiment.join('collector', name)
        workers = experiment.coordinator.workers.by_id.values()
        used += [(worker.rank, worker.incarnation) for worker in workers]
        state = experiment.coordinator.state_dict()
        experiment = Experiment()
        experiment.coordinator.load_state_dict(state)
    assert sorted(used) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (3, 0)]


def test_another_learner_continues_from_the_last_state() -> None:
    experiment = Experiment()
    learner, task = half_trained(experiment)
    learner(m.AskData(task, 2))  # and dies
    experiment.coordinator.lose('learner', 'l', 'it died')
    other = experiment.join('learner', 'l')
    assert other(m.AskTask()).kind == 'learn'
    message, state = other(m.AskWeights('main.state', -1))
    assert message.train_iter == 2 and state['net'] == 1
    coordinator = experiment.coordinator
    assert coordinator.progress.train_iter == 2 and coordinator.data.due == 2, 'its updates are due again'


def test_learner_is_asked_for_its_state_until_it_sends_it() -> None:
    experiment = Experiment()
    learner, _ = half_trained(experiment)
    beat = m.Beat('', 2)
    assert learner(beat).save == -1
    experiment.coordinator.save_at = 2
    assert learner(beat).save == 2
    learner(m.PutState('checkpoint', 2), {'net': np.ones(1)})
    assert learner(beat).save == -1 and experiment.run.states == [2, 2]


def test_collectors_that_join_get_work_and_those_that_leave_free_their_place() -> None:
    experiment = Experiment(commander={'collector_task_space': 1})
    learning(experiment)
    evaluated(experiment.join('collector', 'a'), 1.0)
    sends = [experiment.join('collector', name) for name in 'bcd']
    assert all(send(m.AskTask()).kind == 'collect' for send in sends)
    for send in sends:
        send(m.Farewell('enough', 0))
    assert experiment.coordinator.commander.collector_places == 1


def test_run_without_workers_ends_within_its_deadline_saying_who_was_lost() -> None:
    experiment = Experiment()
    learning(experiment)
    experiment.join('collector', 'c')
    experiment.clock.now = 30.0
    experiment.coordinator.check()
    experiment.clock.now = 95.0
    with pytest.raises(WorkerLostError, match=r'no learner for 6\d s; lost: learner l .*-m learner --join'):
        experiment.coordinator.check()


def test_a_role_whose_worker_is_on_its_way_has_no_deadline_until_it_has_come_and_gone() -> None:
    experiment = Experiment()
    coordinator = experiment.coordinator
    experiment.join('collector', 'c')
    coordinator.expect('learner', 'l'), coordinator.expect('collector', 'c')
    experiment.clock.now = 1000.0
    coordinator.check()
    learner = experiment.join('learner', 'l')
    coordinator.expect('learner', 'l')
    learner(m.Farewell('enough', 0))
    coordinator.check()
    experiment.clock.now = 1061.0
    with pytest.raises(WorkerLostError, match='no learner for 61 s'):
        coordinator.check()


def test_requests_that_do_not_fit_are_refused() -> None:
    experiment = Experiment()
    collector = experiment.join('collector', 'c')
    with pytest.raises(RequestRefusedError, match='learner that has a task'):
        collector(m.PutWeights('main', 3, 3), {'w': np.zeros(1)})
    with pytest.raises(RequestRefusedError, match='not expected'):
        collector(m.Wait(1.0, False, ''))


def test_a_stranger_is_refused_until_it_joins_also_under_the_id_of_another_worker() -> None:
    experiment = Experiment()
    experiment.join('collector', 'c')
    stranger = experiment.server.connect()
    for sender in ('', 'collector_1', 'collector_2'):
        stranger._worker = sender
        with pytest.raises(NotJoinedError, match='does not know this worker'):
            stranger.request(m.AskTask())
    assert stranger.request(m.Join('collector', 'd', __version__, 'same', 7, 'here')) is not None
    stranger.request(m.AskTask())


def test_failure_of_the_run_is_raised_by_check() -> None:
    experiment = Experiment()
    learning(experiment)
    collector = experiment.join('collector', 'c')
    experiment.run.evaluated = lambda *given: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    with pytest.raises(RequestRefusedError):
        evaluated(collector, 1.0)
    with pytest.raises(ZeroDivisionError):
        experiment.coordinator.check()


def test_restored_coordinator_continues() -> None:
    experiment = Experiment()
    half_trained(experiment)
    state, buffer = experiment.coordinator.state_dict(), experiment.coordinator.data.buffer.state_dict()
    other = Experiment()
    other.coordinator.load_state_dict(state)
    other.coordinator.data.buffer.load_state_dict(buffer)
    other.coordinator.progress.load_state_dict(experiment.coordinator.progress.state_dict())
    assert other.coordinator.situation()._replace(seconds=0, learn_info={}) == (
        experiment.coordinator.situation()._replace(seconds=0, learn_info={})
    )
    again = other.join('learner', 'l')
    task = again(m.AskTask())
    assert task.kind == 'learn' and len(again(m.AskData(task.task, 2))[1]) == 4
    assert not other.coordinator.commander.running.keys() - {task.task}, 'nobody has the old tasks'


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from(['ask', 'part', 'finish', 'fail', 'leave', 'die', 'learn'])
        ),
        max_size=60,
    )
)
def test_rows_are_pushed_or_counted_as_dropped_in_any_order_of_events(events: list[tuple[int, str]]) -> None:
    experiment = Experiment(max_updates_due=6)
    learner, learn_task = learning(experiment)
    sends: dict[int, Any] = {}
    tasks: dict[int, Any] = {}
    produced, gone = {0: 0, 1: 0, 2: 0}, 0
    for who, event in events:
        if who not in sends:
            sends[who] = experiment.join('collector', f'c{who}')
        send, task = sends[who], tasks.get(who)
        if event == 'ask' and task is None:
            got = send(m.AskTask())
            tasks[who] = got if isinstance(got, m.Task) else None
        elif event == 'part' and task is not None and task.kind == 'collect':
            produced[who] += 3
            send(*part(task.task, 0, 3))
        elif event in ('finish', 'fail') and task is not None:
            send(m.Finished(task.task, event == 'finish', '', {'score': 0.0, 'train_iter': 0}))
            tasks[who] = None
        elif event == 'leave':
            send(m.Farewell('', produced[who] + 2))  # two rows were not sent
            gone += produced[who] + 2
            produced[who], tasks[who] = 0, None
            del sends[who]
        elif event == 'die':
            gone += produced[who]
            produced[who], tasks[who] = 0, None
            experiment.coordinator.lose('collector', f'c{who}', 'it died')
            del sends[who]  # it joins again under its name
        elif event == 'learn':
            answer = learner(m.AskData(learn_task, 0))
            if isinstance(answer, tuple):
                learner(m.LearnInfo(learn_task, experiment.coordinator.progress.train_iter + 2, {}, 2))
    coordinator = experiment.coordinator
    assert coordinator.received == coordinator.pushed + coordinator.dropped == gone + sum(produced.values())
    assert coordinator.data.due == coordinator.data.owed - coordinator.data.learned >= 0
    assert {
        running.worker for running in coordinator.commander.running.values()
    } <= coordinator.workers.by_id.keys()


def test_rows_after_the_last_checkpoint_are_dropped_once_when_their_collector_joins_again() -> None:
    first, second = Experiment(), Experiment()
    learning(first)
    collector = first.join('collector', 'c')
    evaluated(collector, 1.0)
    task = collector(m.AskTask()).task
    collector(*part(task, 0, 3))
    saved = first.coordinator.state_dict()
    collector(*part(task, 1, 3))  # nobody but the collector knows of them after the kill

    coordinator = second.coordinator
    coordinator.load_state_dict(saved)
    again = second.join('collector', 'c', produced=8)  # of which two were not sent
    assert (coordinator.received, coordinator.pushed, coordinator.dropped) == (8, 3, 5)
    again(m.Farewell('', 8))
    second.join('collector', 'c')  # another process of this name
    assert (coordinator.received, coordinator.pushed, coordinator.dropped) == (8, 3, 5)


def test_a_collector_whose_env_hangs_is_lost_although_it_sends_signs_of_life() -> None:
    experiment = Experiment(stall_deadline=20.0, worker_deadline=15.0)
    learning(experiment)
    hanging, working = experiment.join('collector', 'hangs'), experiment.join('collector', 'works')
    tasks = [hanging(m.AskTask()).task]
    evaluated_by = hanging(m.AskWeights('main', -1))
    assert evaluated_by[0].version == 0
    for second in range(0, 30, 10):
        experiment.clock.now = float(second)
        hanging(m.Beat(tasks[0], 5))
        working(m.Beat('', 0))
        experiment.coordinator.check()
    assert experiment.coordinator.workers.by_id.keys() >= {'collector_1', 'collector_2'}
    experiment.clock.now = 21.0
    hanging(m.Beat(tasks[0], 5))
    experiment.coordinator.check()
    assert experiment.coordinator.workers.lost[-1:] == [
        'collector hangs (pid 7 on here): no step of an env for 20 s'
    ]
    assert working(m.AskTask()).kind == 'evaluate', 'its task is given to another one'
    assert experiment.coordinator.workers.lost_for('collector', 'hangs') == 0.0
    experiment.clock.now = 26.0
    assert experiment.coordinator.workers.lost_for('collector', 'hangs') == 5.0
    experiment.join('collector', 'hangs')
    assert experiment.coordinator.workers.lost_for('collector', 'hangs') == 0.0


@pytest.mark.parametrize('has_data', [True, False])
def test_a_learner_that_makes_no_update_of_data_that_it_has_is_lost(has_data: bool) -> None:
    experiment = Experiment(stall_deadline=5.0, worker_deadline=50.0)
    learner, task = half_trained(experiment)
    if has_data:
        learner(m.AskData(task, 2))
    learner(m.Beat(task, 2))
    experiment.clock.now = 6.0
    learner(m.Beat(task, 2))
    experiment.coordinator.check()
    lost = [text for text in experiment.coordinator.workers.lost if text.startswith('learner')]
    assert lost == (['learner l (pid 7 on here): no update for 5 s'] if has_data else [])


def test_the_deadline_of_a_worker_does_not_run_on_while_the_coordinator_is_frozen() -> None:
    clock = Clock()
    table = WorkerTable(10.0, AwakeClock(clock))
    worker = table.join(m.Join('collector', 'c', 'version', 'same', 7, 'here'))
    for seconds in (0.5, 60.0, 0.5, 9.0, 1000.0):  # a gap between any two looks
        clock.now += seconds
        assert not table.late(stall_deadline=10.0)
    for _ in range(10):
        clock.now += 1.0
        late = table.late(stall_deadline=10.0)
    assert late == [(worker, True)]


def test_a_spare_state_is_kept_for_the_next_learner_and_is_no_checkpoint() -> None:
    experiment = Experiment(state_interval=30.0, worker_deadline=100.0, role_deadline=1000.0)
    learner, task = half_trained(experiment)
    learner(m.AskData(task, 2))
    learner(m.LearnInfo(task, 4, {}, 2))
    beat = m.Beat(task, 4)
    experiment.clock.now = 29.0
    experiment.coordinator.check()
    assert learner(beat).save == -1
    experiment.clock.now = 31.0
    experiment.coordinator.check()
    assert learner(beat).save == 4
    learner(m.PutState('spare', 4), {'net': np.full(1, 4.0)})
    assert experiment.run.states == [2], 'only the first was for a checkpoint'
    experiment.clock.now = 62.0
    experiment.coordinator.check()
    assert learner(beat).save == -1, 'nothing was learned since'
    experiment.coordinator.lose('learner', 'l', 'killed by SIGKILL')
    assert experiment.coordinator.workers.lost[-1].endswith('killed by SIGKILL')
    other = experiment.join('learner', 'l')
    other(m.AskTask())
    message, state = other(m.AskWeights('main.state', -1))
    assert message.train_iter == 4 and state['net'] == 4.0
    assert experiment.coordinator.data.due == 0 and experiment.coordinator.progress.train_iter == 4
    assert 'main.state' not in experiment.coordinator.state_dict()['weights']


def test_fresh_data_survive_a_checkpoint(tmp_path: Path) -> None:
    experiment = Experiment(on_policy=True)
    learning(experiment)
    data = experiment.coordinator.data
    nested = Batch(obs=Batch(a=np.arange(3.0), b=np.ones((3, 2))), action=np.arange(3))
    payloads = [nested, {'data': nested, 'statistics': {'mean': np.zeros(2)}}, [[nested, nested], [nested]]]
    for payload in payloads:
        data.push(3, payload, 10)
    path = save_checkpoint(tmp_path / 'ckpt', {'coordinator': experiment.coordinator.state_dict()})
    state, _ = load_checkpoint(path)
    other = Experiment(on_policy=True)
    other.coordinator.load_state_dict(state['coordinator'])
    for payload in payloads:
        count, drawn = other.coordinator.data.draw(0)
        assert count == 1 and differences(plain(drawn), plain(payload)) == []
    assert other.coordinator.data.draw(0) == (0, None)


def plain(payload: Any) -> Any:
    """Batches as dicts, so that everything can be compared."""
    if isinstance(payload, list):
        return [plain(part) for part in payload]
    if isinstance(payload, Batch | dict):
        return {name: plain(value) for name, value in payload.items()}
    return payload
