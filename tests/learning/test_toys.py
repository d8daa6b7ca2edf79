"""Each policy learns a toy env in seconds, whatever part of an observation matters, and CartPole or Pendulum by its defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import config_pair
from memory import RECALLING
from policies import learns_from_data, needs_data
from space_envs import STEPS
from toys import DQN, PPO, TOYS, toy

import rlframe
from rlframe import config
from rlframe.pipeline import SerialPipeline
from rlframe.registry import POLICY_REGISTRY


def run(**sections: Any) -> SerialPipeline:
    main, create = config_pair(**sections)
    with SerialPipeline(config.compile_config(main, create, seed=0)) as pipeline:
        pipeline.run()
    return pipeline


OFTEN = {'dqn', 'ppo'}
"""Toys that are tried every time."""


@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize(
    'name', [pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.slow]) for name in TOYS]
)
def test_policy_learns_to_name_the_class_it_sees(name: str) -> None:
    options = toy(name)
    pipeline = run(evaluator=dict(eval_freq=100), max_env_step=12_000, **options)
    assert pipeline.stopped and pipeline.evaluator.best >= options['env']['stop_value'], (
        'the best possible return is 8'
    )


def expected_value(nstep: int) -> float:
    """Returns the value of the state whose every fifth step is the last: V = 1 + 0.9 * 0.8 * V for ``nstep`` 1."""
    rewards = [sum(0.9**k for k in range(min(nstep, left))) for left in (5, 4, 3, 2, 1)]
    goes_on = sum(left > nstep for left in (5, 4, 3, 2, 1)) / 5
    return float(np.mean(rewards)) / (1 - goes_on * 0.9**nstep)


ENDS = [(1, 'truncated', 10.0), (3, 'terminated', None)]
"""Steps of a target, how the episode ends, and the value, if it is not that of ``expected_value``."""


@pytest.mark.usefixtures('cwd')
@pytest.mark.slow
@pytest.mark.parametrize(('nstep', 'ending', 'value'), ENDS)
@pytest.mark.parametrize(('policy', 'model'), [('dqn', {}), ('c51', dict(v_min=0.0, v_max=12.0, n_atom=25))])
def test_value_of_endless_reward_1_is_10_behind_a_time_limit_and_less_before_an_end(
    nstep: int, ending: str, value: float | None, policy: str, model: dict[str, Any]
) -> None:
    pipeline = run(
        env_id='zoo:OneStateEnv',
        policy=policy,
        env=dict(kwargs=dict(ending=ending)),
        learn=dict(batch_size=64, learning_rate=3e-2, target_update_freq=10, update_per_collect=8),
        model=dict(encoder_hidden_size_list=[], **model),
        policy_=dict(discount_factor=0.9, nstep=nstep),
        other=dict(eps=0.5),
        max_train_iter=700,
    )
    with torch.no_grad():
        q = pipeline.policy.q_value(np.ones((1, 1), np.float32)).numpy()
    np.testing.assert_allclose(q, expected_value(nstep) if value is None else value, atol=0.5)


@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize(('nstep', 'ending', 'value'), ENDS)
@pytest.mark.slow
@pytest.mark.parametrize('policy', ['td3', 'sac_discrete'])
def test_critics_say_so_too(nstep: int, ending: str, value: float | None, policy: str) -> None:
    is_discrete = policy == 'sac_discrete'
    pipeline = run(
        env_id='zoo:OneStateEnv' if is_discrete else 'zoo:OneStateBoxEnv',
        policy=policy,
        env=dict(kwargs=dict(ending=ending)),
        learn=dict(
            **dict(batch_size=64, learning_rate_critic=5e-2, target_theta=0.2, update_per_collect=8),
            **(dict(alpha=0.0) if 'sac' in policy else {}),  # entropy is worth nothing
        ),
        collect=dict(n_sample=8) | ({} if 'sac' in policy else dict(noise_sigma=1.0)),
        evaluator=dict(eval_freq=600),
        model=dict(encoder_hidden_size_list=[]),
        policy_=dict(discount_factor=0.9, nstep=nstep, random_collect_size=200),
        max_train_iter=600,
    )
    obs, action = torch.ones(1, 1), None if is_discrete else torch.zeros(1, 2)
    with torch.no_grad():
        q = pipeline.policy.model.critic(obs, action).numpy()
    np.testing.assert_allclose(q, expected_value(nstep) if value is None else value, atol=0.5)


@pytest.mark.usefixtures('cwd')
@pytest.mark.slow
def test_memory_names_the_class_that_was_seen_five_steps_ago() -> None:
    recall = dict(env_id='zoo:RecallEnv', env=dict(stop_value=0.99, n_evaluator_episode=40))
    pipeline = run(evaluator=dict(eval_freq=100), max_env_step=24_000, **toy('r2d2') | recall)
    assert pipeline.stopped, 'by chance it is 1/3'


@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize(
    'name', [pytest.param('BoxEnv', marks=pytest.mark.slow), 'MultiDiscreteEnv', 'MultiBinaryEnv']
)
def test_ppo_learns_the_right_action_of_every_kind(name: str) -> None:
    pipeline = run(
        env_id=f'zoo:{name}',
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


@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize(
    ('policy', 'learn', 'normalize_obs', 'ending', 'value'),
    [
        pytest.param('ppo', dict(value_norm=True), False, 'terminated', LAST_5, marks=pytest.mark.slow),
        ('ppo', dict(value_clip=1.0), True, 'truncated', 10.0),
    ],
)
def test_critic_values_endless_reward_1_at_10_behind_a_time_limit_and_at_less_before_an_end(
    policy: str, learn: dict[str, Any], normalize_obs: bool, ending: str, value: float
) -> None:
    pipeline = run(
        env_id='zoo:OneStateEnv',
        policy=policy,
        env=dict(kwargs=dict(ending=ending)),
        learn=dict(batch_size=None, learning_rate=5e-2, epoch_per_collect=20) | learn,
        model=dict(encoder_hidden_size_list=[]),
        collect=dict(n_sample=20, discount_factor=0.9, gae_lambda=1.0),
        policy_=dict(normalize_obs=normalize_obs),
        evaluator=dict(eval_freq=500),
        max_train_iter=500,
    )
    obs = np.full((1, 1), 0.0 if normalize_obs else 1.0, np.float32)
    np.testing.assert_allclose(pipeline.policy._values(obs), value, atol=0.1)


CORE = dict(encoder_hidden_size_list=[16], core='gru', core_hidden_size=16)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    'dqn dict mask': (DQN | dict(policy_=dict(discount_factor=0.5, nstep=2)), dict(obs='Dict', mask='info')),
    'dqn image': (DQN, dict(obs='Box (image)', mask='obs')),
    'ppo lstm dict mask': (
        PPO | dict(model=CORE | dict(core='lstm')),
        dict(obs='Dict', mask='info', action='Dict'),
    ),
    'ppo tuple actions': (PPO, dict(action='Tuple')),
    'sac_discrete gru tuple mask': (
        dict(policy='sac_discrete', model=CORE, **RECALLING['sac_discrete']),
        dict(obs='Tuple', mask='info'),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', CASES)
def test_policy_learns_the_class_whatever_shows_it(name: str, cwd: Path) -> None:
    sections, kwargs = CASES[name]
    main, create = config_pair(
        env_id='space_envs:SpaceEnv',
        env=dict(stop_value=STEPS - 0.1, n_evaluator_episode=10, kwargs=kwargs),
        evaluator=dict(eval_freq=100),
        max_env_step=12_000,
        **sections,
    )
    with SerialPipeline(config.compile_config(main, create, seed=0)) as pipeline:
        pipeline.run()
    assert pipeline.stopped and pipeline.evaluator.best >= STEPS - 0.1


GOALS = {'CartPole-v1': 475.0, 'Pendulum-v1': -200.0}
"""Mean return of an evaluation that solves an env: the reward threshold, and for an env without one the usual number."""
QUICK = {'dqn', 'mdqn'} | {
    n for n in POLICY_REGISTRY.names() if POLICY_REGISTRY.get(n).default_config().on_policy
}
"""Policies that are tried with three seeds, as they need a few seconds; the others with one."""
LEARNS: dict[str, tuple[str, int]] = {
    name: solves for name in POLICY_REGISTRY.names() if (solves := POLICY_REGISTRY.get(name).solves)
}
"""Env and budget in env steps."""
EXEMPT = {
    'pdqn': 'has hybrid actions, which neither env has; it learns its toy, and the config moving_pdqn',
    'maddpg_discrete': 'critics of the choices of several agents; it learns its toy and the two-step game',
    'masac_discrete': 'critics of the choices of several agents; it learns its toy and the two-step game',
    'edac': 'gradients of the gradients of ten critics take more than ten minutes; test_edac.py solves it by its config',
} | {
    name: 'learns from recorded data'
    for name in POLICY_REGISTRY.names()
    if learns_from_data(name) or needs_data(name)
}


def test_every_policy_is_tried_or_exempt_for_a_reason() -> None:
    assert sorted([*LEARNS, *EXEMPT]) == POLICY_REGISTRY.names()


@pytest.mark.slow
@pytest.mark.parametrize(
    ('policy', 'seed'), [(policy, seed) for policy in LEARNS for seed in range(3 if policy in QUICK else 1)]
)
def test_the_defaults_of_a_policy_solve_its_env(policy: str, seed: int, tmp_path: Path) -> None:
    env, budget = LEARNS[policy]
    run = rlframe.train(
        env=env,
        policy=policy,
        seed=seed,
        max_env_step=budget,
        stop_value=GOALS[env],
        folder=tmp_path / 'run',
        progress=False,
    )
    assert run.solved, f'{run.best} after {run.progress.envstep:,} env steps'
