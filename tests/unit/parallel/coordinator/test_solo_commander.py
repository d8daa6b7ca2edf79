"""SoloCommander: one policy; tests/law compares its schedule in lockstep with the serial pipeline's."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import ScriptedPolicy

from rlframe.errors import CheckpointStateError, ConfigError, MessageError
from rlframe.parallel.coordinator.base_parallel_commander import Situation
from rlframe.parallel.coordinator.solo_commander import SoloCommander
from rlframe.worker import create_parallel_commander

READY = Situation(version=0)


def solo(cfg: dict[str, Any] | None = None, **kwargs: Any) -> SoloCommander:
    """Returns a commander whose learner has its task."""
    commander = SoloCommander(cfg, **{'eval_freq': 10, **kwargs})
    commander.get_learner_task('l', Situation())
    return commander


def kind_of(commander: SoloCommander, situation: Situation) -> str | None:
    job = commander.get_collector_task('c', situation)
    return job.kind if job is not None else None


# the schedule


def test_no_collector_works_before_a_learner_has_its_task() -> None:
    commander = SoloCommander({})
    assert commander.get_collector_task('c', READY) is None
    assert commander.get_learner_task('l', Situation()) is not None
    assert commander.get_learner_task('m', Situation()) is None  # one policy has one learner
    assert commander.get_collector_task('c', Situation()) is None  # no weights yet
    assert commander.get_collector_task('c', READY) is not None


def test_in_lockstep_one_collector_works_at_a_time() -> None:
    commander = solo(dict(lockstep=True, collector_task_space=2))
    assert kind_of(commander, READY) == 'evaluate' and kind_of(commander, READY) is None


def test_evaluations_are_interleaved_and_end_an_open_task() -> None:
    commander = solo(dict(collector_task_space=2))
    first = commander.get_collector_task('c', READY)
    other = commander.get_collector_task('d', READY)
    assert first is not None and other is not None
    assert (first.kind, other.kind, other.parts) == ('evaluate', 'collect', 0)
    commander.finish_collector_task(first.task, {'score': 0.0})
    assert not commander.judge_collector_finish(other.task, {}, READY._replace(train_iter=9))
    later = READY._replace(train_iter=10)
    assert commander.judge_collector_finish(other.task, {}, later)
    commander.finish_collector_task(other.task, {})
    assert [kind_of(commander, later), kind_of(commander, later)] == ['evaluate', 'collect']


def test_the_last_evaluation_waits_for_the_last_update() -> None:
    commander = solo()
    assert kind_of(commander, READY) == 'evaluate'
    commander.finish_collector_task('evaluate_2', {'score': 0.0})
    owes = READY._replace(train_iter=12, spent=True, updates_due=3)
    assert kind_of(commander, owes) is None and not commander.is_complete(owes)
    assert not commander.judge_learner_finish('learn_1', {}, owes)
    done = owes._replace(train_iter=15, updates_due=0)
    assert commander.judge_learner_finish('learn_1', {}, done)
    assert kind_of(commander, done) == 'evaluate' and not commander.is_complete(done)
    commander.finish_collector_task('evaluate_3', {'score': 0.0})
    assert kind_of(commander, done) is None and commander.is_complete(done)


def test_an_interval_in_seconds_replaces_eval_freq() -> None:
    commander = solo(dict(eval_interval=5.0, collector_task_space=9))
    task = commander.get_collector_task('c', READY)
    assert task is not None and task.kind == 'evaluate'
    commander.finish_collector_task(task.task, {'score': 0.0})
    times = [(500, 4.9), (501, 5.0)]
    kinds = [kind_of(commander, READY._replace(train_iter=i, seconds=s)) for i, s in times]
    assert kinds == ['collect', 'evaluate']


def test_an_interval_in_env_steps_counts_those_that_arrived() -> None:
    commander = solo(dict(collector_task_space=9), eval_freq='50 env steps')
    task = commander.get_collector_task('c', READY)
    assert task is not None and task.kind == 'evaluate'
    commander.finish_collector_task(task.task, {'score': 0.0})
    twin = solo(eval_freq='50 env steps')
    kinds = [kind_of(commander, READY._replace(train_iter=i, envstep=n)) for i, n in ((99, 49), (100, 51))]
    assert kinds == ['collect', 'evaluate']
    commander.finish_collector_task('evaluate_4', {'score': 0.0})
    twin.load_state_dict(commander.state_dict())
    assert kind_of(twin, READY._replace(train_iter=199, envstep=100)) == 'collect'


def test_a_failed_evaluation_is_due_again() -> None:
    commander = solo()
    task = commander.get_collector_task('c', READY)
    assert task is not None
    commander.notify_fail_collector_task(task.task)
    again = commander.get_collector_task('c', READY._replace(train_iter=3))
    assert again is not None and again.kind == 'collect'  # as should_eval: first at 0, then every eval_freq
    commander.notify_fail_collector_task(again.task)
    assert kind_of(commander, READY._replace(train_iter=10)) == 'evaluate'


def test_random_data_that_arrived_are_not_collected_again() -> None:
    commander = solo(random_collect_size=8)
    assert commander.get_collector_task('c', Situation()) is None  # no weights yet
    task = commander.get_collector_task('c', READY)
    assert task is not None and (task.kind, task.target, task.parts) == ('collect_at_random', 8, 1)
    commander.notify_fail_collector_task(task.task)
    task = commander.get_collector_task('c', READY)
    assert task is not None and task.kind == 'collect_at_random'
    assert commander.judge_collector_finish(task.task, {}, READY)
    commander.notify_fail_collector_task(task.task)  # its worker was lost before it said that it had finished
    assert kind_of(commander, READY) == 'evaluate'


@pytest.mark.parametrize(
    ('stop_value', 'score', 'train_iter', 'stops'),
    [(1.0, 1.0, 5, True), (1.0, 1.0, 0, False), (1.0, 0.9, 5, False), (None, 9.0, 5, False)],
)
def test_a_mean_at_the_stop_value_ends_training_once_trained(
    stop_value: float | None, score: float, train_iter: int, stops: bool
) -> None:
    commander = solo(stop_value=stop_value)
    task = commander.get_collector_task('c', READY)
    assert task is not None
    assert commander.finish_collector_task(task.task, {'score': score, 'train_iter': train_iter}) is stops
    assert (commander.get_collector_task('c', READY) is None) is stops
    assert commander.judge_learner_finish('learn_1', {}, READY) is stops


def test_a_stop_is_never_taken_back() -> None:
    commander = solo(dict(collector_task_space=2), stop_value=1.0)
    evaluation, other = (commander.get_collector_task(name, READY) for name in 'cd')
    assert evaluation is not None and other is not None
    assert commander.finish_collector_task(evaluation.task, {'score': 1.0, 'train_iter': 1})
    assert commander.judge_collector_finish(other.task, {}, READY)
    assert commander.finish_collector_task(other.task, {})
    assert commander.stopped and commander.is_complete(READY)


def test_best_is_strictly_greater() -> None:
    commander, best = solo(), []
    for train_iter, score in enumerate((1.0, 1.0, 2.0, float('nan'), 0.0)):
        task = commander.get_collector_task('c', READY._replace(train_iter=10 * train_iter))
        assert task is not None and task.kind == 'evaluate'
        commander.finish_collector_task(task.task, {'score': score})
        best.append(commander.is_best)
    assert best == [True, False, True, False, False] and (commander.best, commander.latest) == (2.0, 0.0)


def test_settings_are_asked_of_the_policy_with_the_counters() -> None:
    commander = solo(policy=ScriptedPolicy(settings={'eps': 0.5}).command_mode)
    now = Situation(envstep=70, train_iter=5, version=1, learn_info={'learner_done': False})
    told = {'learner_step': 5, 'learner_done': False, 'envstep': 70}
    assert commander.settings(now) == {'eps': 0.5, 'told': told}
    job = commander.get_collector_task('c', now)
    assert job is not None and job.kind == 'collect' and job.settings == {'eps': 0.5, 'told': told}


def test_no_learner_begins_when_nothing_remains_to_be_learned() -> None:
    commander = solo()
    for task in [*commander.running]:
        commander.notify_fail_learner_task(task)
    spent = READY._replace(spent=True)
    assert commander.get_learner_task('m', spent) is None
    assert commander.get_learner_task('m', spent._replace(updates_due=1)) is not None


# errors


def test_an_evaluation_without_a_score_is_named_and_repeated() -> None:
    commander = solo()
    task = commander.get_collector_task('c', READY)
    assert task is not None
    with pytest.raises(MessageError, match=r'facts\.score.*a number'):
        commander.finish_collector_task(task.task, {'score': 'high'})
    assert task.task not in commander.running and kind_of(commander, READY) == 'evaluate'


@pytest.mark.parametrize(
    ('options', 'text'),
    [
        (dict(learner_task_space=2), 'learner_task_space.*one learner'),
        (dict(lockstep=True, eval_interval=5), 'eval_interval.*lockstep'),
        (dict(colector_task_space=2), 'colector_task_space.*Did you mean collector_task_space'),
        (
            dict(type='one_vs_one', league=dict(branch_probs=dict(pfsp=0, sp=0))),
            r'league\.branch_probs.*no opp',
        ),
        (dict(type='one_vs_one', league=dict(payoff=dict(decay=0))), r'league\.payoff\.decay'),
    ],
)
def test_a_bad_option_is_named_with_its_dotted_key(options: dict[str, Any], text: str) -> None:
    cfg = dict(policy=dict(other=dict(commander={'type': 'solo', **options})))
    with pytest.raises(ConfigError, match=rf'(?s)policy\.other\.commander\.{text}'):
        create_parallel_commander(cfg)


def test_the_config_gives_what_evaluations_depend_on() -> None:
    cfg = dict(
        seed=3,
        env=dict(stop_value=7.0),
        policy=dict(
            random_collect_size=4,
            eval=dict(evaluator=dict(eval_freq=2, stop_value=None)),
            other=dict(commander=dict(type='solo')),
        ),
    )
    commander = create_parallel_commander(cfg)
    assert isinstance(commander, SoloCommander) and commander.stop_value == 7.0
    assert create_parallel_commander(cfg, stop_value=1.0).stop_value == 1.0
    commander.get_learner_task('l', READY)
    task = commander.get_collector_task('c', READY)
    assert task is not None and (task.kind, task.target) == ('collect_at_random', 4)


@pytest.mark.parametrize('missing', ['evaluated_last', 'task_count'])
def test_a_damaged_state_is_named(missing: str) -> None:
    state = solo().state_dict()
    del state[missing]
    with pytest.raises(CheckpointStateError, match=missing):
        SoloCommander({}).load_state_dict(state)
