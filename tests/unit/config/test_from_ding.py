"""Configs of DI-engine compile and train as they are, and nobody else's config is taken for one."""

from __future__ import annotations

import copy
import importlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from easydict import EasyDict
from error_texts import raises
from runs import ROOT

from rlframe.config import (
    compile_config,
    config_pair,
    from_ding,
    is_ding,
    read_config,
    split_config,
    unread_user_keys,
)
from rlframe.config.components import set_path
from rlframe.config.ding_table import RENAMED, UNUSED, defaults, renamed, type_here, unused
from rlframe.entry.__main__ import main
from rlframe.errors import ConfigError, ConfigErrors, ConfigWarning
from rlframe.pipeline import SerialPipeline
from rlframe.policy.parts.ding_names import DingNames
from rlframe.registry import POLICY_REGISTRY

FLAT: dict[str, Any] = json.loads((ROOT / 'tests' / 'data' / 'ding_configs.json').read_text(encoding='utf-8'))
"""Keys and values of configs of DI-engine 0.5.3, by their names."""
TRAINED = sorted(FLAT)
SMALL = [
    'env.collector_env_num=2',
    'env.evaluator_env_num=2',
    'env.n_evaluator_episode=2',
    'env.stop_value=1e9',
    'env_manager.type=base',
    'policy.model.encoder_hidden_size_list=[8]',
    'policy.learn.batch_size=8',
]
SMALL_OF = {
    'ppo': ['policy.collect.n_sample=16', 'policy.learn.epoch_per_collect=2'],
    'impala': ['policy.collect.n_sample=16', 'policy.learn.epoch_per_collect=2'],
    'r2d2': ['policy.collect.n_sample=64', 'replay_buffer.unroll_len=4'],
    'bc': ['policy.collect.collector.data=records.npz'],
}
EVAL = 'policy.eval.evaluator.eval_freq=2'


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        set_path(tree, key.split('.'), torch.nn.Tanh() if value == '<Tanh>' else copy.deepcopy(value))
    return tree


def pair_of(name: str) -> tuple[EasyDict, EasyDict]:
    return tuple(EasyDict(nested(FLAT[name][part])) for part in ('main_config', 'create_config'))  # type: ignore[return-value]


def small(name: str) -> list[str]:
    policy = FLAT[name]['create_config']['policy.type'].removesuffix('_command')
    words = SMALL + SMALL_OF.get(
        policy,
        ['policy.collect.n_sample=4', 'policy.learn.update_per_collect=2', 'policy.random_collect_size=16'],
    )
    if policy == 'bc':
        words.remove('env.collector_env_num=2')
    return words


def compiled(name: str, *overrides: str) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        cfg = compile_config(*pair_of(name), overrides=overrides)
    return cfg, [str(warning.message) for warning in caught if warning.category is ConfigWarning]


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(64, 4)).astype(np.float32)
    np.savez(tmp_path / 'records.npz', obs=obs, action=(obs[:, 2] > 0).astype(np.int64))
    return tmp_path


@pytest.mark.parametrize('name', TRAINED)
def test_config_of_di_engine_compiles_with_one_warning_that_names_every_key_without_a_meaning(
    name: str,
) -> None:
    cfg, texts = compiled(name)
    assert len(texts) == 1 and 'docs/from_ding.md' in texts[0]
    for key in FLAT[name]['main_config']:
        section: Any = cfg
        for part in key.split('.')[:-1]:
            section = section.get(part) if isinstance(section, dict) else None
        is_here = isinstance(section, dict) and key.rpartition('.')[2] in section
        above = [key.rsplit('.', n)[0] for n in range(key.count('.'))]
        assert is_here or any(part in texts[0] for part in above), key


@pytest.mark.parametrize(
    'name', ['cartpole_ppo', 'cartpole_c51', 'cartpole_r2d2', 'cartpole_bc', 'pendulum_ddpg']
)
def test_config_of_di_engine_trains_and_every_option_that_is_set_is_read(name: str, records: Path) -> None:
    cfg, _ = compiled(name, *small(name), 'max_train_iter=6')
    with SerialPipeline(cfg) as pipeline:
        before = [parameter.clone() for parameter in pipeline.policy.model.parameters()]
        pipeline.run()
        after = list(pipeline.policy.model.parameters())
        assert pipeline.progress.train_iter >= 6
    assert any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert not unread_user_keys(cfg)


