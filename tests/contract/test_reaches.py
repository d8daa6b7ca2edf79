"""Every option of every registered component says what it can reach, and a foreign value of one that does is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from rlframe import config
from rlframe.config.components import set_path
from rlframe.config.schema import ALL_COMPONENTS, BACKENDS, PARALLEL_FIELDS, ROLES, TOP
from rlframe.errors import ConfigError, UnsafeCheckpointError
from rlframe.registry import (
    LEARNER_HOOK_REGISTRY,
    MODEL_REGISTRY,
    PARALLEL_COMMANDER_REGISTRY,
    REGISTRIES,
    Registry,
)
from rlframe.utils.field import REACHES, Configurable, Field, Options

NAMES = re.compile(
    r'path|file|folder|dir|url|address|host|port|socket|module|import|load|name|type|_id$|function|callable|factory|command'
    r'|backend|config|kwargs|wrapper|env_var|runtime|program|shell|hook|device'
)
WORDS = re.compile(
    r'\b(paths?|files?|folders?|director|url|address|modules?|class|functions?|imports?\b|program|process|checkpoint|picture'
    r'|film|network address|socket|cluster|download|delete|command|actors? of|ray|compil|machine code)',
    re.IGNORECASE,
)
SCHEDULE = 'a schedule: numbers, and a name that a table has'
SHAPE = 'whole numbers, checked'
INTERVAL = 'a number, or a text that says a number and a unit'
REVIEWED = {
    'eval_freq': INTERVAL,
    'collect_print_freq': INTERVAL,
    'league.snapshot_freq': INTERVAL,
    'stall_timeout': 'a number',
    'exp_name': 'a name without slashes; the run folder is always in the working directory',
    'collect.collector.type': 'a component, which must come with rlframe',
    'collect.noise_sigma': SCHEDULE,
    'mix': 'numbers',
    'device': "checked against 'auto', 'cpu', 'cuda' and 'cuda:i'",
    'learn.alpha': "a number or 'auto'",
    'model.action_mask': 'lists of 0 and 1',
    'learn.clip_ratio': SCHEDULE,
    'learn.entropy_weight': SCHEDULE,
    'learn.learning_rate': SCHEDULE,
    'learn.learning_rate_actor': SCHEDULE,
    'learn.learning_rate_alpha': SCHEDULE,
    'learn.learning_rate_critic': SCHEDULE,
    'learn.learning_rate_encoder': SCHEDULE,
    'learn.learning_rate_fractions': SCHEDULE,
    'learn.learning_rate_inverse': SCHEDULE,
    'learn.learning_rate_vae': SCHEDULE,
    'other.eps': SCHEDULE,
    'info_columns': 'names of numbers in infos',
    'model.action_shape': SHAPE,
    'model.obs_shape': SHAPE,
    'model.conv_layers': SHAPE,
    'model.critic_hidden_size_list': SHAPE,
    'groups': 'words of a list, or numbers of agents',
    'model.agent_id': 'a bool',
    'model.critic_obs': 'the name of a part of observations',
    'model.encoder_hidden_size_list': SHAPE,
    'record': 'a list of bools',
    'monitor': 'nothing reads it',
    'thruput_controller.push_sample_rate_limit': 'nothing reads it',
    'info_metrics': 'names of numbers to log',
    'stop_value': 'a number that a score is compared to; of the evaluator "metric" a dict of them',
    'priority_IS_weight': 'a bool',
    'num_collectors': 'a number; the actors are those of backend, which reaches processes',
    'max_in_flight': 'a number',
    'num_cpus': 'a number',
    'num_gpus': 'a number',
    'collect_timeout': 'a number',
    'start_timeout': 'a number',
    'eval_timeout': 'a number',
    'max_weight_update_interval': 'a number',
    'max_actor_restarts': 'a number',
    'checkpoint.replay_buffer': 'one of four words',
    'compressor': 'it is ignored',
}
"""Options that look as if they reached something, and why they do not. Add one only after you have read what it does."""
BAIT: tuple[Any, ...] = (
    'payload:X',
    'payload:1',
    {'type': 'payload:X'},
    {'runtime_env': {'py_executable': 'touch X;python'}},
    ['payload:X'],
    '/tmp/elsewhere',
    True,
)
LEAGUE = 'parallel commander'
"""Kind of the commanders that ``commander`` names in parallel mode."""
KINDS: dict[str, Registry[Any]] = {**REGISTRIES, LEAGUE: PARALLEL_COMMANDER_REGISTRY}
PATHS = {part.name: part.path for part in ALL_COMPONENTS} | {'model': ('policy', 'model')}
PATHS[LEAGUE] = PATHS['commander']
COMPONENT_NAMES = [(kind, name) for kind in PATHS for name in KINDS[kind].names()]
BACKEND_NAMES = [(name, role) for name in REGISTRIES['backend'].names() for role in ROLES]


def leaves(options: Options, prefix: str = '') -> Iterator[tuple[str, Field]]:
    for name, option in options.items():
        if isinstance(option, Field):
            yield prefix + name, option
        else:
            yield from leaves(option, f'{prefix}{name}.')


def fields_of(kind: str, name: str) -> Options:
    cls: Any = KINDS[kind].get(name)
    return cls.config_fields() if issubclass(cls, Configurable) else {}


def all_fields() -> list[tuple[str, str, Field]]:
    """Returns where each option is from, its key and itself."""
    found = [('the run', key, field) for key, field in leaves(TOP)]
    found += [('parallel', key, field) for key, field in leaves(PARALLEL_FIELDS)]
    for kind, name in COMPONENT_NAMES:
        found += [(f'{kind} {name}', key, field) for key, field in leaves(fields_of(kind, name))]
    for name, role in BACKEND_NAMES:
        found += [(f'backend {name}', key, field) for key, field in leaves(backend_fields(name, role))]
    return found


def backend_fields(name: str, role: str) -> Options:
    cls: Any = REGISTRIES['backend'].get(name)
    return {'backend': BACKENDS[role], **cls.options_of(role)}


def pair(kind: str, name: str) -> dict[str, Any]:
    """Returns a config pair that chooses a component."""
    env_id = {'pettingzoo': 'classic.tictactoe_v3', 'atari': 'ALE/Pong-v5'}.get(name, 'CartPole-v1')
    main: dict[str, Any] = {'env': {'env_id': env_id}, 'policy': {}}
    create: dict[str, Any] = {'policy': {'type': 'dqn'}}
    if kind == 'model':
        main['policy']['model'] = {'type': name}
    elif kind == LEAGUE:
        create |= {'commander': {'type': name}, 'comm_learner': {'type': 'flask_fs'}}
    elif kind:
        create[kind] = {'type': name}
    return {'main_config': main, 'create_config': create}


def put(data: dict[str, Any], path: list[str], value: Any) -> None:
    set_path(data['main_config'], path, value)


def refused_keys(data: dict[str, Any]) -> set[str]:
    """Makes sure that a config is refused and returns the keys that reach something."""
    with pytest.raises(UnsafeCheckpointError):
        config.check_trust(data, 'here', trust=False)
    return {each.key for each in config.reaching_values(data)}


@pytest.mark.parametrize(('kind', 'name'), [('', ''), *COMPONENT_NAMES], ids=lambda word: word or 'the run')
def test_foreign_value_of_every_option_that_reaches_something_is_refused(kind: str, name: str) -> None:
    options = fields_of(kind, name) if kind else TOP
    path = PATHS[kind] if kind else ()
    marked = [key for key, field in leaves(options) if field.reaches]
    marked += [] if kind in ('', 'model') else ['import_names']
    by_itself = KINDS[kind].get(name).reaches if kind and fields_of(kind, name) else ''  # type: ignore[attr-defined]
    found = [(each.key, each.reaches) for each in config.reaching_values(pair(kind, name))]
    assert found == ([('.'.join((*path, 'type')), by_itself)] if by_itself else [])
    for bait in BAIT if marked else ():
        data = pair(kind, name)
        keys = {'.'.join((*path, key)) for key in marked}
        for key in keys:
            put(data, key.split('.'), bait)
        assert keys <= refused_keys(data), bait


def test_foreign_value_of_every_option_of_parallel_mode_that_reaches_something_is_refused() -> None:
    marked = [f'parallel.{key}' for key, field in leaves(PARALLEL_FIELDS) if field.reaches]
    assert {'parallel.coordinator.host', 'parallel.coordinator.transport'} <= {*marked}
    for bait in BAIT:
        data = pair('comm_learner', 'flask_fs')
        for key in marked:
            put(data, key.split('.'), bait)
        assert {*marked} <= refused_keys(data), bait


@pytest.mark.parametrize(('name', 'role'), BACKEND_NAMES)
def test_foreign_value_of_every_option_of_a_backend_is_refused_and_unknown_to_other_backends(
    name: str, role: str
) -> None:
    marked = [key for key, field in leaves(backend_fields(name, role)) if field.reaches and key != 'backend']
    keys = {'.'.join((*ROLES[role], key)) for key in marked}
    for bait in BAIT if marked else ():
        data = pair('', '')
        for key in keys:
            put(data, key.split('.'), bait)
        with pytest.raises(ConfigError) as caught:
            config.compile_config(data['main_config'], data['create_config'])
        unknown = {error.where for error in getattr(caught.value, 'errors', [caught.value])}
        assert keys <= unknown, bait
        put(data, [*ROLES[role], 'backend'], name)
        assert keys | {'.'.join((*ROLES[role], 'backend'))} <= refused_keys(data), bait


@pytest.mark.parametrize('role', ROLES)
def test_backend_that_does_not_come_with_rlframe_is_code(role: str) -> None:
    for name in ('payload', ['payload'], {'payload': 1}):
        data = pair('', '')
        put(data, [*ROLES[role], 'backend'], name)
        assert '.'.join((*ROLES[role], 'backend')) in refused_keys(data)


def test_components_that_start_programs_say_so() -> None:
    starters = {n for k, n in COMPONENT_NAMES if getattr(KINDS[k].get(n), 'reaches', '') == 'process'}
    assert starters == {'subprocess', 'async_subprocess'}


@pytest.mark.parametrize('kind', PATHS)
def test_component_that_does_not_come_with_rlframe_is_code(kind: str) -> None:
    for name in ('payload', ['payload'], {'payload': 1}):
        data = pair(kind, 'payload')
        if kind == 'model':
            data['main_config']['policy']['model']['type'] = name
        else:
            data['create_config']['commander' if kind == LEAGUE else kind]['type'] = name
        assert '.'.join((*PATHS[kind], 'type')) in refused_keys(data)


@pytest.mark.parametrize('name', [*LEARNER_HOOK_REGISTRY.names(), 'payload'])
def test_hooks_of_a_foreign_config_are_the_known_ones_with_their_own_options(name: str) -> None:
    for more in (
        {'load_path': 'x'},
        {'import_names': ['payload']},
        {'ext_args': {'load_path': 'x'}},
        {'exp_name': 'x'},
    ):
        data = pair('', '')
        hook = {'x': {'type': name, 'position': 'after_run', **more}}
        put(data, ['policy', 'learn', 'learner', 'hook'], hook)
        assert any(key.startswith('policy.learn.learner.hook') for key in refused_keys(data))
    if name in ('save_ckpt', 'log_show', 'log_reduce'):
        data = pair('', '')
        put(
            data,
            ['policy', 'learn', 'learner', 'hook'],
            {'x': {'type': name, 'position': 'after_iter', 'priority': 1}},
        )
        config.check_trust(data, 'here', trust=False)


def test_option_that_looks_as_if_it_reached_something_says_so_or_was_reviewed() -> None:
    """A new option fails here until somebody says what it reaches, or writes down why it reaches nothing."""
    forgotten = {}
    for where, key, field in all_fields():
        if field.reaches or field.choices or key in REVIEWED:
            continue
        looks = {
            'type': bool(set(field.types) & {object, dict, list, tuple, str}),
            'name': NAMES.search(key.rpartition('.')[2]) is not None,
            'doc': WORDS.search(field.doc) is not None,
        }
        if any(looks.values()):
            forgotten[f'{where}: {key}'] = [what for what, is_so in looks.items() if is_so]
    assert not forgotten


def test_review_names_only_options_that_there_are_and_that_are_not_marked() -> None:
    unmarked = {key for _, key, field in all_fields() if not field.reaches}
    assert set(REVIEWED) <= unmarked


def test_marks_are_of_the_four_kinds_and_their_defaults_reach_nothing() -> None:
    marked = [(key, field) for _, key, field in all_fields() if field.reaches]
    assert {field.reaches for _, field in marked} <= set(REACHES)
    for key, field in marked:
        assert field.reach_of(field.default) == '', key
        if field.harmless is not None:
            odd = (object(), [object()], {1: object()}, float('nan'), b'x', {'x': [object()]}, 'x' * 10**5)
            assert all(isinstance(field.harmless(value), bool) for value in odd), f'{key}: it raises nothing'
            assert not any(field.harmless(value) for value in (object(), [object()], {1: object()})), key


def test_models_and_hooks_declare_no_options_of_their_own() -> None:
    """Those of models are the policy's, those of hooks are listed beside them; else they had to be walked over as well."""
    kinds = (
        *map(MODEL_REGISTRY.get, MODEL_REGISTRY.names()),
        *map(LEARNER_HOOK_REGISTRY.get, LEARNER_HOOK_REGISTRY.names()),
    )
    assert not any(issubclass(cls, Configurable) for cls in kinds if cls.__module__.startswith('rlframe.'))
