"""Reward models of DI-engine's configs are those of here, and their experts are recorded data."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import ROOT

from rlframe.config import compile_config
from rlframe.config.components import set_path
from rlframe.config.ding import from_ding
from rlframe.config.ding_reward import COUNTERPARTS
from rlframe.envs.cartpole_expert import record
from rlframe.errors import ConfigError, ConfigWarning
from rlframe.pipeline import SerialPipeline
from rlframe.registry import REWARD_MODEL_REGISTRY

FLAT: Any = json.loads((ROOT / 'tests' / 'data' / 'ding_configs.json').read_text(encoding='utf-8'))
PAGE = (ROOT / 'docs' / 'from_ding.md').read_text(encoding='utf-8')
SECTIONS: dict[str, dict[str, Any]] = {
    'gail': dict(type='gail', input_size=5, hidden_size=64, learning_rate=1e-3, expert_model_path='x', collect_count=9),
    'trex': dict(type='trex', min_snippet_length=5, max_snippet_length=30, checkpoint_min=0, num_snippets=60),
    'drex': dict(type='drex', min_snippet_length=5, bc_path='x', eps_list=[0, 1], num_trajs_per_bin=2, bc_iterations=3),
    'guided_cost': dict(type='guided_cost', input_size=5, continuous=False, batch_size=32, update_per_collect=2),
    'pwil': dict(type='pwil', s_size=4, a_size=2, sample_size=500, alpha=3, beta=4),
    'red': dict(type='red', sample_size=500, hidden_size=8, update_per_collect=5),
    'pdeil': dict(type='pdeil', discrete_action=True, alpha=0.5),
}  # fmt: skip
"""Sections of DI-engine's configs."""
ON_POLICY = ('guided_cost',)


def pair_of(
    section: dict[str, Any], policy: str = 'cartpole_dqn', in_create: bool = False
) -> tuple[Any, Any]:
    """Returns a config of DI-engine with a reward model."""
    trees: list[Any] = [{}, {}]
    for tree, part in zip(trees, ('main_config', 'create_config'), strict=True):
        for key, value in FLAT[policy][part].items():
            set_path(tree, key.split('.'), copy.deepcopy(value))
    main, create = trees
    main['reward_model'] = dict(section)
    if in_create:
        create['reward_model'] = {'type': main['reward_model'].pop('type')}
    return main, create


def options_of(section: dict[str, Any], in_create: bool = False) -> dict[str, Any]:
    options: dict[str, Any] = from_ding(*pair_of(section, in_create=in_create)).main_config['reward_model']
    return options


def test_curiosity_keeps_its_names_and_needs_no_data() -> None:
    rnd = dict(
        type='rnd',
        obs_shape=4,
        intrinsic_reward_type='add',
        intrinsic_reward_weight=None,
        update_per_collect=4,
    )
    translation = from_ding(*pair_of(rnd))
    assert translation.main_config['reward_model'] == {
        'type': 'rnd', 'update_per_collect': 4, 'learning_rate': 1e-3, 'batch_size': 64, 'hidden_size_list': [64, 64, 128], 'weight': 0.01
    }  # fmt: skip
    assert not any('expert' in change.key for change in translation.changes)
    with pytest.raises(ConfigError, match='intrinsic_reward_type'):
        compile_config(*pair_of(rnd | {'intrinsic_reward_type': 'assign'}))


def test_the_two_reward_models_of_ngu_are_one_with_an_r2d2() -> None:
    main, create = pair_of({}, 'cartpole_r2d2')
    del main['reward_model']
    for name, kind in (('rnd_reward_model', 'rnd-ngu'), ('episodic_reward_model', 'episodic')):
        main[name] = dict(type=kind, learning_rate=5e-4, nstep=5, last_nonzero_reward_rescale=False)
        create[name] = {'type': kind}
    create['policy']['type'] = 'ngu'
    main['env']['obs_plus_prev_action_reward'] = True
    with pytest.warns(ConfigWarning, match='does not see the last action'):
        cfg = compile_config(main, create)
    assert cfg.policy.type == 'r2d2' and cfg['reward_model']['ngu']['learning_rate'] == 5e-4


@pytest.mark.parametrize('in_create', [False, True])
def test_options_have_their_names_here_wherever_the_type_stands(in_create: bool) -> None:
    gail = options_of(SECTIONS['gail'], in_create)
    assert gail == {
        'type': 'gail',
        'hidden_size_list': [64],
        'learning_rate': 1e-3,
        'batch_size': 64,
        'update_per_collect': 100,
        'activation': 'tanh',
        'gradient_penalty': 0.0,
    }
    assert options_of(SECTIONS['trex'], in_create) == {
        'type': 'trex', 'snippet_length': 30, 'updates': 4, 'ensemble': 1
    }  # fmt: skip
    assert options_of(SECTIONS['guided_cost'], in_create)['type'] == 'gcl'


def test_a_section_without_a_type_is_known_by_its_keys() -> None:
    for kind, found in (('gail', 'gail'), ('trex', 'trex')):
        section = {name: value for name, value in SECTIONS[kind].items() if name != 'type'}
        assert options_of(section)['type'] == found


def test_the_expert_that_acts_is_replaced_by_its_data() -> None:
    main, create = pair_of(SECTIONS['guided_cost'])
    set_path(main, ['policy', 'collect', 'model_path'], 'expert.pth.tar')
    translation = from_ding(main, create)
    assert 'model_path' not in translation.main_config['policy']['collect']
    assert any('reward_model.data' in change.reason for change in translation.changes)


def test_unknown_keys_are_refused_with_their_section() -> None:
    with pytest.raises(ConfigError, match=r'reward_model\.gail\.learning_rate'):
        compile_config(*pair_of(SECTIONS['gail'] | {'lerning_rate': 1.0}))


def test_the_page_has_every_reward_model_and_each_of_its_keys() -> None:
    for kind, found in COUNTERPARTS.items():
        assert found.kind in REWARD_MODEL_REGISTRY.names()
        for key in (kind, *found.options, *found.unused):
            assert f'`{key}`' in PAGE, key


@pytest.mark.slow
@pytest.mark.parametrize('kind', SECTIONS)
def test_configs_train_on_recorded_data(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    columns = record(range(2))
    length = len(columns['obs'])
    ends = {'terminated': np.isin(np.arange(length), [99, length - 1]), 'truncated': np.zeros(length, bool)}
    reward = np.ones(length, np.float32)
    np.savez('expert.npz', **columns, next_obs=columns['obs'], reward=reward, **ends)
    main, create = pair_of(SECTIONS[kind], 'cartpole_ppo' if kind in ON_POLICY else 'cartpole_dqn')
    words = ['env.n_evaluator_episode=1', 'env.evaluator_env_num=1', 'reward_model.data=expert.npz']
    words += ['reward_model.updates=3'] if kind in ('trex', 'drex', 'red') else []
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ConfigWarning)
        cfg = compile_config(main, create, overrides=words, max_train_iter=3)
    with SerialPipeline(cfg) as pipeline:
        pipeline.run()
    assert pipeline.progress.train_iter >= 3
