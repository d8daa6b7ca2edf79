"""Every registered policy takes what programs written for DI-engine give it: lists of rows, and observations by env.

To check your own: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_policy_rows.py``.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from checked_names import names_of
from error_texts import raises
from policies import slow_unless_it_acts_alone
from space_envs import SpaceEnv
from test_policy import collected, spec_for

from rlframe.data import EnvSpec
from rlframe.data.observation import pack_rows, zero_obs
from rlframe.errors import RLFrameError
from rlframe.policy import Policy, create_policy
from rlframe.policy.parts.random_policy import random_collect_mode, random_opponent
from rlframe.registry import POLICY_REGISTRY
from rlframe.worker import BaseLearner, to_tensor_transitions

NO_HOOKS = dict.fromkeys(('log_show_after_iter', 'save_ckpt_after_iter', 'save_ckpt_after_run'), False)


@pytest.fixture(params=names_of(POLICY_REGISTRY))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def make(name: str, spec: EnvSpec | None = None, **cfg: Any) -> Policy:
    torch.manual_seed(0)
    return create_policy({'type': name, 'device': 'cpu', **cfg}, spec or spec_for(name), seed=0)


def test_rows_of_any_form_train_as_the_batch_of_them_does(name: str) -> None:
    policy = make(name)
    data = collected(policy)
    before = copy.deepcopy(policy.learn_mode.state_dict())
    ends = []
    for rows in (data, list(data), tuple(to_tensor_transitions([dict(row) for row in data], False))):
        policy.learn_mode.load_state_dict(copy.deepcopy(before))
        assert BaseLearner({'hook': NO_HOOKS}, policy.learn_mode).train(rows, 100)
        weights = policy.collect_mode.state_dict()['model']
        ends.append({key: tensor.clone() for key, tensor in weights.items()})
    for got in ends[1:]:
        for key, tensor in ends[0].items():
            assert torch.equal(tensor, got[key]), key


def test_rows_that_do_not_fit_together_are_named() -> None:
    learner = BaseLearner({'hook': NO_HOOKS}, make('dqn').learn_mode)
    with raises(ValueError):
        learner.train([{'obs': 1, 'action': 0}, {'obs': 1}])


@pytest.fixture(params=slow_unless_it_acts_alone(names_of(POLICY_REGISTRY)))
def case(request: pytest.FixtureRequest) -> tuple[str, EnvSpec, list[Any]]:
    """A policy, the spec of an env and five observations of it, which have parts and, if it can be, a mask."""
    name: str = request.param
    kind = POLICY_REGISTRY.get(name).supported_actions.split(', ')[0]
    env = SpaceEnv('Dict', kind, 'obs' if 'Discrete' in kind else '')
    spec = EnvSpec(env.observation_space, env.action_space, name='Space')
    try:
        make(name, spec)
    except RLFrameError as error:
        pytest.skip(f'{name} cannot act there: {error}')
    return name, spec, [env.reset(seed=3)[0], *(env._answer()[0] for _ in range(4))]


def rows_of(spec: EnvSpec, seen: list[Any]) -> np.ndarray:
    rows = zero_obs(spec.observation_space, len(seen))
    pack_rows(seen, rows)
    return rows


IDS = [7, 0, 3, 12, 1]


@pytest.mark.parametrize('face', ['collect_mode', 'eval_mode'])
def test_observations_by_env_give_outputs_by_env(case: tuple[str, EnvSpec, list[Any]], face: str) -> None:
    name, spec, seen = case
    by_row, by_env = make(name, spec), make(name, spec)
    settings = by_row.command_mode.get_setting_collect({'envstep': 0}) if face == 'collect_mode' else {}
    for step in range(4):  # a recurrent policy goes on with what it remembers of each env
        ids, obs = IDS[step % 2 :], seen[step % 2 :]
        expected = getattr(by_row, face).forward(rows_of(spec, obs), np.array(ids), **settings)
        got = getattr(by_env, face).forward(dict(zip(ids, obs, strict=True)), **settings)
        assert list(got) == ids
        for i, env in enumerate(ids):
            assert set(got[env]) == set(expected.keys())
            assert spec.action_space.contains(got[env]['action'])
            for column in got[env]:
                np.testing.assert_array_equal(got[env][column], expected[column][i])
        if step == 1:
            for policy in (by_row, by_env):
                getattr(policy, face).reset([0, 12])
    forward = getattr(by_env, face).forward
    assert forward({}, **settings) == {} and list(forward(obs={3: seen[0]}, **settings)) == [3]
    assert len(forward(obs=rows_of(spec, seen), env_id=np.array(IDS), **settings)) == 5


def test_acting_at_random_takes_observations_by_env(case: tuple[str, EnvSpec, list[Any]]) -> None:
    name, spec, seen = case
    rng, obs = np.random.default_rng(0), dict(zip(IDS, seen, strict=True))
    policy = make(name, spec)
    face = random_collect_mode(policy.collect_mode, spec, rng, policy.is_recurrent)
    for output in (face.forward(obs), random_opponent(spec, 0).forward(obs)):
        assert list(output) == IDS
        assert all(spec.action_space.contains(one['action']) for one in output.values())


def test_what_is_no_observation_is_refused_by_the_name_of_its_env() -> None:
    policy = make('dqn')
    good = policy.spec.observation_space.sample()
    with raises(ValueError):
        policy.eval_mode.forward({1: good, 4: good[:-1]})
    with pytest.raises(TypeError, match='their env ids'):
        policy.collect_mode.forward(good[None], eps=0.1)
