"""Likelihoods: what a policy says of how likely its actions are sums up to 1, also with normalised observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from policy_toys import OBS, PLAIN, random_rows

from rlframe.data import EnvSpec
from rlframe.policy import create_policy

CONTINUOUS = EnvSpec(OBS, spaces.Box(-1, 1, (2,), np.float32), name='Toy-v0')


@pytest.mark.parametrize(
    ('kind', 'spec'), [('ppo', PLAIN), ('ppo', CONTINUOUS), ('sac', CONTINUOUS), ('sac_discrete', PLAIN)]
)
def test_a_policy_says_how_likely_its_actions_are(kind: str, spec: EnvSpec) -> None:
    policy = create_policy({'type': kind, 'cuda': False}, spec, seed=0)
    obs = random_rows(2).columns['obs'][:1]
    likelihood = policy.learn_mode.get_attribute('likelihood')
    if spec is PLAIN:
        actions = np.arange(4)
        volume = 1.0
    else:  # the density over a grid of [-1, 1]^2, or of 8 deviations of a Gaussian that is not squashed
        edge = 1.0 if kind == 'sac' else 8.0
        cells = 400
        side = (np.arange(cells) + 0.5) / cells * 2 * edge - edge
        actions = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2).astype(np.float32)
        volume = (2 * edge / cells) ** 2
    prob = np.exp(likelihood(np.repeat(obs, len(actions), 0), actions))
    assert prob.sum() * volume == pytest.approx(1, abs=0.01)


def test_observations_are_normalised_as_for_acting() -> None:
    policy: Any = create_policy({'type': 'ppo', 'cuda': False, 'normalize_obs': True}, PLAIN, seed=0)
    rows = random_rows(50)
    policy._normalizer.read(lambda: [rows])
    found = policy.learn_mode.get_attribute('likelihood')(rows['obs'], rows['action'])
    logit = policy.collect_mode.forward(rows['obs'], np.arange(50))['logit']
    np.testing.assert_allclose(found, policy.distribution.log_prob(logit, rows['action']), rtol=1e-5)


def test_a_policy_without_a_distribution_or_with_a_core_says_nothing() -> None:
    for options in ({'type': 'dqn'}, {'type': 'ppo', 'model': {'core': 'lstm'}}):
        policy = create_policy({'cuda': False, **options}, PLAIN, seed=0)
        assert policy.learn_mode.get_attribute('likelihood') is None
