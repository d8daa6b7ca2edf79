"""The section ``parallel``: what it holds, that serial configs know nothing of it, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from runs import ROOT

from rlframe.app.starting import starting_config
from rlframe.config import compile_config, config_data, read_config, shared_fingerprint, split_config
from rlframe.config.components import set_path
from rlframe.config.writer import total_config_text, write_total_config
from rlframe.errors import ConfigError, ConfigErrors

COMM = {'comm_collector': {'type': 'flask_fs'}, 'comm_learner': {'type': 'flask_fs'}}
TOKEN = 'a-secret-of-the-run-0123'
GAME = {
    'env': {'type': 'pettingzoo'},
    'collector': {'type': 'sample_1v1'},
    'evaluator': {'type': 'battle_interaction'},
}


def pair(main: Mapping[str, Any] | None = None, **create: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a config of parallel mode; ``main`` holds dotted keys."""
    env_id = 'classic.tictactoe_v3' if create.get('env', {}).get('type') == 'pettingzoo' else 'CartPole-v1'
    tree: dict[str, Any] = {
        'env': {'env_id': env_id},
        'policy': {'other': {'commander': {'collector_task_space': 2}}},
    }
    for key, value in (main or {}).items():
        set_path(tree, key.split('.'), value)
    which = {'policy': {'type': 'dqn'}, 'commander': {'type': 'solo'}, **COMM, **create}
    return tree, {name: section for name, section in which.items() if section is not None}


def compiled(main: Mapping[str, Any] | None = None, **create: Any) -> Any:
    return compile_config(*pair(main, **create))