@pytest.mark.parametrize('has_hindsight', [True, False])
def test_bitflip_of_di_engine_trains_with_and_without_hindsight(has_hindsight: bool) -> None:
    her = {'her_strategy': 'future', 'episode_size': 8, 'sample_per_episode': 2}
    main = {
        'env': {'n_bits': 4, 'collector_env_num': 2, 'n_evaluator_episode': 2, 'evaluator_env_num': 2},
        'policy': {
            'cuda': False,
            'model': {'obs_shape': 8, 'action_shape': 4, 'encoder_hidden_size_list': [8]},
            'learn': {'update_per_collect': 2, 'batch_size': 8},
            'collect': {
                'n_episode': 8,
                'unroll_len': 1,
                'collector': {'get_train_sample': not has_hindsight},
            },
            'eval': {'evaluator': {'eval_freq': 2}},
            'other': {
                'replay_buffer': {'replay_buffer_size': 400},
                **({'her': her} if has_hindsight else {}),
            },
        },
    }
    create = {
        'env': {'type': 'bitflip', 'import_names': ['dizoo.bitflip.envs.bitflip_env']},
        **{name: {'type': kind} for name, kind in (('policy', 'dqn'), ('env_manager', 'base'))},
        **{name: {'type': 'episode'} for name in ('replay_buffer', 'collector')},
    }
    with pytest.warns(ConfigWarning, match='counted in steps' if has_hindsight else 'single steps'):
        cfg = compile_config(main, create, max_train_iter=4)
    buffer = cfg.policy.other.replay_buffer
    assert (buffer.type, cfg.env.kwargs, cfg.policy.collect.n_sample) == ('naive', {'n_bits': 4}, None)
    expected = ('future', 1.0, 1600, 16) if has_hindsight else (None, 0.8, 400, 8)
    hindsight = buffer.hindsight
    found = hindsight.strategy, hindsight.share, buffer.replay_buffer_size, cfg.policy.learn.batch_size
    assert found == expected
    with SerialPipeline(cfg) as pipeline:
        pipeline.run()
        assert pipeline.progress.train_iter >= 4


EXPECTED: dict[str, dict[str, Any]] = {
    'cartpole_dqn': {
        'exp_name': 'cartpole_dqn',
        'env.env_id': 'CartPole-v0',
        'env.n_evaluator_episode': 5,
        'policy.other.eps.decay': 10000,
        'policy.other.replay_buffer.type': 'advanced',
        'policy.other.replay_buffer.replay_buffer_size': 20000,
    },
    'cartpole_ppo': {
        'policy.learn.value_norm': True,
        'policy.learn.value_clip': None,
        'policy.learn.advantage_norm': 'batch',
        'policy.model.share_encoder': True,
        'policy.model.activation': 'relu',
        'policy.model.log_std_init': 0.0,
        'policy.collect.n_sample': 256,
    },
    'cartpole_r2d2': {
        'policy.value_rescale': True,
        'policy.learn.target_theta': 0.001,
        'policy.learn.target_update_freq': None,
        'policy.learn.burn_in': 2,
        'policy.collect.n_sample': 32 * 42,
        'policy.collect.unroll_len': 1,
        'policy.collect.collector.mark_episodes': True,
        'policy.other.replay_buffer.type': 'sequence',
        'policy.other.replay_buffer.unroll_len': 40,
        'policy.other.replay_buffer.burn_in': 2,
        'policy.other.replay_buffer.priority': False,
    },
    'pendulum_sac': {
        'policy.learn.learning_rate_critic': 0.001,
        'policy.learn.alpha': 'auto',
        'policy.learn.init_alpha': 0.2,
        'policy.discount_factor': 0.99,
    },
    'pendulum_ddpg': {
        'policy.collect.noise_sigma': 0.1,
        'policy.other.replay_buffer.max_use': 16,
    },
    'pendulum_ppo': {'policy.model.activation': 'tanh', 'policy.model.log_std_init': -0.5},
    'lunarlander_dqn': {
        'env.env_id': 'LunarLander-v3',
        'env.manager.type': 'subprocess',
        'policy.cuda': None,
    },
}
"""What some options are here, of those that have another name, unit or default there."""


def at(cfg: Any, key: str) -> Any:
    for name in key.split('.'):
        cfg = cfg[name]
    return cfg


@pytest.mark.parametrize('name', EXPECTED)
def test_options_of_di_engine_have_their_meaning_here(name: str) -> None:
    cfg, _ = compiled(name)
    assert {key: at(cfg, key) for key in EXPECTED[name]} == EXPECTED[name]


