"""Configs of DI-engine for teams of PettingZoo become teams here."""

from __future__ import annotations

from typing import Any

import pytest

from rlframe.config import from_ding


def spread(policy: str, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a config of DI-engine for three agents that spread."""
    env = dict(env_family='mpe', env_id='simple_spread_v2', n_agent=3, n_landmark=3, max_cycles=25)
    env |= dict(agent_obs_only=False, continuous_actions=False, collector_env_num=8, stop_value=0)
    model = dict(agent_num=3, obs_shape=18, global_obs_shape=48, action_shape=5)
    section = dict(cuda=False, model=model, learn={}, collect=dict(n_sample=600), other={})
    for key, value in options.items():
        section[key] = {**section[key], **value} if isinstance(section.get(key), dict) else value
    kind = dict(type='petting_zoo', import_names=['dizoo.petting_zoo.envs.petting_zoo_simple_spread_env'])
    return dict(env=env, policy=section), dict(env=kind, policy=dict(type=policy))


BY_VALUES: dict[str, Any] = dict(
    learn=dict(target_update_theta=0.001, double_q=True, discount_factor=0.98), collect=dict(unroll_len=16)
)


@pytest.mark.parametrize(
    ('given', 'mixer', 'policy'),
    [
        ('qmix', dict(mixer=True), 'qmix'),
        ('qmix', dict(mixer=False), 'vdn'),
        ('wqmix', {}, 'wqmix'),
        ('qtran', {}, 'qtran'),
    ],
)
def test_agents_that_are_valued_remember_and_learn_from_sequences(
    given: str, mixer: Any, policy: str
) -> None:
    model = dict(hidden_size_list=[128, 64], **mixer)
    found = from_ding(*spread(given, model=model, **BY_VALUES))
    main, create = found.main_config, found.create_config
    assert create['policy']['type'] == policy and create['replay_buffer']['type'] == 'sequence'
    assert main['env']['env_id'] == 'rlframe.envs.team_env:Team'
    assert main['env']['kwargs'] == dict(
        game='mpe2.simple_spread_v3', N=3, max_cycles=25, continuous_actions=False
    )
    section = main['policy']
    assert section['model'] == dict(encoder_hidden_size_list=[128, 64], core='gru', core_hidden_size=64)
    assert (section['double'], section['discount_factor']) == (True, 0.98)
    assert section['learn']['target_theta'] == 0.001 and section['learn']['target_update_freq'] is None
    assert section['other']['replay_buffer']['unroll_len'] == 16
    assert section['collect']['n_sample'] == 600 * 16, 'DI-engine counts sequences'


@pytest.mark.parametrize(
    ('given', 'policy'),
    [('ppo', 'mappo'), ('ddpg', 'maddpg'), ('sac', 'masac'), ('discrete_sac', 'masac_discrete')],
)
def test_a_policy_of_many_agents_has_a_critic_of_the_state(given: str, policy: str) -> None:
    found = from_ding(*spread(given, multi_agent=True))
    assert (
        found.create_config['policy']['type'] == policy and 'multi_agent' not in found.main_config['policy']
    )


def test_rounds_of_coma_are_fresh_env_steps() -> None:
    model = dict(actor_hidden_size_list=[128, 64])
    learn = dict(batch_size=32, update_per_collect=40, discount_factor=0.98, td_lambda=0.7)
    found = from_ding(*spread('coma', model=model, learn=learn, collect=dict(unroll_len=16)))
    section = found.main_config['policy']
    assert section['model'] == dict(encoder_hidden_size_list=[128, 64], core='gru')
    assert section['collect'] == dict(n_sample=600 * 16, discount_factor=0.98, td_lambda=0.7)
    assert section['learn'] == dict(batch_size=32 * 16, epoch_per_collect=2), '40 updates, by 19 batches'
