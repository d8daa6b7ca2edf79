"""What every registered parallel commander has to do, also those of modules named in ``RLFRAME_IMPORT``.

To check your own: ``RLFRAME_IMPORT=my_module,other_module pytest tests/contract/test_parallel_commander.py``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from error_texts import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.errors import InterfaceError, MessageError
from rlframe.parallel.coordinator.base_parallel_commander import Situation
from rlframe.parallel.transport.base import Envelope, decode, encode
from rlframe.parallel.transport.messages import Task
from rlframe.registry import PARALLEL_COMMANDER_REGISTRY, import_modules
from rlframe.worker import BaseParallelCommander, create_parallel_commander

import_modules([name for name in os.environ.get('RLFRAME_IMPORT', '').split(',') if name])
NAMES = PARALLEL_COMMANDER_REGISTRY.names()
FACTS = {
    'score': 0.5,
    'train_iter': 1,
    'game_result': [['wins', 'losses'], ['draws']],
}
"""Facts about any task."""
every = pytest.mark.parametrize('name', NAMES)

SPACES = {'collector_task_space': 2, 'learner_task_space': 1}
OPTIONS: dict[str, Any] = {
    'one_vs_one': {'league': {'snapshot_freq': 2, 'keep': 2, 'payoff': {'min_win_rate_games': 2}}}
}
"""Options with which much happens in few steps."""


def create(name: str, **kwargs: Any) -> BaseParallelCommander:
    cfg = dict(seed=5, policy=dict(other=dict(commander={'type': name, **SPACES, **OPTIONS.get(name, {})})))
    return create_parallel_commander(cfg, **{'eval_freq': 3, 'random_collect_size': 2, **kwargs})


class Play:
    """Plays a coordinator whose workers do anything in any order; it counts the tasks that it gave."""

    def __init__(self, commander: BaseParallelCommander) -> None:
        self.commander = commander
        self.open: dict[str, tuple[str, str]] = {}  # task: role and worker
        self.seen: set[str] = set()
        self.space = SPACES['collector_task_space']
        self.train_iter = 0

    @property
    def now(self) -> Situation:
        return Situation(envstep=8 * self.train_iter, train_iter=self.train_iter, version=self.train_iter)

    def of(self, role: str) -> list[str]:
        return [task for task, (own, _) in self.open.items() if own == role]

    def act(self, action: str, choice: int) -> Any:
        """Does something, if that is possible; returns the answer of the commander."""
        worker, commander = f'w{choice % 3}', self.commander
        if action in ('get_collector_task', 'get_learner_task'):
            job: Task | None = getattr(commander, action)(worker, self.now)
            if job is not None:
                assert job.task not in self.seen and len(job.policies) == len(job.active)
                sent = json.loads(json.dumps(encode(Envelope('', 0, job))))
                assert decode(sent).message == job
                self.seen.add(job.task)
                self.open[job.task] = ('learner' if 'learner' in action else 'collector', worker)
            return job
        if action == 'worker_left':
            own = {task for task, (_, holder) in self.open.items() if holder == worker}
            for task in own:
                getattr(commander, f'notify_fail_{self.open[task][0]}_task')(task)
            self.open = {task: entry for task, entry in self.open.items() if task not in own}
            return own
        if action == 'increase_collector_task_space':
            self.space += 1
            return commander.increase_collector_task_space()
        if action == 'decrease_collector_task_space':
            if not self.space:
                return None
            self.space -= 1
            return commander.decrease_collector_task_space()
        return self._end(action, choice)

    def _end(self, action: str, choice: int) -> Any:
        role = 'learner' if 'learner' in action else 'collector'
        tasks = self.of(role)
        if not tasks:
            return None
        task = tasks[choice % len(tasks)]
        if action == 'update_learner_info':
            self.train_iter += choice
            return self.commander.update_learner_info(task, {}, self.now)
        if action == 'judge_collector_finish':
            return self.commander.judge_collector_finish(task, FACTS, self.now)
        del self.open[task]
        method = getattr(self.commander, action)
        return method(task, FACTS) if action.startswith('finish') else method(task)

    def check(self) -> None:
        commander = self.commander
        assert set(commander.running) == set(self.open)
        assert len(self.of('learner')) <= SPACES['learner_task_space']
        assert commander.collector_places == max(self.space, len(self.of('collector')))
        assert {name for run in commander.running.values() for name in run.job.policies} <= {
            *commander.kept_policies,
            'random',
        }


ACTIONS = (
    'get_collector_task',
    'get_learner_task',
    'judge_collector_finish',
    'finish_collector_task',
    'finish_learner_task',
    'notify_fail_collector_task',
    'notify_fail_learner_task',
    'update_learner_info',
    'worker_left',
    'increase_collector_task_space',
    'decrease_collector_task_space',
)
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5)), max_size=60)


@every
@settings(max_examples=20, deadline=None)
@given(steps=STEPS)
def test_a_place_is_in_use_exactly_while_its_task_runs(name: str, steps: list[tuple[str, int]]) -> None:
    play = Play(create(name))
    for action, choice in steps:
        play.act(action, choice)
        play.check()
    for task, (role, _) in list(play.open.items()):
        getattr(play.commander, f'notify_fail_{role}_task')(task)
    assert not play.commander.running


@every
@settings(max_examples=20, deadline=None)
@given(before=STEPS, after=STEPS)
def test_a_restored_commander_continues_identically(
    name: str, before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    play = Play(create(name))
    for action, choice in before:
        if not action.endswith('task_space'):
            play.act(action, choice)
    restored = Play(create(name))
    state = json.loads(json.dumps(play.commander.state_dict()))
    restored.commander.load_state_dict(state)
    for worker in range(3):  # all workers join again
        play.act('worker_left', worker)
    restored.seen, restored.train_iter = set(play.seen), play.train_iter
    for action, choice in after:
        assert play.act(action, choice) == restored.act(action, choice)
        assert repr(play.commander.metrics()) == repr(restored.commander.metrics())
    assert repr(play.commander.state_dict()) == repr(restored.commander.state_dict())


@every
@pytest.mark.parametrize(
    'method', ['finish_collector_task', 'finish_learner_task', 'notify_fail_learner_task']
)
def test_a_task_ends_once(name: str, method: str) -> None:
    commander = create(name)
    learn = commander.get_learner_task('l', Situation(version=0))
    collect = commander.get_collector_task('c', Situation(version=0))
    assert learn is not None and collect is not None
    task = learn.task if 'learner' in method else collect.task
    args = (task, FACTS) if method.startswith('finish') else (task,)
    getattr(commander, method)(*args)
    with raises(MessageError):
        getattr(commander, method)(*args)


@pytest.fixture
def own() -> Iterator[None]:
    """Custom commanders that are forgotten afterwards."""
    yield
    for name in ('half', 'minimal'):
        PARALLEL_COMMANDER_REGISTRY._classes.pop(name, None)


def test_a_class_without_both_decisions_is_refused(own: None) -> None:
    class Half(BaseParallelCommander):
        def _next_learner_job(self, situation: Situation) -> Task | None:
            return None

    PARALLEL_COMMANDER_REGISTRY.register('half', Half)
    with raises(InterfaceError):
        create('half')


def test_two_decisions_make_a_commander(own: None) -> None:
    class Minimal(BaseParallelCommander):
        def _next_collector_job(self, situation: Situation) -> Task | None:
            return Task(self._name_task('collect'), 'collect', ['own'], [True], 'own')

        def _next_learner_job(self, situation: Situation) -> Task | None:
            return None

    PARALLEL_COMMANDER_REGISTRY.register('minimal', Minimal)
    commander = create('minimal')
    job = commander.get_collector_task('c', Situation())
    assert job is not None and job.task == 'collect_1' and commander.kept_policies == ['own']
    assert commander.settings(Situation()) == {}
    assert not commander.judge_collector_finish(job.task, {}, Situation())
    assert commander.judge_collector_finish(job.task, {}, Situation(spent=True))
    assert not commander.is_complete(Situation(spent=True))
    assert not commander.finish_collector_task(job.task, {})
    assert commander.is_complete(Situation(spent=True)) and not commander.is_complete(Situation())


@every
def test_the_options_say_what_they_do(name: str) -> None:
    cls: Any = PARALLEL_COMMANDER_REGISTRY.get(name)
    sections = [cls.config_fields()]
    while sections:
        for option in sections.pop().values():
            if isinstance(option, dict):
                sections.append(option)
            else:
                assert option.doc and not option.problem(option.default)
