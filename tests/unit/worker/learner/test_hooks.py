"""Hooks run at their position, in order of priority; shorthands, custom forms and registration all give the same hooks."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from error_texts import raises
from fakes import ScriptedPolicy

from rlframe.errors import ConfigError, HookError
from rlframe.registry import LEARNER_HOOK_REGISTRY
from rlframe.worker import (
    BaseLearner,
    LearnerHook,
    add_learner_hook,
    build_learner_hook_by_cfg,
    merge_hooks,
    register_learner_hook,
)

NO_HOOKS = {
    'load_ckpt_before_run': None,
    'log_show_after_iter': None,
    'save_ckpt_after_iter': None,
    'save_ckpt_after_run': None,
}


class Note(LearnerHook):
    """Writes its name, position and the iteration into ``notes``."""

    position = 'after_iter'

    def __init__(self, notes: list[Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.notes = notes

    def __call__(self, learner: BaseLearner) -> None:
        self.notes.append((self.name, self.position, learner.train_iter))


@pytest.fixture
def registry(monkeypatch: Any) -> Any:
    """Gives back what was registered during the test."""
    monkeypatch.setattr(LEARNER_HOOK_REGISTRY, '_classes', dict(LEARNER_HOOK_REGISTRY._classes))
    return LEARNER_HOOK_REGISTRY


def names(hooks: dict[str, list[LearnerHook]]) -> dict[str, list[str]]:
    return {position: [hook.name for hook in own] for position, own in hooks.items() if own}


def learner_with(*hooks: LearnerHook, updates: Any = None, **cfg: Any) -> BaseLearner:
    learner = BaseLearner({'hook': NO_HOOKS} | cfg, ScriptedPolicy(updates).learn_mode)
    for hook in hooks:
        learner.register_hook(hook)
    return learner


def test_order_is_by_priority_and_stable() -> None:
    cfg = {
        'save_ckpt_after_iter': 5,
        'mine': {'type': 'log_show', 'priority': 15},
        'log_show_after_iter': 7,
        'log_reduce_after_iter': True,
        'late': {'type': 'save_ckpt'},
    }
    assert names(build_learner_hook_by_cfg(cfg))['after_iter'] == [
        'log_reduce_after_iter',
        'mine',
        'save_ckpt_after_iter',
        'log_show_after_iter',
        'late',
    ]


def test_none_and_false_remove_a_default_hook() -> None:
    for key, nothing in zip(NO_HOOKS, (None, False, '', None), strict=True):
        hooks = BaseLearner({'hook': {key: nothing}}, ScriptedPolicy().learn_mode).hooks
        assert key not in [hook.name for own in hooks.values() for hook in own]
        assert sum(map(len, hooks.values())) == (3 if key == 'load_ckpt_before_run' else 2)


def test_custom_form_gives_name_position_priority_and_options() -> None:
    (hook,) = build_learner_hook_by_cfg(
        {'often': {'type': 'save_ckpt', 'position': 'before_iter', 'priority': 3, 'ext_args': {'freq': 7}}}
    )['before_iter']
    assert (hook.name, hook.priority, hook.freq) == ('often', 3, 7)
    (hook,) = build_learner_hook_by_cfg({'x': {'type': 'save_ckpt', 'name': 'y', 'freq': 9}})['after_iter']
    assert (hook.name, hook.freq) == ('y', 9)
    assert repr(hook) == 'y(after_iter, priority 20)'


def test_unknown_shorthands_types_positions_and_priorities_are_refused() -> None:
    with raises(HookError):
        build_learner_hook_by_cfg({'log_show_after_itr': 3})
    with raises(ConfigError):
        build_learner_hook_by_cfg({'x': {'type': 'log_shaw'}})
    with raises(HookError):
        Note([], position='after_itr')
    for priority in (-1, 1.5):
        with raises(HookError):
            Note([], 'x', priority)
    for bad in (
        {'log_show_after_iter': 0},
        {'log_show_after_iter': True},
        {'mine': {'freq': 3}},
        {'mine': 3},
    ):
        with raises(ConfigError):
            BaseLearner({'hook': bad})


def test_registering_works_as_decorator_and_as_function(registry: Any) -> None:
    @register_learner_hook('noted')
    class Noted(LearnerHook):
        position = 'before_run'

        def __call__(self, learner: BaseLearner) -> None: ...

    class Other(Noted):
        priority = 5

    assert register_learner_hook('other', Other) is Other
    hooks = build_learner_hook_by_cfg({'a': {'type': 'noted'}, 'b': {'type': 'other'}})
    assert [type(hook) for hook in hooks['before_run']] == [Other, Noted]
    for wrong in (3, dict):
        with raises(HookError):
            register_learner_hook('wrong', wrong)


def test_hooks_of_all_positions_run_around_every_iteration() -> None:
    notes: list[Any] = []
    hooks = [
        Note(notes, f'{position}{priority}', priority, position=position)
        for priority in (30, 10)
        for position in ('before_run', 'after_run', 'before_iter', 'after_iter')
    ]
    learner = learner_with(*hooks, train_iterations=2)
    learner.get_data = lambda size: {}
    learner.policy.set_attribute('batch_size', 4)
    learner.start()
    expected = [
        ('before_run', 0),
        ('before_iter', 0),
        ('after_iter', 1),
        ('before_iter', 1),
        ('after_iter', 2),
    ]
    expected += [('after_run', 2)]
    assert notes == [(f'{p}{n}', p, i) for p, i in expected for n in (10, 30)]


def test_several_updates_of_one_batch_have_hooks_and_counters_each() -> None:
    notes: list[Any] = []

    def updates(data: Any) -> Any:
        for i in range(3):
            yield lambda i=i: notes.append(('update', i)) or {'total_loss': float(i)}

    learner = learner_with(Note(notes, 'b', position='before_iter'), Note(notes, 'a'), updates=updates)
    assert [out['total_loss'] for out in learner.train({})] == [0.0, 1.0, 2.0]
    assert notes == [
        entry
        for i in range(3)
        for entry in (('b', 'before_iter', i), ('update', i), ('a', 'after_iter', i + 1))
    ]
    assert learner.train_iter == learner.last_iter == 3
    learner = learner_with(updates=[{'total_loss': 1.0}, {'total_loss': 2.0}])
    assert len(learner.train({})) == 2 and learner.train_iter == 2


def test_an_interval_in_env_steps_fires_once_its_multiple_is_reached_and_after_a_resume_too() -> None:
    notes: list[Any] = []
    hook = Note(notes, 'a', every='20 env steps')
    learner = learner_with(hook, Note(notes, 'b', position='before_iter', every='20 env steps'))
    for envstep in (8, 16, 24, 24, 72, 76):
        learner.train({}, envstep)
    assert notes == [
        (n, p, i) for i in (2, 4) for n, p, i in (('b', 'before_iter', i), ('a', 'after_iter', i + 1))
    ]
    again = learner_with(Note(notes, 'c', every='20 env steps'))
    again.load_hook_state(learner.hook_state())
    for envstep in (79, 80):
        again.train({}, envstep)
    assert notes[4:] == [('c', 'after_iter', 2)]


class Boom(Exception):
    """An exception of the user's own."""


class Fails(LearnerHook):
    position, priority = 'after_iter', 5

    def __call__(self, learner: BaseLearner) -> None:
        raise Boom('inside')


def test_an_exception_in_a_hook_keeps_its_type_and_names_hook_and_iteration() -> None:
    learner = learner_with(Fails('my_hook'))
    with pytest.raises(Boom, match='inside') as caught:
        learner.train({})
    assert caught.value.__notes__ == ['raised in the hook my_hook(after_iter, priority 5) at train_iter 1']
    assert 'in __call__' in ''.join(traceback.format_exception(caught.value))


def test_add_and_merge_keep_order() -> None:
    notes: list[Any] = []
    one, two = build_learner_hook_by_cfg({}), build_learner_hook_by_cfg({})
    add_learner_hook(one, Note(notes, 'a', 20))
    add_learner_hook(two, Note(notes, 'b', 20))
    add_learner_hook(two, Note(notes, 'c', 10))
    assert names(merge_hooks(one, two)) == {'after_iter': ['c', 'a', 'b']}
    assert names(one) == {'after_iter': ['a']}
    with raises(HookError):
        merge_hooks(one, {'after_iter': []})
