"""Each policy learns a toy env in seconds, and a time limit is not the end of the world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import config_pair

from rlframe import config
from rlframe.pipeline import SerialPipeline


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)


def run(**sections: Any) -> SerialPipeline:
    main, create = config_pair(**sections)
    with SerialPipeline(config.compile_config(main, create, seed=0)) as pipeline:
        pipeline.run()
    return pipeline


DQN = dict(
    learn=dict(batch_size=32, learning_rate=3e-3, target_update_freq=50),
    other=dict(eps=dict(type='linear', start=1.0, end=0.05, decay=1500)),
    policy_=dict(discount_factor=0.5),
)
PPO = dict(policy='ppo', learn=dict(batch_size=64, learning_rate=3e-3), collect=dict(n_sample=128))
TOYS = {
    'dqn': DQN,
    'dqn advanced': DQN
    | dict(
        buffer=dict(type='advanced'),
        policy_=dict(discount_factor=0.5, priority=True, priority_IS_weight=True, nstep=2),
    ),
    'qrdqn': DQN | dict(policy='qrdqn', model=dict(num_quantiles=8)),
    'c51': DQN | dict(policy='c51', model=dict(v_min=0.0, v_max=4.0, n_atom=21)),
    'dqn noisy': DQN | dict(model=dict(noisy=True)),
    'dqn episodes': DQN
    | dict(
        collect=dict(n_sample=None, n_episode=1),
        collector=dict(type='episode', get_train_sample=True),
        policy_=dict(discount_factor=0.5, nstep=2),
    ),
    'ppo': PPO,
    'ppo episodes': PPO
    | dict(collect=dict(n_sample=None, n_episode=16), collector=dict(type='episode', get_train_sample=True)),
    'ppo options': PPO
    | dict(
        model=dict(share_encoder=True, activation='relu'),
        learn=dict(
            batch_size=64,
            learning_rate=3e-3,
            value_norm=True,
            value_clip=0.5,
            target_kl=0.05,
            advantage_norm='round',
            epoch_per_collect=8,
            entropy_weight=dict(type='linear', start=0.01, end=0.0, decay=5000),
        ),
        policy_=dict(normalize_obs=True, normalize_reward=True),
    ),
    'a2c': dict(policy='a2c', learn=dict(batch_size=None, learning_rate=3e-3), collect=dict(n_sample=40)),
    'dqn normalised': DQN
    | dict(policy_=dict(discount_factor=0.5, normalize_obs=True, normalize_reward=True)),
    'ppo vector': PPO | dict(manager='gym_vector', manager_=dict(mode='sync')),
}


@pytest.mark.parametrize('name', TOYS)
def test_policy_learns_to_name_the_class_it_sees(name: str) -> None:
    pipeline = run(
        env_id='fakes:IdentityEnv',
        env=dict(stop_value=7.9, n_evaluator_episode=10),
        evaluator=dict(eval_freq=100),
        max_env_step=12_000,
        **TOYS[name],
    )
    assert pipeline.stopped and pipeline.evaluator.best >= 7.9, 'the best possible return is 8'


@pytest.mark.parametrize(('ending', 'value'), [('truncated', 10.0), ('terminated', None)])
@pytest.mark.parametrize('nstep', [1, 3])
@pytest.mark.parametrize(
    ('policy', 'model'),
    [('dqn', {}), ('qrdqn', dict(num_quantiles=4)), ('c51', dict(v_min=0.0, v_max=12.0, n_atom=25))],
)
def test_value_of_endless_reward_1_is_10_behind_a_time_limit_and_less_before_an_end(
    ending: str, value: float | None, nstep: int, policy: str, model: dict[str, Any]
) -> None:
    pipeline = run(
        env_id='fakes:OneStateEnv',
        policy=policy,
        env=dict(kwargs=dict(ending=ending)),
        learn=dict(batch_size=64, learning_rate=1e-2, target_update_freq=10, update_per_collect=8),
        model=dict(encoder_hidden_size_list=[], **model),
        policy_=dict(discount_factor=0.9, nstep=nstep),
        other=dict(eps=0.5),
        max_train_iter=2500,
    )
    with torch.no_grad():
        q = pipeline.policy._q_value(np.ones((1, 1), np.float32)).numpy()
    if value is not None:
        np.testing.assert_allclose(q, value, atol=0.5)
        return
    # One state cannot tell the steps apart: V = 1 + 0.9 * 0.8 * V where only every fifth step is the last.
    rewards = [sum(0.9**k for k in range(min(nstep, left))) for left in (5, 4, 3, 2, 1)]
    goes_on = sum(left > nstep for left in (5, 4, 3, 2, 1)) / 5
    np.testing.assert_allclose(q, np.mean(rewards) / (1 - goes_on * 0.9**nstep), atol=0.4)


@pytest.mark.parametrize('name', ['BoxEnv', 'MultiDiscreteEnv', 'MultiBinaryEnv'])
def test_ppo_learns_the_right_action_of_every_kind(name: str) -> None:
    pipeline = run(
        env_id=f'action_envs:{name}',
        env=dict(stop_value=7.5, n_evaluator_episode=10),
        evaluator=dict(eval_freq=40),
        max_env_step=40_000,
        policy='ppo',
        model=dict(encoder_hidden_size_list=[16], **({'log_std_init': -0.7} if name == 'BoxEnv' else {})),
        learn=dict(batch_size=64, learning_rate=1e-2, epoch_per_collect=8, entropy_weight=0.0),
        collect=dict(n_sample=256, discount_factor=0.5),
    )
    assert pipeline.stopped and pipeline.evaluator.best >= 7.5, 'the best possible return is 8'


LAST_5 = np.mean([sum(0.9**k for k in range(left)) for left in (5, 4, 3, 2, 1)])
"""Mean return of the five steps of an episode that ends for good: one state cannot tell them apart."""


@pytest.mark.parametrize(('ending', 'value'), [('truncated', 10.0), ('terminated', LAST_5)])
@pytest.mark.parametrize(
    ('policy', 'learn', 'normalize_obs'),
    [
        ('ppo', {}, False),
        ('ppo', dict(value_norm=True), False),
        ('ppo', dict(value_clip=1.0), False),
        ('ppo', {}, True),
        ('a2c', dict(epoch_per_collect=1, optimizer='adam'), False),
    ],
)
def test_critic_values_endless_reward_1_at_10_behind_a_time_limit_and_at_less_before_an_end(
    ending: str, value: float, policy: str, learn: dict[str, Any], normalize_obs: bool
) -> None:
    pipeline = run(
        env_id='fakes:OneStateEnv',
        policy=policy,
        env=dict(kwargs=dict(ending=ending)),
        learn=dict(batch_size=None, learning_rate=3e-2, epoch_per_collect=20) | learn,
        model=dict(encoder_hidden_size_list=[]),
        collect=dict(n_sample=20, discount_factor=0.9, gae_lambda=1.0),
        policy_=dict(normalize_obs=normalize_obs),
        evaluator=dict(eval_freq=900),
        max_train_iter=900,
    )
    obs = np.full((1, 1), 0.0 if normalize_obs else 1.0, np.float32)
    np.testing.assert_allclose(pipeline.policy._values(obs), value, atol=0.1)
