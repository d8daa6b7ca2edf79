"""Policies with ``eval.deterministic=False`` or an ``eval.eps`` are evaluated by actions that are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from zoo import IdentityEnv, TargetEnv

from rlframe.data import EnvSpec
from rlframe.errors import ConfigError
from rlframe.policy import Policy, create_policy

DISCRETE = EnvSpec(IdentityEnv.observation_space, IdentityEnv.action_space, name='Identity')
CONTINUOUS = EnvSpec(TargetEnv.observation_space, TargetEnv.action_space, name='Target')
CASES: dict[str, tuple[EnvSpec, dict[str, Any]]] = {
    'ppo': (DISCRETE, {}),
    'sac with a memory': (CONTINUOUS, {'model': {'core': 'gru'}}),
    'sac_discrete with a memory': (DISCRETE, {'model': {'core': 'lstm'}}),
    'dqn': (DISCRETE, {}),
    'r2d2': (DISCRETE, {}),
}
ROWS = 64


def make(case: str, deterministic: bool, **options: Any) -> tuple[Policy, Any]:
    """Returns a policy of this case, and observations of 64 envs."""
    spec, cfg = CASES[case]
    torch.manual_seed(0)
    name = case.partition(' ')[0]
    drawn = (
        {'eps': 0.0 if deterministic else 0.5}
        if name in ('dqn', 'r2d2')
        else {'deterministic': deterministic}
    )
    policy = create_policy({'type': name, 'device': 'cpu', **cfg, 'eval': drawn}, spec, **options)
    space: Any = spec.observation_space
    space.seed(0)
    return policy, np.stack([space.sample() for _ in range(ROWS)])


def played(policy: Policy, obs: Any, steps: int = 3) -> np.ndarray:
    """Returns the actions of an evaluation that begins now."""
    face = policy.eval_mode
    face.reset(None)
    return np.stack([face.forward(obs, np.arange(ROWS))['action'] for _ in range(steps)])


@pytest.mark.parametrize('case', CASES)
def test_draws_differ_and_begin_anew_with_every_evaluation(case: str) -> None:
    policy, obs = make(case, deterministic=False, seed=3)
    first = played(policy, obs)
    assert (first[0] != first[1]).any(), 'an action is drawn at every step'
    np.testing.assert_array_equal(played(policy, obs), first)
    other, _ = make(case, deterministic=False, seed=4)
    assert (played(other, obs) != first).any(), 'another seed draws others'
    best, _ = make(case, deterministic=True)
    assert played(best, obs).shape == first.shape and (played(best, obs) != first).any()


@pytest.mark.parametrize('case', CASES)
def test_draws_leave_collection_as_it_is(case: str) -> None:
    """Neither exploration nor greedy collection depends on how, or whether, the policy is evaluated."""

    def collected(deterministic: bool, faces: tuple[str, ...]) -> list[np.ndarray]:
        policy, obs = make(case, deterministic)
        played(policy, obs)
        return [getattr(policy, face).forward(obs, np.arange(ROWS))['action'] for face in faces]

    faces = ('greedy_collect_mode', 'collect_mode')
    for got, wanted in zip(collected(False, faces), collected(True, faces), strict=True):
        np.testing.assert_array_equal(got, wanted)
    policy, obs = make(case, deterministic=True)
    np.testing.assert_array_equal(collected(False, faces)[0], played(policy, obs)[0])


def test_draws_follow_the_distribution() -> None:
    policy, obs = make('ppo', deterministic=False)
    same = np.repeat(obs[:1], ROWS, axis=0)
    actions = played(policy, same, steps=200).reshape(-1)
    with torch.no_grad():
        share = torch.softmax(policy.model.logit(policy.tensor(same[:1])), 1)[0].numpy()
    found = np.bincount(actions, minlength=len(share)) / len(actions)
    np.testing.assert_allclose(found, share, atol=4 * np.sqrt(0.25 / len(actions)))


def test_a_share_of_the_actions_of_dqn_is_random() -> None:
    policy, obs = make('dqn', deterministic=False)
    best, _ = make('dqn', deterministic=True)
    is_other = played(policy, obs, steps=100) != played(best, obs, steps=100)
    expected = 0.5 * (1 - 1 / DISCRETE.action_space.n)
    assert is_other.mean() == pytest.approx(expected, abs=4 * np.sqrt(0.25 / is_other.size))


def test_a_policy_without_a_distribution_knows_no_such_option() -> None:
    with raises(ConfigError):
        create_policy({'type': 'dqn', 'eval': {'deterministic': False}}, DISCRETE)