def dqn(main: dict[str, Any] | None = None, create: dict[str, Any] | None = None) -> tuple[Any, Any]:
    """Returns a config of DI-engine with more keys."""
    pair = [nested(FLAT['cartpole_dqn'][part]) for part in ('main_config', 'create_config')]
    for base, more in zip(pair, (main, create), strict=True):
        for key, value in (more or {}).items():
            set_path(base, key.split('.'), value)
    return pair[0], pair[1]


def of_policy(policy: str, given: dict[str, Any] | None = None) -> Any:
    """Returns the compiled config of a policy of which DI-engine's config says nothing but ``given``."""
    whole = policy == 'bc' or POLICY_REGISTRY.get(type_here(policy)).default_config().collect.get('n_episode')
    base = {} if whole else {'policy.collect.n_sample': 16}
    pair = nested(base | (given or {})), nested({'env.type': 'pendulum', 'policy.type': policy})
    with pytest.warns(ConfigWarning, match='DI-engine'):
        return compile_config(*pair)


def test_translation_leaves_the_pair_as_it_is_and_lists_its_changes() -> None:
    pair = pair_of('pendulum_sac')
    before = copy.deepcopy(pair)
    first, second = from_ding(*pair), from_ding(*pair)
    assert pair == before and first == second
    changes = {change.key: change for change in first.changes}
    assert changes['policy.learn.learning_rate_q'].became == {'policy.learn.learning_rate_critic': 0.001}
    assert (
        changes['policy.learn.ignore_done'].became == {} and changes['policy.learn.ignore_done'].value is True
    )
    assert not is_ding(first.create_config)
    compile_config(first.main_config, first.create_config)  # without a warning


def test_di_engines_modules_are_not_imported_and_the_users_own_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ('ding', 'dizoo'):
        (tmp_path / f'{name}.py').write_text("raise AssertionError('imported')")
    (tmp_path / 'own_parts_of_ding_user.py').write_text('')
    names = ['dizoo.classic_control', 'ding.model', 'own_parts_of_ding_user']
    with pytest.warns(ConfigWarning):
        cfg = compile_config(*dqn({}, {'env.import_names': names, 'import_names': names}))
    assert cfg.env.import_names == cfg.import_names == names[2:]


def test_shipped_configs_are_not_taken_for_di_engines() -> None:
    files = sorted((ROOT / 'configs').glob('*.py'))
    assert len(files) > 5 and not [file for file in files if is_ding(read_config(file)[1])]


@pytest.mark.parametrize(
    'create',
    [
        {'env': None},
        {'policy': 'dqn'},
        {'commander': {'type': 'solo'}, 'comm_learner': {'type': 'flask_fs'}},
        {'collector': {'type': 'zergling'}},
        {'collector': {'type': ['marine']}},
    ],
)
def test_any_create_config_can_be_asked_whose_it_is(create: Any) -> None:
    assert is_ding(create) is (create == {'collector': {'type': 'zergling'}})


def test_env_that_is_not_known_has_to_be_given() -> None:
    pair = dqn({}, {'env.type': 'smac', 'env.import_names': ['dizoo.smac.envs.smac_env']})
    with raises(ConfigError) as caught:
        compile_config(*pair)
    assert caught.value.where == 'env.type' and 'env.env_id=' in str(caught.value)
    for overrides in (['env.env_id=CartPole-v1'], {'env.env_id': 'CartPole-v1'}):
        with pytest.warns(ConfigWarning):
            assert compile_config(*pair, overrides=overrides).env.env_id == 'CartPole-v1'  # type: ignore[arg-type]
    with pytest.warns(ConfigWarning, match="dizoo's wrappers"):
        named = dqn({'env.env_id': 'MiniGrid-Empty-8x8-v0'}, {'env.type': 'minigrid'})
        assert compile_config(*named).env.type == 'gym'


@pytest.mark.parametrize(
    ('main', 'create'),
    [
        ({}, {'policy.type': 'dreamer_command'}),
        ({}, {'policy.type': 'ppof'}),
        ({}, {'reward_model.type': 'valuedice'}),
        ({'world_model.train_freq': 1}, {}),
        ({'policy.action_space': 'hybrid'}, {}),
        ({'policy.multi_agent': True}, {}),
        ({'policy.collect.save_path': 'x', 'policy.collect.model_path': 'y'}, {}),
        ({'policy.collect.model_path': 'y'}, {}),
    ],
)
def test_what_would_learn_something_else_is_one_error(main: dict[str, Any], create: dict[str, Any]) -> None:
    with raises(ConfigError) as caught:
        compile_config(*dqn(main, create))
    assert not isinstance(caught.value, ConfigErrors)
    key = str(caught.value.where).removeprefix('create_config.')
    assert f'(`{key}`)' in (ROOT / 'docs' / 'from_ding.md').read_text(encoding='utf-8')
    assert key == 'policy.type' or 'docs/from_ding.md' in str(caught.value)


