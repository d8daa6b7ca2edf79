"""Compiling configs: what is in the tree, what is refused, overrides, and what was read."""

from __future__ import annotations

import copy
import math
import pickle
import sys
import warnings
from typing import Any

import pytest
from easydict import EasyDict
from error_texts import raises

from rlframe.config import compile_config, read_config, split_config, unread_user_keys, write_total_config
from rlframe.config.compile import parse_value
from rlframe.errors import ConfigError, ConfigErrors, ConfigWarning
from rlframe.policy.dqn import DQNPolicy
from rlframe.registry import REGISTRIES
from rlframe.utils.field import Configurable, Field, ResolvedConfig


class OpenModel:
    """Declares nothing, so it takes what the user writes."""


class StrictModel(Configurable):
    config = dict(width=Field(32, range='[1, inf)'))


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, cls in (('open_model', OpenModel), ('strict_model', StrictModel)):
        monkeypatch.setitem(REGISTRIES['model']._classes, name, cls)


def compile_(
    main: dict[str, Any] | None = None, create: dict[str, Any] | None = None, **kwargs: Any
) -> ResolvedConfig:
    main = {'env': {}, **(main or {})}
    main['env'] = {'env_id': 'CartPole-v1', **main['env']} if isinstance(main['env'], dict) else main['env']
    return compile_config(main, {'policy': {'type': 'dqn'}, **(create or {})}, **kwargs)


def errors_of(
    main: dict[str, Any] | None = None, create: dict[str, Any] | None = None, **kwargs: Any
) -> list[ConfigError]:
    with pytest.raises(ConfigError) as caught:
        compile_(main, create, **kwargs)
    return caught.value.errors if isinstance(caught.value, ConfigErrors) else [caught.value]


def nested(key: str, value: Any) -> dict[str, Any]:
    for name in reversed(key.split('.')):
        value = {name: value}
    return value


def test_defaults_classes_and_forwarded_keys_are_in_one_tree() -> None:
    cfg = compile_({'env': {'stop_value': 475}, 'policy': {'learn': {'batch_size': 32}}})
    assert (cfg.env.type, cfg.env.manager.type, cfg.policy.type) == ('gym', 'base', 'dqn')
    assert cfg.policy.collect.collector.type == 'sample'
    assert cfg.policy.eval.evaluator.type == 'interaction'
    assert cfg.policy.learn.learner.type == 'base'
    assert cfg.policy.other.replay_buffer.type == 'advanced'
    assert cfg.policy.other.replay_buffer.import_names == []
    assert (cfg.policy.learn.batch_size, cfg.policy.learn.update_per_collect) == (32, 3)
    assert (cfg.policy.eval.evaluator.n_episode, cfg.policy.eval.evaluator.stop_value) == (10, 475.0)
    assert (cfg.seed, cfg.num_threads, cfg.tag_style) == (0, 1, 'sb3')
    assert cfg.max_env_step == cfg.max_train_iter == 10**10
    assert compile_({}, {'policy': {'type': 'ppo'}}).policy.other.replay_buffer is None


def test_the_pair_is_left_as_it_is() -> None:
    main, create = EasyDict(env=dict(env_id='X')), EasyDict(policy=dict(type='dqn_command'))
    before = copy.deepcopy((main, create))
    compile_config(main, create, overrides=['env.env_id=Y', 'collector.collect_print_freq=3'])
    assert (main, create) == before


def test_di_engine_pairs_load() -> None:
    main = {'policy': {'type': 'dqn', 'cfg_type': 'DQNPolicyDict'}, 'env': {'type': 'gym'}}
    create = {'policy': {'type': 'dqn_command'}, 'env': {'type': 'gym', 'import_names': []}}
    assert compile_(main, create).policy.type == 'dqn'
    assert compile_config({'policy': {'type': 'ppo'}, 'env': {'env_id': 'X'}}, {}).policy.type == 'ppo'