def refused(main: Mapping[str, Any] | None = None, **create: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        compiled(main, **create)
    return caught.value


def test_commander_of_parallel_mode_is_solo_unless_named_and_on_policy_policies_have_no_buffer() -> None:
    cfg = compiled(commander=None, policy={'type': 'ppo'})
    assert cfg.policy.other.commander.type == 'solo' and cfg.policy.other.replay_buffer is None


def test_overrides_may_start_with_the_names_of_the_components() -> None:
    words = ['comm_learner.timeout=9', 'parallel_collector.print_freq=3', 'parallel.coordinator.port=80']
    parallel = compile_config(*pair(), overrides=words).parallel
    assert (parallel.comm_learner.timeout, parallel.collector.print_freq) == (9.0, 3)
    assert parallel.coordinator.port == 80


def test_total_config_of_a_parallel_run_compiles_to_the_same(tmp_path: Path) -> None:
    cfg = compiled(
        {
            'parallel.comm_learner.send_policy_freq': 3,
            'parallel.collector_num': 4,
        }
        | {'policy.other.commander.collector_task_space': 4}
    )
    write_total_config(tmp_path, *split_config(cfg))
    again = compile_config(*read_config(tmp_path / 'total_config.py'))
    assert again == cfg and list(split_config(again)[1])[-4:-1] == [
        'comm_collector',
        'comm_learner',
        'parallel_collector',
    ]


def test_serial_config_has_nothing_of_parallel_mode() -> None:
    main, create = {'env': {'env_id': 'CartPole-v1'}}, {'policy': {'type': 'dqn'}}
    cfg = compile_config(main, create)
    assert 'parallel' not in cfg and cfg.get('parallel') is None
    data = split_config(cfg)
    for text in (total_config_text(*data), str(config_data(*data))):
        assert 'parallel' not in text and 'comm_' not in text
    assert cfg.policy.other.commander.type == 'base'


@pytest.mark.parametrize('given', [('CartPole-v1', 'dqn'), ('CartPole-v1', 'ppo'), pair(commander=None)])
def test_parallel_mode_needs_no_section_of_its_own(given: Any) -> None:
    main, create = starting_config(*given) if isinstance(given[0], str) else given
    lacking = {name: section for name, section in create.items() if not name.startswith('comm')}
    cfg = compile_config(main, lacking, parallel=True)
    assert cfg.parallel.comm_collector.type == cfg.parallel.comm_learner.type == 'flask_fs'
    assert cfg.policy.other.commander.type == 'solo' and cfg.parallel.collector_num == 2
    assert cfg == compile_config(main, {**lacking, **COMM})


@pytest.mark.parametrize(
    ('create', 'where', 'words'),
    [
        ({'commander': {'type': 'base'}}, 'policy.other.commander.type', ['of serial mode', "'parallel'"]),
        (
            {'commander': {'type': 'solo'}, 'comm_collector': None, 'comm_learner': None},
            'policy.other.commander.type',
            ['of parallel mode', '-m parallel'],
        ),
        (
            {'comm_learner': {'type': 'in_process'}},
            'parallel.comm_learner.type',
            ["'in_process'", "'flask_fs'"],
        ),
        ({'parallel_collector': {'type': 'marine'}}, 'parallel.collector.type', ["'zergling'"]),
        (GAME, 'parallel.collector.type', ["'marine'"]),
        ({'commander': {'type': 'one_vs_one'}}, 'policy.collect.collector.type', ["'sample_1v1'", "'solo'"]),
        ({'evaluator': {'type': 'metric', 'data': 'x.npz'}}, 'policy.eval.evaluator.type', ['-m serial']),
        ({'collector': {'backend': 'ray'}}, 'policy.collect.collector.backend', ["'local'"]),
        ({'collector': {'overlap': 1}}, 'policy.collect.collector.overlap', ['parallel mode', 'expected 0']),
        ({'comm_collector': 'flask_fs'}, 'create_config.comm_collector', ["dict(type='...')"]),
    ],
)
def test_wrong_component_is_refused_with_what_fits(create: Any, where: str, words: list[str]) -> None:
    error = refused(**create)
    errors = error.errors if isinstance(error, ConfigErrors) else [error]
    assert where in [each.where for each in errors]
    assert all(word in str(error) for word in words), str(error)


@pytest.mark.parametrize(
    ('main', 'create', 'where', 'words'),
    [
        ({'parallel.collector_num': 0}, {}, 'collector_num', ['[1, inf)']),
        (
            {'policy.other.commander.lockstep': True},
            {},
            'collector_num',
            ['2', 'expected 1'],
        ),
        ({'parallel.colector_num': 3}, {}, 'colector_num', ['parallel.collector_num']),
        (
            {'parallel.coordinator.transport': {'max_worker': 5}},
            {},
            'coordinator.transport.max_worker',
            ['max_workers'],
        ),
    ],
)
def test_option_that_does_not_fit_is_refused_with_what_does(
    main: dict[str, Any], create: dict[str, Any], where: str, words: list[str]
) -> None:
    error = refused(main, **create)
    assert not isinstance(error, ConfigErrors) and error.where == f'parallel.{where}', str(error)
    assert all(word in str(error) for word in words) and TOKEN not in str(error), str(error)


def test_fingerprint_is_that_of_what_all_roles_share() -> None:
    seen = {
        shared_fingerprint(compile_config(*pair(), overrides=words))
        for words in (
            [],
            ['parallel.collector_num=1', 'exp_name=other', 'num_threads=2'],
            ['policy.other.commander.parts=3', 'policy.device=cpu', 'max_env_step=100'],
            ['checkpoint.keep_last=1', 'comm_learner.timeout=5'],
            [f'parallel.coordinator.transport={{"token": "{TOKEN}"}}'],
        )
    }
    (same,) = seen
    assert len(same) == 64 and int(same, 16) >= 0
    for word in ('seed=1', 'env.env_id=Acrobot-v1', 'policy.learn.batch_size=3', 'policy.nstep=2'):
        assert shared_fingerprint(compile_config(*pair(), overrides=[word])) != same, word


def test_shipped_configs_of_parallel_mode_compile_without_a_warning() -> None:
    pairs = {path.stem: read_config(path) for path in (ROOT / 'configs').glob('*.py')}
    shipped = {name: pair for name, pair in pairs.items() if 'comm_collector' in pair[1]}
    assert len(shipped) >= 3
    for name, pair in shipped.items():
        cfg = compile_config(*pair, parallel=True)
        assert cfg.parallel.collector_num == 2 and cfg.exp_name == name
        assert name.endswith('league') is (cfg.policy.other.commander.type == 'one_vs_one')
