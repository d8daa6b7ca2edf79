"""Every registered policy records what it collects greedily or at random, with its memory and its normalisation.

To check your own: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_policy_faces.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from checked_names import names_of
from policies import slow_unless_it_acts_alone
from test_policy import ENVS, spec_for, train

from rlframe.backend.ray.arguments import ActorArguments, MakeFromPython
from rlframe.data import Batch
from rlframe.envs.env_manager import BaseEnvManager
from rlframe.policy import Policy, create_policy
from rlframe.policy.parts.random_policy import random_collect_mode
from rlframe.registry import POLICY_REGISTRY
from rlframe.worker import SampleSerialCollector, SequenceReplayBuffer

NORMALIZED = {'normalize_obs': True, 'normalize_reward': True}
SETTINGS = {'eps': 0.9, 'unknown': 1}
"""What a collector may pass to a face that does not explore."""


@pytest.fixture(params=names_of(POLICY_REGISTRY))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def make(name: str, cfg: dict[str, Any]) -> Policy:
    torch.manual_seed(0)
    return create_policy({'type': name, 'device': 'cpu', **cfg}, spec_for(name), seed=0)


def greedy_parts(policy: Policy) -> Any:
    """Returns what collects in an actor of ``RayCollector(..., exploration_type='deterministic')``."""
    env: Any = ENVS[type(policy.spec.action_space).__name__]
    collector = {'type': 'sample', 'mark_episodes': True}
    return MakeFromPython({0: ActorArguments(env, {}, 4, collector)}, policy, explores=False)(0, 0)


def check_trains(policy: Policy, rows: Batch) -> None:
    if policy.is_recurrent:
        buffer = SequenceReplayBuffer(None)
        buffer.push(rows, 0)
        rows = buffer.sample(8, 5, 0)
    assert all(np.isfinite(float(metrics['total_loss'])) for metrics in train(policy, rows))


def test_what_is_collected_greedily_is_what_evaluation_does_and_trains(name: str) -> None:
    policy = make(name, {})
    parts = greedy_parts(policy)
    parts.trained.load_state_dict(policy.collect_mode.state_dict())
    rows = parts.collector.collect(64, policy_kwargs=SETTINGS)
    parts.collector.close()
    if not policy.is_recurrent and 'obs' in rows and 'reward' in rows:
        obs, env_id = rows['obs'], np.arange(len(rows))
        greedy = make(name, {}).greedy_collect_mode.forward(obs, env_id, **SETTINGS)
        best = policy.eval_mode.forward(obs, env_id)['action']
        np.testing.assert_array_equal(greedy['action'], best)
    check_trains(policy, rows)


@pytest.mark.parametrize('name', slow_unless_it_acts_alone(names_of(POLICY_REGISTRY)))
def test_a_greedy_face_forgets_the_episodes_of_the_envs_that_are_reset(name: str) -> None:
    policy = make(name, {})
    space: Any = policy.spec.observation_space
    space.seed(0)
    ids, face = np.arange(3), policy.greedy_collect_mode
    obs = [np.stack([space.sample() for _ in ids]) for _ in range(4)]
    for seen in obs[:3]:
        acted, best = face.forward(seen, ids, **SETTINGS), policy.eval_mode.forward(seen, ids)
        np.testing.assert_array_equal(acted['action'], best['action'])
    face.reset(ids[:1])
    after, fresh = face.forward(obs[3], ids), make(name, {}).greedy_collect_mode.forward(obs[3], ids)
    for column in dict(after.items()):
        np.testing.assert_array_equal(after[column][0], fresh[column][0])


@pytest.mark.parametrize('cfg', [{}, NORMALIZED], ids=['raw', 'normalized'])
def test_what_is_collected_at_random_has_the_memory_and_trains(name: str, cfg: dict[str, Any]) -> None:
    policy = make(name, cfg)
    if policy.get_attribute('on_policy'):
        pytest.skip('it learns from its own actions only')
    spec = policy.spec
    face = random_collect_mode(policy.collect_mode, spec, np.random.default_rng(0), policy.is_recurrent)
    env = BaseEnvManager([ENVS[type(spec.action_space).__name__]] * 4)
    rows = SampleSerialCollector({'mark_episodes': True}, env, face).collect(64, policy_kwargs=SETTINGS)
    if cfg:
        assert policy._normalizer.state_dict()['normalizer']['obs.count'] == 64
    check_trains(policy, rows)