Mistake = tuple[str, tuple[str, ...], dict[str, Any]]
"""Where a mistake is, words that the error has, and what is given."""


def mistake(where: str, *words: str, **given: Any) -> Mistake:
    return where, words, given


def bad(key: str, value: Any, *words: str) -> Mistake:
    return mistake(key, key, *words, main=nested(key, value))


def override(text: str, where: str, *words: str) -> Mistake:
    return mistake(where, *words, main={'policy': {'learn': {'learning_rate': SCHEDULE}}}, overrides=[text])


SCHEDULE = {'type': 'linear', 'start': 1, 'end': 0, 'decay': 9}
IN_EPISODES = {'collector': {'type': 'episode', 'get_train_sample': True}}
LOOP: dict[str, Any] = {'a': 1}
LOOP['b'] = {'c': [LOOP]}
MISTAKES: list[Mistake] = [
    # values
    bad('policy.learn.learning_rate', {'start': 1}, 'linear|exp|cosine'),
    bad('exp_name', '.hidden', 'not start with a dot'),
    bad('exp_name', 'a\n', 'allowed characters'),
    bad('max_train_iter', 0, '[1, inf)'),
    bad('tag_style', 'tb', "'sb3', 'di'"),
    bad('import_names', [3], 'module names'),
    bad('policy.on_policy', True, 'False'),
    bad('policy.learn', 3, 'section'),
    bad('policy.other.eps', 3, 'float or dict in [0, 1]'),
    bad('env.manager', None, 'section'),
    # keys
    bad('env.eval_freq', 1, 'is not a known key', 'it belongs to policy.eval.evaluator.eval_freq'),
    bad('collector', 1, 'it belongs to policy.collect.collector'),
    bad('env.bachsize', 1, 'Did you mean policy.learn.batch_size?'),
    bad('exp_nme', 1, 'Did you mean exp_name?'),
    bad('qqq', 1, 'qqq is not a known key'),
    *(bad(f'env.kwargs.{name}', 1, 'reserved') for name in ('items', 'update', 'was_read')),
    mistake('env.wrappers[0].items', 'reserved', main={'env': {'wrappers': [{'type': 'm:C', 'items': 1}]}}),
    mistake('env.update', 'reserved', main={'env': {'update': 1}}),
    *(
        mistake(f'env.kwargs.{name}', repr(name), main={'env': {'kwargs': {name: 1}}})
        for name in (1, ('a',), '_read', '', 'a.b')
    ),
    mistake('env.kwargs.b...', '32 nested sections', main={'env': {'kwargs': LOOP}}),
    # classes
    mistake('policy.type', "'ppo'", "'dqn'", main={'policy': {'type': 'ppo'}}),
    mistake('policy.type', "'dqn', ", create={'policy': {}}),
    mistake('policy.type', create={'policy': {'type': 3}}),
    mistake('policy.type', create={'policy': {'type': ['dqn']}}),
    mistake('create_config.bufer', create={'bufer': {}}),
    mistake('create_config.replay_bufer', create={'replay_bufer': {'type': 'naive'}}),
    mistake(
        'create_config.replay_buffer',
        'replay_buffer_size',
        main=nested('policy.other.replay_buffer.replay_buffer_size', 500),
        create={'replay_buffer': None},
    ),
    # options beside others
    mistake(
        'policy.collect.n_episode',
        'n_sample set',
        main={'policy': {'collect': {'n_sample': None, 'n_episode': 4}}},
    ),
    mistake('policy.collect.n_sample', 'n_episode set', create=IN_EPISODES),
    mistake('policy.collect', 'exactly one', main=nested('policy.collect.n_episode', 4), create=IN_EPISODES),
    mistake(
        'policy.eval.evaluator.stop_value',
        'env.stop_value',
        main={'env': {'stop_value': 1}, 'policy': {'eval': {'evaluator': {'stop_value': 2}}}},
    ),
    # overrides
    *(
        override(text, '', repr(text), 'key=value')
        for text in ('', '=3', 'a..b=3', 'a b=3', 'policy.learn.=3')
    ),
    override('policy.learn.learning_rate.start.x=3', 'policy.learn.learning_rate.start'),
    override('policy.learn=3', 'policy.learn', 'section'),
    override('env.kwargs.items=3', 'env.kwargs.items', 'reserved'),
    override('env.kwargs={1: 2}', 'env.kwargs.1', 'bad key 1'),
    override(
        'collector.bakend=ray',
        'policy.collect.collector.bakend',
        'Did you mean policy.collect.collector.backend?',
    ),
]