@pytest.mark.parametrize('name', ['cartpole_ppo', 'cartpole_r2d2', 'pendulum_ddpg'])
def test_values_that_mean_nothing_are_left_to_the_check_of_the_config(name: str) -> None:
    parts = ('main_config', 'create_config')
    pair = [nested(FLAT[name][part]) for part in parts]
    for part, tree in zip(parts, pair, strict=True):
        leaves = FLAT[name][part]
        for key in sorted({leaf.rsplit('.', n)[0] for leaf in leaves for n in range(leaf.count('.') + 1)}):
            *path, last = key.split('.')
            section = tree
            for step in path:
                section = section[step]
            right = section[last]
            for junk in (None, -1, float('nan'), 'x', ['x'], {'max': 'x'}, True):
                section[last] = junk
                try:
                    from_ding(*pair)
                except ConfigError as error:
                    assert str(error)
            section[last] = right


def test_policy_of_the_users_own_module_is_looked_for_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / 'module_without_dreamer.py').write_text('')
    pair = dqn({}, {'policy.type': 'dreamer', 'policy.import_names': ['module_without_dreamer']})
    with raises(ConfigError):
        compile_config(*pair)


MEANINGS = [
    (
        'impala',
        {
            'policy.unroll_len': 8,
            'policy.learn.batch_size': 16,
            'policy.learn.update_per_collect': 4,
            'policy.collect.n_sample': 32,
        },
        {'collect.n_sample': 256, 'learn.batch_size': 128, 'learn.epoch_per_collect': 2},
    ),
    (
        'impala',
        {'policy.learn.grad_clip_type': 'clip_norm', 'policy.learn.clip_value': 5.0},
        {'learn.grad_clip_norm': 5.0},
    ),
    (
        'impala',
        {'policy.random_collect_size': 10, 'policy.learn.lambda_': 0.7},
        {'random_collect_size': 0, 'collect.gae_lambda': 0.7},
    ),
    ('ppo', {'policy.collect.n_sample': 100, 'env.collector_env_num': 8}, {'collect.n_sample': 104}),
    (
        'r2d2',
        {'policy.collect.n_sample': 2, 'policy.burnin_step': 3, 'policy.learn_unroll_len': 7},
        {'collect.n_sample': 20},
    ),
    (
        'r2d2',
        {'policy.priority': False, 'policy.unroll_len': 8, 'policy.learn.target_update_freq': 50},
        {
            'collect.n_sample': 16 * (8 + 20),
            'other.replay_buffer.priority': False,
            'learn.target_update_freq': 50,
            'learn.target_theta': None,
        },
    ),
    (
        'td3',
        {'policy.learn': {'noise': True, 'noise_sigma': 0.3, 'noise_range': {'min': -0.4, 'max': 0.4}}},
        {'learn.target_noise': 0.3, 'learn.target_noise_clip': 0.4, 'random_collect_size': 25_000},
    ),
    ('td3', {'policy.learn.noise': False}, {'learn.target_noise': 0}),
    (
        'ddpg',
        {'policy.learn': {'noise': False, 'noise_range': {'min': -0.5, 'max': 0.5}}},
        {'learn.update_per_collect': 1},
    ),
    ('td3', {'policy.other.replay_buffer.replay_buffer_size': 500}, {'random_collect_size': 500}),
    ('sac', {'policy.learn': {'auto_alpha': False, 'alpha': 0.5}}, {'learn.alpha': 0.5}),
    ('discrete_sac', {}, {'type': 'sac_discrete'}),
    ('bc', {'policy.learn.optimizer': 'SGD'}, {'learn.optimizer': 'adam'}),
    ('bc', {'policy.learn.optimizer': 'RMSprop'}, {'learn.optimizer': 'rmsprop'}),
    ('ppo', {'policy.learn.grad_clip_value': 2.0}, {'learn.grad_clip_norm': 2.0}),
    (
        'ppo',
        {'policy.learn': {'grad_clip_type': 'clip_value', 'grad_clip_value': 1.0}},
        {'learn.grad_clip_norm': None},
    ),
    ('ppo', {'policy.recompute_adv': False, 'policy.learn.clip_ratio': 0.3}, {'learn.value_clip': 0.3}),
    ('a2c', {'policy.learn.grad_norm': 3.0}, {'learn.grad_clip_norm': 3.0}),
    (
        'ppo',
        {'policy.learn': {'learning_rate': 0.5, 'lr_scheduler': {'epoch_num': 10, 'min_lr_lambda': 0.1}}},
        {'learn.learning_rate': {'type': 'linear', 'start': 0.5, 'end': 0.05, 'decay': 160}},
    ),
    ('ppo', {'policy.eval.evaluator.eval_freq': -1}, {'eval.evaluator.eval_freq': 1}),
    ('ppo', {'policy.learn.lr_scheduler': None}, {'learn.learning_rate': 3e-4}),
    (
        'a2c',
        {'policy.model': {'obs_shape': [4, 84, 84], 'encoder_hidden_size_list': [1, 2, 3, 3, 5]}},
        {'model.conv_layers': [[1, 8, 4], [2, 4, 2], [3, 3, 1]], 'model.encoder_hidden_size_list': [5]},
    ),
    (
        'pg',
        {'policy.learn': {'batch_size': 64, 'grad_norm': 5}},
        {'learn.batch_size': None, 'learn.grad_clip_norm': 5},
    ),
    (
        'sqn',
        {'policy.learn': {'alpha': 0.3, 'learning_rate_q': 0.5, 'discount_factor': 0.9}},
        {'learn.alpha': 'auto', 'learn.init_alpha': 0.3, 'learn.learning_rate': 0.5, 'discount_factor': 0.9},
    ),
    (
        'pdqn',
        {
            'policy.learn': {'learning_rate_dis': 0.5, 'learning_rate_cont': 0.2, 'target_theta': 0.1},
            'policy.model': {'multi_pass': True, 'action_mask': [[1]]},
        },
        {
            'learn.learning_rate': 0.5,
            'learn.learning_rate_actor': 0.2,
            'learn.target_theta': 0.1,
            'learn.target_update_freq': None,
            'model.action_mask': [[1]],
        },
    ),
    (
        'fqf',
        {'policy.learn': {'learning_rate_fraction': 0.5, 'learning_rate_quantile': 0.2, 'ent_coef': 0.1}},
        {'learn.learning_rate_fractions': 0.5, 'learn.learning_rate': 0.2, 'learn.entropy_weight': 0.1},
    ),
    (
        'iqn',
        {'policy.model.obs_shape': [4, 84, 84]},
        {'model.conv_layers': [[128, 8, 4], [128, 4, 2], [64, 3, 1]], 'model.encoder_hidden_size_list': [64]},
    ),
]


