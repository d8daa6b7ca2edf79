"""PPO from a replay buffer learns from rows as their collection made them, by their own probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fakes import config_pair
from policy_toys import PLAIN, random_block
from toys import toy

from rlframe.config import compile_config
from rlframe.errors import ConfigError
from rlframe.pipeline import SerialPipeline
from rlframe.policy import create_policy


def made(**cfg: Any) -> Any:
    return create_policy({'type': 'ppo_offpolicy', 'cuda': False} | cfg, PLAIN, seed=0)


def test_the_loss_weighs_replayed_rows_by_the_ratio_to_the_weights_that_collected_them() -> None:
    learn = {'value_weight': 0.3, 'entropy_weight': 0.02, 'learning_rate': 1e-2}
    policy = made(learn=learn)
    data = policy.get_train_sample(random_block(seed=1))
    for _ in range(20):  # until the weights are others
        (update,) = policy.forward_learn(data)
        update()
    rows = policy.columns(data)
    logit, value = (part.detach().double().numpy() for part in policy.model(rows['obs']))
    probs = np.exp(logit) / np.exp(logit).sum(1, keepdims=True)
    ratio = probs[np.arange(len(data)), data['action']] / np.exp(data['log_prob'])
    assert (np.abs(ratio - 1) > 0.2).any()
    advantage = (data['advantage'] - data['advantage'].mean()) / data['advantage'].std()
    policy_loss = -np.minimum(ratio * advantage, ratio.clip(0.8, 1.2) * advantage).mean()
    entropy = -(probs * np.log(probs)).sum(1).mean()
    wanted = policy_loss + 0.3 * np.square(value - data['return_']).mean() - 0.02 * entropy
    assert float(policy.update.loss(rows).value.detach()) == pytest.approx(wanted, rel=1e-4)


def test_rows_in_the_buffer_are_of_the_last_rounds_and_keep_their_advantages(cwd: Any) -> None:
    main, create = config_pair(**toy('ppo_offpolicy') | dict(max_env_step=384))  # 3 rounds of 128
    rounds = []
    with SerialPipeline(compile_config(main, create, seed=0)) as pipeline:
        while not pipeline.finished:
            collected = pipeline._collect()
            rounds.append(collected['advantage'])
            pipeline._learn(collected)
        kept = pipeline.replay_buffer.sample(256, 0)  # all of them, none twice
    assert sorted(kept['advantage']) == sorted(np.concatenate(rounds[1:]))


def test_observations_are_normalised_once_as_the_network_saw_them() -> None:
    policy = made(normalize_obs=True)
    block = random_block(seed=1)
    rows = policy.collect_mode.get_train_sample(block)
    seen: list[Any] = []
    policy.train_step = lambda rows: seen.append(rows['obs']) or {}
    for update in policy.learn_mode.forward(rows):
        update()
    mean, std = block['obs'].mean((0, 1)), block['obs'].std((0, 1))
    wanted = (block['obs'].reshape(-1, 3) - mean) / std
    torch.testing.assert_close(seen[0], torch.from_numpy(wanted), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        (dict(policy_=dict(random_collect_size=8)), ['policy.random_collect_size', 'got 8, expected 0']),
        (dict(collect=dict(n_sample=30)), ['policy.collect.n_sample', '28 or 32']),
        (dict(learn=dict(epoch_per_collect=4)), ['policy.learn.epoch_per_collect', 'these policies have it']),
        (dict(model=dict(core='gru')), ['policy.model.core', 'these policies have it']),
    ],
)
def test_options_of_fresh_data_are_refused(options: dict[str, Any], words: list[str]) -> None:
    main, create = config_pair(policy='ppo_offpolicy', env_id='zoo:IdentityEnv', **options)
    with pytest.raises(ConfigError) as error:
        compile_config(main, create)
    assert all(word in str(error.value) for word in words), str(error.value)
