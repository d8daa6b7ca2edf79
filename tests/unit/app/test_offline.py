"""``rlframe train --data`` learns from recorded data without a config, and is scored in their env or on held-out episodes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from error_texts import raises

import rlframe
from rlframe.app.collect import CollectRequest, collect
from rlframe.app.offline import data_config
from rlframe.config.rules import offline_policies
from rlframe.data import Batch
from rlframe.data.dataset import open_data
from rlframe.data.episodes import ordered_columns, returns_to_go
from rlframe.data.formats import read_recording, write_recording
from rlframe.data.sources import RowSource
from rlframe.entry.__main__ import main
from rlframe.errors import ConfigError, IncompatibleError, UnsafeCheckpointError
from rlframe.pipeline.given_data import check_data


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp('data') / 'cartpole.npz'
    collect(None, CollectRequest(900, str(path)), env='CartPole-v1')
    return str(path)


def rewritten(data: str, folder: Path, **facts: Any) -> str:
    found = read_recording(data)
    kept = {name: value for name, value in {**found.facts, **facts}.items() if value is not None}
    return str(write_recording(dataclasses.replace(found, facts=kept), folder / 'changed.npz'))


def test_data_name_the_env_in_which_the_policy_is_evaluated(data: str, cwd: Path, capsys: Any) -> None:
    assert main(['train', '--data', data, '--policy', 'bc', '--train-iter', '20', '--out', 'run']) == 0
    run = rlframe.open_run('run')
    assert run.env_name == 'CartPole-v1' and 8 < run.best < 500
    assert run.config.policy.collect.collector.type == 'dataset' and run.progress.train_iter == 20


@pytest.mark.parametrize(
    'facts', [{'env': None}, {'env': {'env_id': 'Nowhere-v7'}}, {'env': None, 'spec': None}]
)
def test_without_an_env_the_policy_is_scored_on_episodes_that_it_does_not_learn_from(
    facts: dict[str, Any], data: str, cwd: Path, capsys: Any
) -> None:
    path = rewritten(data, cwd, **facts)
    assert main(['train', '--data', path, '--train-iter', '20', '--out', 'run']) == 0
    said = capsys.readouterr().out
    assert ' rows, 20 updates' in said and 'export: ' in said and 'evaluate: ' not in said
    run = rlframe.open_run('run')
    assert 0.3 < run.best <= 1  # accuracy
    cfg = run.config
    assert cfg.policy.eval.evaluator.type == 'metric' and cfg.policy.eval.evaluator.held_out == 0.1
    assert cfg.policy.collect.collector.held_out == 0.1
    with pytest.raises(ConfigError, match='is recorded data, not an env to play in'):
        run.evaluate(1)


def test_env_of_foreign_data_that_is_code_needs_trust(data: str, cwd: Path) -> None:
    path = rewritten(data, cwd, env={'env_id': 'os:getcwd'})
    with pytest.raises(UnsafeCheckpointError, match=r'env\.env_id'):
        data_config(path)
    main_config, create = data_config(path, env='CartPole-v1')
    assert main_config['env']['env_id'] == 'CartPole-v1' and create['evaluator']['type'] == 'interaction'


def test_data_of_another_env_are_refused_before_training(data: str, cwd: Path, capsys: Any) -> None:
    assert main(['train', '--data', data, '--env', 'Pendulum-v1', '--policy', 'bc']) == 2
    message = capsys.readouterr().err
    assert 'data of CartPole-v1 do not fit Pendulum-v1' in message and not list(cwd.iterdir())


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (
            ['--data', 'DATA', '--policy', 'dqn'],
            "dqn learns by acting, not from data alone; got 'dqn', expected",
        ),
        (
            ['--env', 'CartPole-v1', '--policy', 'bc'],
            'bc learns from recorded data, not by acting in CartPole-v1',
        ),
        (['-c', 'cartpole_bc', 'collector.type=sample'], 'this collector plays the policy itself'),
        (
            ['-c', 'cartpole_dqn', 'collector.type=dataset', 'collector.data=DATA'],
            'learns by acting, not from data alone',
        ),
        (['--data', 'DATA', '--policy', 'dqn'], 'replay_buffer.init_from=DATA'),
        (['--data', 'DATA', 'DATA', 'collector.mix=[1,0]'], 'policy.collect.collector.mix: bad value'),
        (['--data', 'DATA', 'DATA', 'collector.mix=[nan,1]'], "got ['nan', 1], expected a list of floats"),
        (['--data', 'DATA', 'DATA', 'collector.mix=[1,1e-9]'], 'take larger batches'),
        (
            ['--data', 'DATA', 'DATA', 'collector.mix=[1,1]', 'policy.learn.batch_size=9999'],
            'take smaller batches',
        ),
        (['--data', 'DATA', 'collector.mix=[1,1]'], 'shares of several data, and there is one'),
        (
            ['--data', 'DATA', '--policy', 'dt', 'collector.memory=1e-6'],
            'read from disk in random blocks. Raise collector.memory',
        ),
        (
            ['--data', 'DATA', 'DATA', '--policy', 'dt', 'collector.mix=[1,1]'],
            'mixed by shares. Leave collector.mix out',
        ),
        (['--data', 'nothing.npz'], 'no such file'),
        (['--data', 'no/such-v0'], 'no recorded data'),
    ],
)
def test_who_learns_from_what_is_said_before_training(
    words: list[str], message: str, data: str, cwd: Path, capsys: Any
) -> None:
    assert main(['train', *[word.replace('DATA', data) for word in words]]) == 2
    assert message.replace('DATA', data) in capsys.readouterr().err and not list(cwd.iterdir())


def test_a_collector_that_acts_for_a_policy_of_data_is_one_mistake(cwd: Path, capsys: Any) -> None:
    assert main(['train', '-c', 'pendulum_iql', 'collector.type=sample', 'policy.learn.expectile=2']) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and 'learn.expectile' in lines[1] and 'iql learns from recorded data' in lines[2]


def test_paths_in_a_list_need_no_quotes(cwd: Path, capsys: Any) -> None:
    assert main(['train', '-c', 'pendulum_iql', 'collector.data=[a.npz, b/c-v0]']) == 2
    assert f'no such file: {cwd / "a.npz"}' in capsys.readouterr().err


def unmarked(folder: Path, env: str, count: int = 300) -> str:
    """Writes steps without end marks, of which there are more than an episode has."""
    made: Any = gymnasium.make(env)
    obs = made.observation_space.sample()
    action = np.stack([made.action_space.sample() for _ in range(count)])
    np.savez(folder / 'own.npz', obs=np.tile(obs, (count, 1)), action=action, reward=np.zeros(count))
    return str(folder / 'own.npz')


@pytest.mark.parametrize(
    ('policy', 'env'), [('bc', 'CartPole-v1'), ('ibc', 'Pendulum-v1'), ('td3_bc', 'Pendulum-v1')]
)
def test_end_marks_are_needed_by_those_who_learn_from_rewards(
    policy: str, env: str, tmp_path: Path, cwd: Path, capsys: Any
) -> None:
    words = f'train --data {unmarked(tmp_path, env)} --env {env} --policy {policy} --train-iter 2'.split()
    small = ['env.n_evaluator_episode=1', 'env.evaluator_env_num=1']
    is_fine = policy != 'td3_bc'
    assert main([*words, *small]) == (0 if is_fine else 2)
    assert ('the data have no end marks' in capsys.readouterr().err) != is_fine


@pytest.mark.parametrize('column', ['next_obs', 'reward', 'terminated'])
@pytest.mark.parametrize('policy', [name for name in offline_policies() if name not in ('bc', 'ibc')])
def test_a_column_that_a_policy_learns_from_and_data_lack_is_named_before_training(
    policy: str, column: str, data: str
) -> None:
    if policy == 'dt' and column == 'next_obs':
        return  # it does not look at it
    source = open_data(data)
    assert isinstance(source, RowSource)
    rows = source.rows
    check_data(source, policy, 64, 'x')
    left = Batch({name: rows[name] for name in rows.keys() if name != column})  # noqa: SIM118
    with pytest.raises(
        ConfigError, match=f'{policy} learns from the column {column}, and the data have none'
    ):
        check_data(RowSource(left, 'x'), policy, 64, 'x')


@pytest.mark.parametrize('policy', ['dt', 'discrete_cql'])
def test_several_data_are_one_for_every_policy(policy: str, data: str, cwd: Path) -> None:
    other = rewritten(data, cwd, seed=1)
    pair = data_config([data, other], policy, env='CartPole-v1')
    small = {'env.n_evaluator_episode': 1, 'env.evaluator_env_num': 1, 'policy.eval.evaluator.eval_freq': 2}
    run = rlframe.train(pair, folder='run', overrides=small, max_train_iter=3, progress=False)
    assert run.progress.train_iter == 3


def test_spaces_of_data_that_name_no_env_are_those_of_all_rows(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    action = np.repeat([0, 1, 2], 10)
    np.savez('x.npz', obs=np.zeros((30, 2), np.float32), action=action, terminated=np.arange(30) % 5 == 4)
    monkeypatch.setattr('rlframe.data.columns.blocks.__defaults__', (10,))
    main_config, create = data_config('x.npz', 'bc', max_train_iter=1)
    run = rlframe.train((main_config, create), folder='run', max_train_iter=1, progress=False)
    assert run.progress.train_iter == 1


def test_policies_that_fit_data_are_those_that_learn_from_them(data: str) -> None:
    with pytest.raises(IncompatibleError, match='Policies that fit: bc, discrete_bcq, discrete_cql, dt'):
        data_config(data, 'iql')


def test_data_in_a_row_have_episodes_of_their_own(data: str) -> None:
    parts = [read_recording(data)] * 2
    found = ordered_columns(open_data(parts))
    lengths = parts[0].episodes().length.tolist()
    assert np.unique(found['episode'], return_counts=True)[1].tolist() == lengths * 2
    np.testing.assert_array_equal(returns_to_go(found), np.tile(returns_to_go(parts[0].batch()), 2))


def test_several_data_are_mixed_and_a_resumed_run_reads_on(data: str, cwd: Path) -> None:
    other = rewritten(data, cwd, seed=1)
    main_config, create = data_config([data, other], env='CartPole-v1')
    overrides = {
        'policy.collect.collector.mix': [3, 1],
        'policy.collect.collector.top': 0.5,
        'policy.eval.evaluator.eval_freq': 5,
        'env.n_evaluator_episode': 1,
        'env.evaluator_env_num': 1,
        'policy.model.encoder_hidden_size_list': [8],
    }
    given: dict[str, Any] = dict(overrides=overrides, progress=False)
    whole = rlframe.train((main_config, create), folder='whole', max_train_iter=12, **given)
    half = rlframe.train((main_config, create), folder='half', max_train_iter=5, **given)
    half.resume(max_train_iter=12, progress=False)
    assert half.progress.envstep == whole.progress.envstep
    weights = [
        rlframe.open_run(folder).policy.act(np.linspace(-0.4, 0.4, 40).reshape(10, 4))
        for folder in ('whole', 'half')
    ]
    np.testing.assert_array_equal(*weights)


def test_python_learns_from_data_as_the_command_line_does(data: str, cwd: Path) -> None:
    given: dict[str, Any] = dict(data=data, policy='discrete_cql', max_train_iter=5, progress=False)
    run = rlframe.train(folder='python', **given)
    words = ['--data', data, '--policy', 'discrete_cql', '--train-iter', '5', '--out', 'words']
    assert main(['train', *words]) == 0
    obs = np.linspace(-0.1, 0.1, 20).reshape(5, 4)
    np.testing.assert_array_equal(run.policy.act(obs), rlframe.open_run('words').policy.act(obs))
    with raises(ConfigError):
        rlframe.train('cartpole_dqn', data=data)
    with raises(ConfigError):
        rlframe.train(folder='more', overrides={'policy.learn.update_per_collect': 9}, **given)