@pytest.mark.parametrize(('policy', 'given', 'meant'), MEANINGS)
def test_what_is_counted_or_limited_otherwise_is_converted(
    policy: str, given: dict[str, Any], meant: dict[str, Any]
) -> None:
    cfg = of_policy(policy, given).policy
    assert {key: at(cfg, key) for key in meant} == meant


ENVS = [
    (
        'atari',
        {'env_id': 'PongNoFrameskip-v4', 'frame_stack': 4},
        {'env_id': 'ALE/Pong-v5', 'protocol': 'baselines', 'sticky_actions': None},
    ),
    ('atari', {'env_id': 'AsterixNoFrameskip-v0'}, {'env_id': 'ALE/Asterix-v5', 'sticky_actions': 0.25}),
    ('atari', {'env_id': 'ALE/Pong-v5', 'protocol': 'mnih2015'}, {'protocol': 'mnih2015'}),
    (
        'frozen_lake',
        {'env_id': 'FrozenLake-v1', 'desc': None, 'map_name': '4x4', 'is_slippery': False},
        {'kwargs': {'desc': None, 'map_name': '4x4', 'is_slippery': False}},
    ),
    ('carracing', {'env_id': 'CarRacing-v2', 'continuous': False}, {'env_id': 'CarRacing-v3'}),
    (
        'pendulum',
        {'continuous': False},
        {'wrappers': [{'type': 'gymnasium.wrappers:DiscretizeAction', 'bins': 11}]},
    ),
    ('pendulum', {'continuous': True, 'exp_name': 'x', 'env_wrapper': 'mujoco_default'}, {'wrappers': []}),
]


@pytest.mark.parametrize(('kind', 'given', 'meant'), ENVS)
def test_options_of_dizoos_envs_are_those_of_the_env_that_it_wraps(
    kind: str, given: dict[str, Any], meant: dict[str, Any]
) -> None:
    pair = dqn({f'env.{key}': value for key, value in given.items()}, {'env.type': kind})
    with pytest.warns(ConfigWarning, match='DI-engine'):
        cfg = compile_config(*pair)
    assert {key: cfg.env[key] for key in meant} == meant