@pytest.mark.parametrize(('where', 'words', 'given'), MISTAKES)
def test_a_mistake_is_named_by_its_key_with_what_is_right(
    where: str, words: tuple[str, ...], given: dict[str, Any]
) -> None:
    (error,) = errors_of(**given)
    assert error.where == where
    assert not [word for word in words if word not in str(error)], error


def test_missing_module_in_import_names_hides_no_further_mistake_and_adds_none() -> None:
    errors = errors_of({'seed': -1}, {'policy': {'type': 'mine', 'import_names': ['no_such_module_x']}})
    assert [error.where for error in errors] == ['policy.import_names', 'seed']
    assert 'no_such_module_x' in str(errors[0])


def test_all_mistakes_are_reported_together() -> None:
    main = {
        'seed': -1,
        'env': {'collector_env_num': 0, 'colector_env_num': 3},
        'policy': {'batch_size': 3, 'learn': {'learning_rate': 'x'}, 'other': {'replay_buffer': {'size': 3}}},
    }
    errors = errors_of(main, {'evaluator': {'type': 'interactoin'}}, overrides=['nonsense'])
    assert {error.where for error in errors} == {
        '',
        'policy.eval.evaluator.type',
        'seed',
        'env.collector_env_num',
        'env.colector_env_num',
        'policy.batch_size',
        'policy.learn.learning_rate',
        'policy.other.replay_buffer.size',
    }


@pytest.mark.parametrize('create', [{'replay_buffer': {'type': 'naive'}}, {'policy': {'type': 'ppo'}}])
def test_whole_episodes_go_only_where_they_can_be_sampled(create: dict[str, Any]) -> None:
    main = {'policy': {'collect': {'n_sample': None, 'n_episode': 4}}}
    create = create | {'collector': {'type': 'episode', 'get_train_sample': False}}
    (error,) = errors_of(main, create)
    assert error.where == 'policy.collect.collector.get_train_sample' and 'expected True' in str(error)
    create['collector']['get_train_sample'] = True
    assert compile_(main, create).policy.collect.n_episode == 4


@pytest.mark.parametrize(
    ('buffer', 'collector', 'key'),
    [
        ('episode', {'type': 'sample'}, 'type'),
        ('episode', {'type': 'episode', 'get_train_sample': True}, 'get_train_sample'),
        ('sequence', {'type': 'episode', 'get_train_sample': True}, 'get_train_sample'),
        ('sequence', {'type': 'sample', 'mark_episodes': False}, 'mark_episodes'),
        ('sequence', {'type': 'sample', 'mark_episodes': True}, None),
        ('sequence', {'type': 'episode', 'get_train_sample': False}, None),
        ('episode', {'type': 'episode', 'get_train_sample': False}, None),
    ],
)
def test_buffers_of_episodes_get_what_they_can_find_episodes_in(
    buffer: str, collector: dict[str, Any], key: str | None
) -> None:
    main = (
        {} if collector['type'] == 'sample' else {'policy': {'collect': {'n_sample': None, 'n_episode': 4}}}
    )
    create = {'replay_buffer': {'type': buffer}, 'collector': collector}
    if key is None:
        compile_(main, create)
        return
    (error,) = errors_of(main, create)
    assert error.where == f'policy.collect.collector.{key}' and f"replay buffer '{buffer}'" in str(error)
    if key == 'mark_episodes':
        compile_({'env': {'collector_env_num': 1}}, create)


