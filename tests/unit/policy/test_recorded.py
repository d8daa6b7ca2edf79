"""Policies that replay transitions learn from recorded ones instead: what rows become, and what cannot be done with them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import differences
from toys import FROM_DATA, recorded, sections

from rlframe import config
from rlframe.errors import ConfigError
from rlframe.pipeline import SerialPipeline
from rlframe.worker import create_serial_collector

ENVS = {name: sections(name, {})['env_id'] for name in sorted({*FROM_DATA, 'edac'})}
"""Policies that learn from data, and one that also can, with an env for each."""


def config_of(policy: str, **options: Any) -> Any:
    main = dict(
        exp_name='from_data',
        max_train_iter=6,
        env=dict(env_id=ENVS[policy], evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9),
        policy=dict(cuda=False, learn=dict(batch_size=16), eval=dict(evaluator=dict(eval_freq=6))) | options,
    )
    create = dict(policy=dict(type=policy), collector=dict(type='dataset', data='records.npz'))
    return main, create


def test_rows_hold_actions_as_the_network_means_them_and_observations_as_they_were_recorded(
    cwd: Path,
) -> None:
    recorded(cwd / 'records.npz', 'zoo:TargetEnv', 20)
    data = dict(np.load('records.npz'))
    with SerialPipeline(config.compile_config(*config_of('td3_bc', normalize_obs=True))) as pipeline:
        given = {'data': data, 'policy': pipeline.policy.collect_mode}
        rows = create_serial_collector({'type': 'dataset'}, **given).collect(len(data['obs']))
    place = np.argsort(rows['reward'], kind='stable')
    wanted = data['action'][np.argsort(data['reward'], kind='stable')]
    unit = 2 * (wanted + 2) / 3 - 1  # the env has bounds of -2 and 1
    # rows with the same reward may stand in another order
    np.testing.assert_allclose(np.sort(rows['action'][place], 0), np.sort(unit, 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(rows['obs'].sum(0), data['obs'].sum(0))


@pytest.mark.parametrize('policy', ENVS)
def test_policy_learns_from_data_without_a_replay_buffer_and_resumes_exactly(policy: str, cwd: Path) -> None:
    recorded(cwd / 'records.npz', ENVS[policy], 20)
    cfg = config.compile_config(*config_of(policy, normalize_obs=True), seed=1)
    with SerialPipeline(cfg) as whole:
        assert whole.replay_buffer is None
        for _ in range(3):
            whole.step()
        whole.save_checkpoint(cwd / 'saved')
        whole.step(), whole.step()
        wanted = copy.deepcopy(whole.policy.learn_mode.state_dict())
    with SerialPipeline(cfg) as other:
        other.load_checkpoint(cwd / 'saved')
        other.step(), other.step()
        assert differences(other.policy.learn_mode.state_dict(), wanted) == []


def test_observations_are_normalised_by_all_of_the_data_from_the_first_update_on(cwd: Path) -> None:
    recorded(cwd / 'records.npz', 'zoo:TargetEnv', 20)
    obs = np.load('records.npz')['obs']
    with SerialPipeline(config.compile_config(*config_of('td3_bc', normalize_obs=True))) as pipeline:
        for _ in range(3):
            pipeline.step()
            state = pipeline.policy.collect_mode.state_dict()['normalizer']
            assert state['obs.count'] == len(obs)
            np.testing.assert_allclose(state['obs.mean'], obs.mean(0, np.float64), rtol=1e-9)
            np.testing.assert_allclose(state['obs.var'], obs.var(0, np.float64), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ('options', 'says'),
    [
        (dict(nstep=3), r'policy\.nstep.*single steps.*expected 1'),
        (dict(priority=True), r'policy\.priority.*every row once'),
        (dict(random_collect_size=10), r'policy\.random_collect_size.*no env is stepped'),
        (dict(normalize_reward=True), r'policy\.normalize_reward.*returns'),
        (dict(other=dict(replay_buffer=dict(replay_buffer_size=100))), 'without a replay buffer'),
    ],
)
def test_what_recorded_rows_do_not_have_is_refused(options: dict[str, Any], says: str, cwd: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        config.compile_config(*config_of('td3_bc', **options))


def test_a_policy_of_data_alone_does_not_play() -> None:
    main, create = config_of('td3_bc')
    with pytest.raises(ConfigError, match=r"collector\.type.*expected 'dataset'"):
        config.compile_config(main, create | {'collector': {'type': 'sample'}})