def test_schedule_without_numbers_is_left_to_the_check_of_the_config() -> None:
    main, create = pair_of('cartpole_ppo')
    main.policy.learn.lr_scheduler = {'epoch_num': 'x', 'min_lr_lambda': 0}
    with raises(ConfigError):
        compile_config(main, create)


def test_replay_buffer_of_an_on_policy_policy_is_dropped() -> None:
    main, create = pair_of('cartpole_ppo')
    create.replay_buffer = {'type': 'naive'}
    with pytest.warns(ConfigWarning, match='not used: create_config.replay_buffer'):
        assert not compile_config(main, create).policy.other.get('replay_buffer')


def test_limits_of_envs_in_processes_are_kept_where_there_are_processes() -> None:
    manager = dict(step_timeout=5, reset_timeout=None, wait_num=2, step_wait_timeout=0.5)
    found = {}
    for kind in ('base', 'subprocess', 'async_subprocess'):
        main_config, create_config = dqn({'env.manager': dict(manager)}, {'env_manager.type': kind})
        with pytest.warns(ConfigWarning):
            found[kind] = compile_config(main_config, create_config).env.manager
    assert 'step_timeout' not in found['base']
    assert (found['subprocess'].step_timeout, found['subprocess'].reset_timeout) == (5, 120)
    assert (found['async_subprocess'].wait_num, found['async_subprocess'].wait_timeout) == (2, 0.5)


def test_import_of_di_engine_in_a_file_is_told_how_to_change(tmp_path: Path) -> None:
    file = tmp_path / 'config.py'
    file.write_text('from ding.entry import serial_pipeline_onpolicy\n')
    with raises(ConfigError) as caught:
        read_config(file)
    assert caught.value.where == f'{file}:1'


@pytest.mark.parametrize(
    'policy', [name for name in POLICY_REGISTRY.names() if POLICY_REGISTRY.get(name).ding != DingNames()]
)
def test_every_key_that_the_tables_set_is_an_option_and_none_that_they_drop(policy: str) -> None:
    """What an option is called can change, and the tables have to follow; a new option must not be dropped."""
    cfg = of_policy(policy)
    declared = {key for key, _ in leaves(cfg)}
    sections = {key.rpartition('.')[0] for key in declared}
    for key, value in defaults(policy).items():
        wanted = value if key != 'policy.collect.n_sample' else at(cfg, key)
        assert at(cfg, key) == wanted or key == 'policy.collect.n_sample', key
    of_all = {new for _, new, kinds in RENAMED if not kinds}
    for _, new in renamed(policy):
        assert new in declared | of_all, new
    dropped = {key for key, _ in unused(policy)}
    kept = {
        'policy.on_policy', 'policy.model.obs_shape', 'policy.model.action_shape', 'policy.other.replay_buffer',
        'policy.collect.unroll_len', 'policy.collect.n_sample', 'policy.collect.n_episode', 'env.collector_env_num',
    }  # fmt: skip
    assert not (dropped - kept) & (declared | sections)


def leaves(tree: Any, prefix: str = '') -> list[tuple[str, Any]]:
    found = []
    for name, value in dict.items(tree):
        found += leaves(value, f'{prefix}{name}.') if isinstance(value, dict) else [(prefix + name, value)]
    return found


def write(folder: Path, name: str) -> Path:
    """Writes a config as DI-engine's files are."""
    file = folder / f'{name}_config.py'
    parts = [nested({k: v for k, v in FLAT[name][part].items() if v != '<Tanh>'}) for part in FLAT[name]]
    file.write_text(
        f'from easydict import EasyDict\n\n{name}_config = EasyDict(dict({parts[0]!r}))\n'
        f'main_config = {name}_config\n'
        f'create_config = EasyDict({parts[1]!r})\n\n'
        "if __name__ == '__main__':\n    from ding.entry import serial_pipeline\n"
        '    serial_pipeline((main_config, create_config), seed=0)\n'
    )
    return file