@pytest.mark.parametrize('of_env', [None, 475.0, 0.9])
def test_a_score_on_data_has_a_stop_value_of_its_own(of_env: float | None) -> None:
    main = {'env': {'stop_value': of_env}}
    cfg = compile_(main, {'evaluator': {'type': 'metric', 'stop_value': 0.9}})
    for _ in range(2):
        assert cfg.policy.eval.evaluator.stop_value == 0.9 and cfg.env.stop_value == of_env
        cfg = compile_config(*split_config(cfg))
    cfg = compile_(main, {'evaluator': {'type': 'metric'}})
    assert cfg.policy.eval.evaluator.stop_value is None
    unread = unread_user_keys(cfg)
    assert ('env.stop_value' in unread) == (of_env is not None), 'nothing reads that of the env'


def test_a_run_of_one_round_warns_with_the_consequence() -> None:
    with pytest.warns(ConfigWarning, match='after one round'):
        compile_(
            {
                'max_env_step': 5,
                'policy': {'learn': {'batch_size': 8}},
                'env': {'n_evaluator_episode': 2, 'evaluator_env_num': 5},
            }
        )


def test_forwarded_keys_may_be_set_at_either_end_but_not_differently() -> None:
    cfg = compile_({'policy': {'eval': {'evaluator': {'n_episode': 3}}}})
    assert cfg.env.n_evaluator_episode == cfg.policy.eval.evaluator.n_episode == 3


OVERRIDES = [
    ('policy.learn.batch_size=128', 'policy.learn.batch_size', 128),
    ('policy.priority=true', 'policy.priority', True),
    ('policy.cuda=None', 'policy.cuda', None),
    ('env.env_id=Pong-v5', 'env.env_id', 'Pong-v5'),
    ('env_manager.max_restarts=1_000', 'env.manager.max_restarts', 1000),
    ('evaluator.eval_freq = 9', 'policy.eval.evaluator.eval_freq', 9),
    ('evaluator.n_episode=2', 'env.n_evaluator_episode', 2),
    ('env.kwargs={"a": 1}', 'env.kwargs', {'a': 1}),
    ('max_env_step=1e6', 'max_env_step', 1000000),
    ('env.kwargs.text=a=b', 'env.kwargs', {'text': 'a=b'}),
    ('policy.other.eps={"start": 0.5}', 'policy.other.eps.start', 0.5),
    ('env.stop_value=inf', 'env.stop_value', math.inf),
    (
        "env.wrappers=[dict(type='m:C', kwargs=dict(n=[1]))]",
        'env.wrappers',
        [{'type': 'm:C', 'kwargs': {'n': [1]}}],
    ),
    ('env.kwargs=dict(a=-1.5, b=(None, True))', 'env.kwargs', {'a': -1.5, 'b': (None, True)}),
]


@pytest.mark.parametrize(('text', 'key', 'value'), OVERRIDES)
def test_override(text: str, key: str, value: Any) -> None:
    found: Any = compile_({'policy': {'other': {'eps': {'end': 0.05}}}}, overrides=[text])
    assert found.policy.other.eps.end == 0.05
    for name in key.split('.'):
        found = found[name]
    assert found == value and type(found) in (type(value), ResolvedConfig)


def test_an_empty_dict_empties_an_option_and_leaves_the_type_of_a_section() -> None:
    own = {'kwargs': {'a': 1}, 'schedule': {'level': {'type': 'linear', 'start': 0, 'end': 1, 'decay': 9}}}
    found = compile_({'env': own}, overrides=['env.kwargs={}', 'env.schedule={}', 'policy={}'])
    assert (found.env.kwargs, found.env.schedule, found.policy.type) == ({}, {}, 'dqn')


