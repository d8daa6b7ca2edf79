"""Options that contradict each other, or the policy, are refused by name and with what would do."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rlframe.config import compile_config
from rlframe.errors import ConfigError
from rlframe.registry import POLICY_REGISTRY

GRU, LSTM = (dict(model=dict(core=core)) for core in ('gru', 'lstm'))
BATCH = dict(model=dict(norm='batch'))
FRESH: list[tuple[str, dict[str, Any], list[str]]] = [
    # a core that learns from fresh data, in 8 envs
    (
        'ppo',
        LSTM | dict(collect=dict(n_sample=8)),
        ['policy.collect.n_sample', 'at least 2 steps', 'expected 16'],
    ),
    (
        'ppo',
        LSTM | dict(collect=dict(n_sample=160), learn=dict(unroll_len=16)),
        ['sequences would be cut', 'n_sample', 'got 160', 'expected 128 or 256'],
    ),
    (
        'ppo',
        LSTM | dict(collect=dict(n_sample=1024), learn=dict(batch_size=64, unroll_len=128)),
        ['policy.learn.batch_size', '128 steps', 'got 64', 'at least 128', 'policy.learn.unroll_len'],
    ),
    (
        'ppo',
        LSTM | dict(collect=dict(unroll_len=4)),
        ['policy.collect.unroll_len', 'got 4', 'expected 1; learn.unroll_len'],
    ),
    (
        'ppo',
        dict(learn=dict(unroll_len=8)),
        ['policy.learn.unroll_len', 'core is None', 'got 8', "model.core='lstm'"],
    ),
    ('dqn', LSTM, ['these policies have it: a2c,']),
    # modes of computing
    (
        'ppo',
        LSTM | dict(compile=True),
        ['policy.compile', 'a recurrent core', 'change their shapes', 'expected False'],
    ),
    ('ppo', GRU | dict(cuda_graph=True), ['policy.cuda_graph', 'a core have sequences', 'expected False']),
    ('dqn', dict(precision='fp16'), ['policy.precision', "'fp32', 'tf32'", 'bf16']),
    # what needs replay
    ('pqn', dict(nstep=3), ['policy.nstep']),
    ('pqn', dict(learn=dict(target_update_freq=100)), ['policy.learn.target_update_freq']),
    ('pqn', dict(priority=True), ['policy.priority']),
    # target networks, priorities, distributions
    (
        'dqn',
        dict(learn=dict(target_theta=0.1)),
        ['policy.learn.target_theta', 'set one of target_update_freq'],
    ),
    ('dqn', dict(learn=dict(target_update_freq=None)), ['set one of target_update_freq']),
    ('dqn', dict(priority_IS_weight=True), ['policy.priority_IS_weight', 'needs policy.priority=True']),
    ('c51', dict(model=dict(v_min=1.0, v_max=1.0)), ['policy.model.v_max', 'more than v_min=1.0']),
    (
        'c51',
        dict(learn=dict(kappa=1.0)),
        ['policy.learn.kappa', 'these policies have it: dqn, fqf, iqn,'],
    ),
    # entropy and noise
    *(
        ('sac', dict(learn=dict(alpha=alpha)), ['learn.alpha', "'auto', or a number >= 0"])
        for alpha in ('no', -0.1, math.nan)
    ),
    ('sac_discrete', dict(collect=dict(noise_correlation=0.5)), ['noise_correlation']),
    # options of critics
    ('sac', BATCH, ['policy.model.norm', "got 'batch', expected one of None, 'layer'"]),
    (
        'sac',
        dict(model=dict(n_atom=11)),
        ['policy.model.n_atom', 'these policies have it: c51,'],
    ),
    ('sac', dict(learn=dict(target_critics=3)), ['these policies have it: redq']),
    (
        'crossq',
        dict(learn=dict(batch_size=1)),
        ['policy.learn.batch_size', 'no spread', 'got 1', '2 or more'],
    ),
    ('ddpg', dict(model=dict(n_critic=2)), ['n_critic', 'twin_critic=False is one critic']),
    ('sac', dict(model=dict(residual_blocks=1, norm='layer')), ['model.residual_blocks', 'model.norm=None']),
    ('td3', dict(model=dict(residual_blocks=1, encoder_hidden_size_list=[])), ['as wide as the last hidden']),
    (
        'tqc',
        dict(model=dict(num_quantiles=3), learn=dict(dropped_quantiles=3)),
        ['no quantile would be left'],
    ),
    ('crossq', dict(learn=dict(dropped_quantiles=1)), ['a critic has no quantiles']),
    ('xqc', dict(model=dict(n_atom=11, v_min=2.0, v_max=2.0)), ['v_max', 'more than v_min=2.0']),
    ('redq', dict(model=dict(n_critic=1)), ['there are fewer critics', 'got 2, expected at most 1']),
    ('appo', dict(learn=dict(clip_c=2.0)), ['policy.learn.clip_c', 'clip_rho=1.0', 'at most 1.0']),
]
REPLAYED: list[tuple[str, dict[str, Any], str, list[str]]] = [
    ('sac_discrete', GRU, 'naive', ['policy.other.replay_buffer.type', "got 'naive'", "'sequence'"]),
    ('td3', GRU | dict(collect=dict(unroll_len=4)), 'sequence', ['expected 1;', 'that of the replay buffer']),
    ('td3', GRU | dict(compile=True), 'sequence', ['policy.compile', 'got True', 'expected False']),
    (
        'crossq',
        GRU,
        'sequence',
        ['policy.model.core', 'CrossQPolicy have layers', 'norm', "got 'gru', expected None"],
    ),
    ('droq', GRU, 'sequence', ['policy.model.norm', "got 'layer', expected None"]),
    ('r2d2', {}, 'advanced', ["expected 'sequence'"]),
    ('r2d2', dict(priority=True), 'sequence', ['whether it draws by them']),
    ('pqn', {}, 'naive', ['replay_buffer']),
]
"""With a replay buffer."""


@pytest.mark.parametrize(
    ('name', 'policy', 'buffer', 'words'),
    [*((name, policy, None, words) for name, policy, words in FRESH), *REPLAYED],
)
def test_options_that_do_not_go_together_are_named_with_what_does(
    name: str, policy: dict[str, Any], buffer: str | None, words: list[str]
) -> None:
    is_box = POLICY_REGISTRY.get(name).supported_actions.startswith('Box')
    env = dict(env_id='Pendulum-v1' if is_box else 'CartPole-v1', collector_env_num=8)
    create: dict[str, Any] = dict(policy=dict(type=name))
    if buffer is not None:
        create |= dict(replay_buffer=dict(type=buffer), collector=dict(mark_episodes=True))
    with pytest.raises(ConfigError) as caught:
        compile_config(dict(env=env, policy=policy), create)
    assert all(word in str(caught.value) for word in words), str(caught.value)