@pytest.mark.slow
def test_file_of_di_engine_trains_and_resumes_on_the_command_line(
    records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(records, 'cartpole_dqn')
    assert main(['-c', str(file), '--train-iter', '6', EVAL, *small('cartpole_dqn')]) == 0
    said = capsys.readouterr().err
    assert said.count('rlframe: warning') == 1 and 'policy.load_path' in said
    assert not is_ding(read_config('cartpole_dqn_seed0/total_config.py')[1])
    assert main(['--resume', 'cartpole_dqn_seed0', '--train-iter', '8']) == 0
    assert 'DI-engine' not in capsys.readouterr().err
    again = ['--resume', 'cartpole_dqn_seed0', '-c', str(file), '--train-iter', '10', EVAL]
    assert main([*again, *small('cartpole_dqn')]) == 0


def test_every_key_that_is_translated_is_documented() -> None:
    text = ''.join((ROOT / 'docs' / name).read_text('utf-8') for name in ('from_ding.md', 'algorithms.md'))
    keys = {key for key, *_ in (*RENAMED, *UNUSED)}
    for name in POLICY_REGISTRY.names():
        keys |= {key for key, _ in (*renamed(name), *unused(name))}
    assert not [key for key in sorted(keys) if f'`{key}`' not in text]


def test_configs_of_a_folder_are_counted_and_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / 'docs'))
    count = importlib.import_module('count_ding_configs')
    (folder := tmp_path / 'dizoo' / 'config').mkdir(parents=True)
    for name in ('cartpole_dqn', 'cartpole_ppo', 'cartpole_bc', 'cartpole_impala'):
        write(folder, name)
    again = (folder / 'cartpole_dqn_config.py').read_text()
    (folder / 'her.py').write_text(f'{again}\ncreate_config.reward_model = dict(type="her")\n')
    (folder / 'unread.py').write_text('import ding\ncreate_config = 0\n')
    assert count.main([str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert '| `dqn` | 2 | 1 |' in out and '| all | 5 | 4 |' in out and 'reward model does not exist' in out
    assert 'not read:' in err and 'unread.py' in err
    monkeypatch.chdir(tmp_path)
    assert count.train(folder / 'cartpole_dqn_config.py', 80, 60, True)[0] == count.TRAINS
    assert count.train(folder / 'cartpole_bc_config.py', 8, 60, False)[0] == count.TRAINS


SYSTEM = nested(FLAT['cartpole_dqn_parallel']['system_config'])


def parallel_pair(**system: Any) -> tuple[Any, Any]:
    main, create = pair_of('cartpole_dqn_parallel')
    main.system_config = {**SYSTEM, **system}
    return main, create


def in_parallel(main: Any, create: Any) -> tuple[Any, str]:
    with pytest.warns(ConfigWarning) as caught:
        cfg = compile_config(main, create, parallel=True)
    (text,) = [str(warning.message) for warning in caught]
    return cfg, text


def test_config_of_the_parallel_mode_compiles_to_rlframes_parallel_mode() -> None:
    cfg, text = in_parallel(*parallel_pair())
    parallel, commander = cfg.parallel, cfg.policy.other.commander
    assert (parallel.collector_num, cfg.policy.learn.num_learners) == (2, 1)
    assert (parallel.collector.type, parallel.collector.update_policy_second) == ('zergling', 3.0)
    assert (parallel.comm_learner.type, parallel.comm_learner.send_policy_freq) == ('flask_fs', 1)
    assert (parallel.comm_collector.type, parallel.coordinator.port) == ('flask_fs', None)
    assert (commander.type, commander.collector_task_space, commander.learner_task_space) == ('solo', 2, 1)
    assert (commander.eval_interval, cfg.env.n_evaluator_episode) == (5.0, 5)
    assert cfg.policy.collect.collector.type == 'sample' and cfg.policy.collect.collector.backend == 'local'
    assert not is_ding(split_config(cfg)[1], split_config(cfg)[0])
    for words in (
        'system_config.path_data (arrays travel',
        "create_config.parallel_collector.type='zergling', create_config.collector.type='sample'",
        'system_config.learner_gpu_num (policy.device',
        'system_config.path_policy (weights travel',
    ):
        assert words in text, text
    assert 'commander.eval_interval' not in text


def test_system_config_is_dropped_with_a_note_where_ray_actors_collect() -> None:
    with pytest.warns(ConfigWarning, match='system_config.path_data, system_config.path_policy'):
        cfg = compile_config(*parallel_pair())
    collector = cfg.policy.collect.collector
    assert (collector.backend, collector.num_collectors) == ('ray', 2) and 'parallel' not in cfg


def test_addresses_in_a_system_config_are_those_of_the_coordinator() -> None:
    worker = {'host': 'auto', 'port': [1, 2], 'path_data': './x'}
    coordinator = {
        'host': 'auto',
        'port': 7011,
        'operator_server': {'system_addr': 'https://k8s'},
        'learner': {'learner0': ['learner0', '10.0.0.1', 99]},
        'collector_task_timeout': 30,
        'odd': 1,
    }
    cfg, text = in_parallel(*parallel_pair(coordinator=coordinator, learner0=worker, collector0=worker))
    assert (cfg.parallel.coordinator.host, cfg.parallel.coordinator.port) == ('127.0.0.1', 7011)
    for words in (
        'system_config.coordinator.host (chosen when the run starts)',
        'system_config.coordinator.operator_server.system_addr (there is no Kubernetes operator',
        'system_config.coordinator.learner.learner0, system_config.learner0.host, ',
        'system_config.coordinator.collector_task_timeout (parallel.coordinator.stall_deadline)',
        'system_config.coordinator.odd (no counterpart)',
    ):
        assert words in text, text


def test_league_of_di_engine_keeps_the_options_that_this_one_has() -> None:
    league = {
        'player_category': ['default'],
        'path_policy': './p',
        'naive_sp_player': {
            'one_phase_step': 7,
            'branch_probs': {'pfsp': 0.3, 'sp': 0.6},
            'strong_win_rate': 0.8,
        },
        'active_players': {'naive_sp_player': 1},
        'payoff': {'type': 'battle', 'decay': 0.9, 'min_win_rate_games': 4},
    }
    main, create = parallel_pair()
    create.collector.type, create.commander.type = 'marine', 'one_vs_one'
    main.policy.other.commander.league = league
    cfg, text = in_parallel(main, create)
    found = cfg.policy.other.commander.league
    assert (found.snapshot_freq, found.strong_win_rate) == (7, 0.8)
    assert dict(found.branch_probs) == {'pfsp': 0.3, 'sp': 0.6}
    assert dict(found.payoff) == {'decay': 0.9, 'min_win_rate_games': 4}
    assert cfg.parallel.collector.type == 'marine' and cfg.policy.collect.collector.type == 'sample_1v1'
    assert cfg.policy.eval.evaluator.type == 'battle_interaction' and 'league.active_players' in text


def test_file_of_the_parallel_mode_is_read_with_its_third_part(tmp_path: Path) -> None:
    parts = {
        name: nested(FLAT['cartpole_dqn_parallel'][name])
        for name in ('main_config', 'create_config', 'system_config')
    }
    file = tmp_path / 'config.py'
    file.write_text('\n'.join(f'{name} = {part!r}' for name, part in parts.items()))
    main, create = read_config(file)
    assert main.pop('system_config') == SYSTEM and main == parts['main_config']
    again = config_pair([parts['main_config'], parts['create_config'], parts['system_config']])
    assert again == (parts['main_config'] | {'system_config': SYSTEM}, parts['create_config'])
    for bad in ('3', '{}\nmain_config["system_config"] = {}'):
        file.write_text(
            f'main_config = {parts["main_config"]!r}\ncreate_config = {create!r}\nsystem_config = {bad}\n'
        )
        with raises(ConfigError):
            read_config(file)


def test_offline_configs_read_recorded_data_without_what_collection_needs() -> None:
    given = {
        'policy.collect.data_path': 'demos.npz',
        'policy.collect.data_type': 'hdf5',
        'policy.random_collect_size': 10_000,
        'policy.other.replay_buffer.replay_buffer_size': 2_000_000,
        'policy.learn.train_epoch': 30_000,
        'policy.learn.min_q_weight': 5.0,
    }
    cfg = of_policy('cql', given)
    assert cfg.policy.collect.collector.data == 'demos.npz' and cfg.policy.collect.n_sample is None
    assert cfg.policy.learn.conservative_weight == 5.0 and cfg.policy.other.replay_buffer is None
    assert (
        of_policy('edac', {'policy.learn.data_path': 'demos.npz'}).policy.collect.collector.type == 'dataset'
    )
    assert of_policy('discrete_cql', {'policy.nstep': 3, 'env.env_id': 'CartPole-v1'}).policy.nstep == 1
    create = {'env.type': 'd4rl', 'env.import_names': ['dizoo.d4rl.envs.d4rl_env'], 'policy.type': 'td3_bc'}
    d4rl = nested({'env.env_id': 'hopper-medium-v2'}), nested(create)
    with pytest.warns(ConfigWarning, match='the env of these data'):
        cfg = compile_config(*d4rl)
    assert cfg.env.env_id == 'Hopper-v5' and cfg.policy.learn.target_noise_clip == 0.5
