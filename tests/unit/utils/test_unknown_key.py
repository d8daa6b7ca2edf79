"""Names of other frameworks lead to the options that the chosen components have, and to no others."""

from __future__ import annotations

import re
from typing import Any

import pytest
from error_texts import raises

from rlframe.config import compile_config
from rlframe.config.components import find_schema
from rlframe.errors import ConfigError
from rlframe.option_names import (
    CONVERTED,
    SYNONYMS,
    TABLE,
    dotted_keys,
    meant_keys,
    nearest_name,
    unknown_key,
)
from rlframe.registry import POLICY_REGISTRY
from rlframe.worker.replay_buffer.buffer import NaiveReplayBuffer


def options_of(policy: str) -> dict[str, Any]:
    return find_schema({'policy': {'type': policy}}, [])[1]


MEANT = [
    ('dqn', 'policy.learn.lr'),
    ('sac', 'policy.learn.lr'),
    ('sac', 'policy.learn.learning_rate'),
    ('sac', 'policy.learn.learning_rate_policy'),
    ('dqn', 'policy.gamma'),
    ('ppo', 'gamma'),
    ('dqn', 'policy.buffer_size'),
    ('dqn', 'env.n_envs'),
    ('dqn', 'policy.n_steps'),
    ('ppo', 'gae-lambda'),
    ('ppo', 'max_grad_norm'),
    ('sac', 'policy.ent_coef'),
    ('ppo', 'policy.learn.CLIP-RANGE'),
    ('dqn', 'device'),
    ('tqc', 'policy.top_quantiles_to_drop_per_net'),
    ('pqn', 'policy.td_lambda'),
]  # fmt: skip


@pytest.mark.parametrize(('policy', 'key'), MEANT)
def test_name_of_another_framework_leads_to_the_option_here(policy: str, key: str) -> None:
    with raises(ConfigError):
        compile_config({'env': {'env_id': 'X'}}, {'policy': {'type': policy}}, overrides={key: 1})


OTHERWISE = [
    ('ppo', 'policy.n_steps'),
    ('dqn', 'policy.exploration_fraction'),
    ('ppo', 'eval_interval'),
    ('ppo', 'num_minibatches'),
    ('ppo', 'anneal-lr'),
    ('td3', 'anneal_lr'),
    ('ppo', 'norm-adv'),
    ('ppo', 'clip-vloss'),
    ('ppo', 'ortho_init'),
    ('td3', 'net_arch'),
]  # fmt: skip


@pytest.mark.parametrize(('policy', 'key'), OTHERWISE)
def test_a_name_that_means_another_quantity_comes_with_the_conversion(policy: str, key: str) -> None:
    with raises(ConfigError):
        compile_config({'env': {'env_id': 'X'}}, {'policy': {'type': policy}}, overrides={key: 1})


def test_every_conversion_is_of_a_synonym_of_its_option() -> None:
    assert [pair for pair in CONVERTED if not any(pair[0] in keys for keys in SYNONYMS[pair[1]])] == []
    assert len(set(CONVERTED.values())) == len(re.findall(r'\s=\s', TABLE)), (
        'a line of the table was not read'
    )


def test_every_synonym_is_of_use_and_names_options_of_the_chosen_policy_only() -> None:
    useful = set()
    for policy in POLICY_REGISTRY.names():
        known = dotted_keys(options_of(policy))
        for name in SYNONYMS:
            meant = meant_keys(name, known)
            assert meant is not None and set(meant) <= set(known)
            useful |= {name} if meant else set()
    of_some = {'policy.model.lstm_hidden_size', 'policy.collect.collector.num_collectors'}
    assert useful | {name for name, keys in SYNONYMS.items() if of_some & set(keys[0])} == set(SYNONYMS)


@pytest.mark.parametrize(
    ('policy', 'key'),
    [('dqn', 'policy.clip_range'), ('ppo', 'policy.buffer_size'), ('ppo', 'policy.exploration_fraction')],
)
def test_option_that_the_policy_does_not_have_is_not_suggested(policy: str, key: str) -> None:
    options = options_of(policy)
    text = str(unknown_key(key, options['policy'], options))
    assert 'no component of this config does' in text and 'Did you mean' not in text


def test_component_on_its_own_names_its_own_key() -> None:
    with raises(ConfigError):
        NaiveReplayBuffer.resolve_config({'buffer_size': 3})


@pytest.mark.parametrize(
    ('name', 'known', 'expected'),
    [
        ('learning_rate_policy', ['learning_rate_critic', 'learning_rate_actor'], ''),
        ('num_gizmos', ['num_threads'], ''),
        ('n_steps', ['n_episode'], ''),
        ('total_timesteps', ['stall_timeout'], ''),
        ('lerning_rate', ['learning_rate_actor', 'learning_rate'], 'learning_rate'),
        ('batchsize', ['batch_size'], 'batch_size'),
        ('max_env_steps', ['max_env_step', 'max_train_iter'], 'max_env_step'),
        ('widht', ['width'], 'width'),
    ],
)
def test_only_misspellings_are_corrected(name: str, known: list[str], expected: str) -> None:
    assert nearest_name(name, known) == expected