@pytest.mark.parametrize(
    'text',
    [
        '[dict(a=open("x"))]',
        '[dict(**{})]',
        'x(dict(a=1))',
        '(lambda: [])()',
        '[' * 3000,
    ],
)
def test_text_that_is_no_literal_calls_nothing_and_says_how_a_list_is_written(text: str) -> None:
    (error,) = errors_of({}, overrides=[f'env.wrappers={text}'])
    assert error.where == 'env.wrappers' and error.got == text
    assert ('quotes for the shell' if '[dict' in text else 'expected list') in str(error)


@pytest.mark.parametrize('text', ['[a, b/c.npz]', "['a', 'b/c.npz']", '[ a,b/c.npz ]'])
def test_words_of_a_list_need_no_quotes(text: str) -> None:
    assert parse_value(text) == ['a', 'b/c.npz'] and parse_value('[x, true, 3]') == ['x', True, 3]


def test_arguments_win_over_everything() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ConfigWarning)
        cfg = compile_(
            {'seed': 1}, overrides=['seed=2'], seed=3, exp_name='e', max_env_step=4, max_train_iter=5
        )
    assert (cfg.seed, cfg.exp_name, cfg.max_env_step, cfg.max_train_iter) == (3, 'e', 4, 5)


def test_model_of_ones_own_brings_its_options_or_is_open() -> None:
    cfg = compile_({'policy': {'model': {'type': 'open_model', 'anything': [1], 'deep': {'x': 2}}}})
    own = {'type': 'open_model', 'import_names': [], 'anything': [1], 'deep': {'x': 2}, 'dueling': True}
    assert own.items() <= cfg.policy.model.items(), 'and the options of the policy, which reads them'
    cfg = compile_({'policy': {'model': {'type': 'strict_model'}}})
    assert (cfg.policy.model.type, cfg.policy.model.width) == ('strict_model', 32)
    (error,) = errors_of({'policy': {'model': {'type': 'strict_model', 'widht': 3}}})
    assert 'Did you mean policy.model.width?' in str(error)
    (error,) = errors_of({'policy': {'model': {'type': 'no_model', 'widht': 3}}})
    assert error.where == 'policy.model.type'


def test_a_policy_that_declares_nothing_takes_what_is_written_but_its_parts_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Undeclared: ...

    monkeypatch.setitem(REGISTRIES['policy']._classes, 'undeclared', Undeclared)
    main = {'policy': {'x': 1, 'learn': {'y': 2, 'learner': {'hook': {'x': {'type': 'log_show'}}}}}}
    cfg = compile_(main, {'policy': {'type': 'undeclared'}})
    assert (cfg.policy.x, cfg.policy.learn.y, cfg.policy.learn.learner.hook.x.type) == (1, 2, 'log_show')
    assert compile_config(*split_config(cfg)) == cfg
    main['policy']['learn']['learner']['hok'] = 1  # type: ignore[index]
    (error,) = errors_of(main, {'policy': {'type': 'undeclared'}})
    assert 'Did you mean policy.learn.learner.hook?' in str(error)


def test_a_policy_may_choose_the_default_class_and_options_of_its_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Episodic(DQNPolicy):
        config = dict(
            collect=dict(
                n_sample=None,
                n_episode=4,
                collector=dict(type='episode', get_train_sample=True, collect_print_freq=3),
            )
        )

    monkeypatch.setitem(REGISTRIES['policy']._classes, 'episodic', Episodic)
    cfg = compile_({}, {'policy': {'type': 'episodic'}})
    assert (cfg.policy.collect.collector.type, cfg.policy.collect.collector.collect_print_freq) == (
        'episode',
        3,
    )
    cfg = compile_(
        {'policy': {'collect': {'collector': {'type': 'sample'}, 'n_sample': 2, 'n_episode': None}}},
        {'policy': {'type': 'episodic'}},
    )
    assert (cfg.policy.collect.collector.type, cfg.policy.collect.collector.collect_print_freq) == (
        'sample',
        3,
    )


def test_unread_keys_are_those_that_the_user_set_and_nothing_read() -> None:
    main = {
        'exp_name': 'x',
        'env': {'stop_value': 3},
        'policy': {'nstep': 3, 'learn': {'batch_size': 32}, 'priority': False},
    }
    cfg = compile_(
        main,
        {'collector': {'type': 'sample'}},
        overrides=['env.kwargs.a=1', 'collector.collect_print_freq=5'],
    )
    assert unread_user_keys(cfg) == [
        'env.env_id',
        'env.kwargs',
        'env.stop_value',
        'policy.collect.collector.collect_print_freq',
        'policy.learn.batch_size',
        'policy.nstep',
    ]
    assert cfg.policy.learn.batch_size and cfg.policy.eval.evaluator.stop_value
    dict(**cfg.env)
    assert copy.deepcopy(cfg.policy.collect).collector.collect_print_freq == 5
    assert unread_user_keys(cfg) == ['policy.nstep']
    games = {
        'policy': {'collect': {'n_sample': None, 'n_episode': 8, 'collector': {'get_train_sample': True}}}
    }
    unread = unread_user_keys(compile_(games, {'policy': {'type': 'ppo'}, 'collector': {'type': 'episode'}}))
    assert 'policy.collect.n_episode' in unread and 'policy.collect.n_sample' not in unread, (
        'None asks for nothing'
    )
    split_config(cfg)
    assert unread_user_keys(pickle.loads(pickle.dumps(cfg)))[-1] == 'policy.nstep'


def test_split_and_total_config_compile_to_the_same(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, 'path', list(sys.path))
    main = {
        'seed': 2**32 - 1,
        'exp_name': 'b-1.x_',
        'tag_style': 'di',
        'env': {
            'env_id': 'a"\'\\',
            'kwargs': {'x': [None, {'c-d': 0.1, 'type': True}], 'type': {}},
            'wrappers': [{'type': 'm:C'}, 'm:D'],
            'stop_value': math.inf,
            'n_evaluator_episode': 99,
        },
        'policy': {
            'learn': {
                'learning_rate': {'type': 'exp', 'start': 1, 'end': 0, 'decay': 9},
                'learner': {'hook': {'log_show_after_iter': 5}},
            },
            'model': {'type': 'open_model', 'x': [[-1], {'bb': 1e-9}]},
            'collect': {'n_sample': 16},
        },
    }
    create = {
        'policy': {'type': 'ppo'},
        'env_manager': {'type': 'subprocess', 'step_timeout': 9},
        'collector': {'backend': 'ray', 'import_names': ['json']},
        'import_names': ['json', 'math'],
    }
    cfg = compile_config(main, create)
    assert compile_config(*split_config(cfg)) == cfg
    write_total_config(tmp_path, *split_config(cfg))
    for name in ('total_config.py', 'config.json'):
        assert compile_config(*read_config(tmp_path / name)) == cfg


def test_the_last_part_of_a_key_is_enough_if_one_option_has_it() -> None:
    cfg = compile_(overrides=['batch_size=7', 'policy.nstep=2', 'max_env_step=100'])
    assert (cfg.policy.learn.batch_size, cfg.policy.nstep, cfg.max_env_step) == (7, 2, 100)
    cfg = compile_(overrides={'n_evaluator_episode': 3, 'policy.type': 'iqn', 'num_quantiles': 5})
    assert (cfg.env.n_evaluator_episode, cfg.policy.model.num_quantiles) == (
        3,
        5,
    )  # which only the new policy has
    with raises(ConfigError):
        compile_(overrides=['type=ppo'])
    with raises(ConfigError):
        compile_(overrides=['batch_sise=7'])
