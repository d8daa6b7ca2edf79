"""Estimates from recorded data agree with the true return of a policy, where that is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import rlframe
from rlframe.app.collect import CollectRequest, collect
from rlframe.data import EnvSpec
from rlframe.data.recording import Recording
from rlframe.errors import ConfigError
from rlframe.worker.evaluator.off_policy import ESTIMATES, SOFTNESS, EstimateSettings, OffPolicyMetric

SPEC = EnvSpec(spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(2), name='Chain')
LENGTH, DISCOUNT = 3, 0.9


def chain(count: int, is_known: bool) -> Recording:
    """Returns episodes of random actions, 1 with probability 0.6; action 1 is worth 1, action 0 nothing."""
    rng = np.random.default_rng(0)
    step = np.tile(np.arange(LENGTH), count)
    action = (rng.random(len(step)) < 0.6).astype(np.int64)
    kind = np.repeat(rng.random(count), LENGTH)
    columns = {
        'obs': np.stack([step, kind], 1).astype(np.float32),
        'next_obs': np.stack([step + 1, kind], 1).astype(np.float32),
        'action': action,
        'reward': action.astype(np.float32),
        'terminated': step == LENGTH - 1,
        'truncated': np.zeros(len(step), bool),
        'episode': np.repeat(np.arange(count), LENGTH),
    }
    if is_known:
        columns['action_prob'] = np.where(action == 1, 0.6, 0.4)
    return Recording(columns, {}, 'made', 'made')


@pytest.mark.parametrize('is_known', [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize('kind', ESTIMATES)
@pytest.mark.parametrize('choice', [0, pytest.param(1, marks=pytest.mark.slow)])
def test_estimates_are_those_of_the_policy_and_not_of_the_data(
    kind: str, is_known: bool, choice: int
) -> None:
    metric = OffPolicyMetric(chain(1500, is_known), SPEC, EstimateSettings(kind, DISCOUNT, 600), 'data')
    found = metric.score(lambda obs: np.full(len(obs), choice))
    chance = float(choice) if kind == 'fqe' else SOFTNESS / 2 + (1 - SOFTNESS) * choice
    true = chance * sum(DISCOUNT**t for t in range(LENGTH))
    assert found[kind] == pytest.approx(true, abs=0.15)
    assert found['low'] <= found[kind] <= found['high']
    if kind in ('pdis', 'wis') and is_known:
        assert found['low'] - 0.02 <= true <= found['high'] + 0.02


@pytest.mark.parametrize('is_known', [True, False])
@pytest.mark.parametrize('kind', ESTIMATES)
def test_the_same_policy_has_the_same_estimate(kind: str, is_known: bool) -> None:
    metric = OffPolicyMetric(chain(30, is_known), SPEC, EstimateSettings(kind, DISCOUNT, 20), 'data')
    one, other = (metric.score(lambda obs: np.zeros(len(obs), int)) for _ in range(2))
    assert one == other


def test_an_estimate_says_what_it_needs() -> None:
    continuous = EnvSpec(SPEC.observation_space, spaces.Box(-1, 1, (1,)), name='Chain')
    with pytest.raises(ConfigError, match=r'eval\.estimate: importance .* needs discrete actions.*fqe'):
        OffPolicyMetric(chain(3, True), continuous, EstimateSettings('wis', 0.9, 1), 'eval.data')
    pairs = Recording({'obs': np.zeros((3, 2)), 'action': np.zeros(3)}, {}, '', '')
    with pytest.raises(ConfigError, match=r"needs \['next_obs', 'reward', 'terminated'\]"):
        OffPolicyMetric(pairs, SPEC, EstimateSettings('fqe', 0.9, 1), 'data')


def test_a_run_is_scored_by_an_estimate(cwd: Path) -> None:
    collect(None, CollectRequest(400, 'data.npz'), env='CartPole-v1')
    overrides: dict[str, Any] = {
        'policy.collect.collector.data': 'data.npz',
        'policy.eval.evaluator.type': 'metric',
        'policy.eval.evaluator.data': 'data.npz',
        'policy.eval.evaluator.estimate': 'fqe',
        'policy.eval.evaluator.updates': 50,
        'policy.eval.evaluator.eval_freq': 5,
        'policy.eval.evaluator.stop_value': None,
    }
    main = dict(env=dict(env_id='CartPole-v1'), policy=dict(), max_train_iter=10, exp_name='x')
    create = dict(
        env=dict(type='gym'),
        policy=dict(type='bc'),
        collector=dict(type='dataset'),
        evaluator=dict(type='metric'),
    )
    run = rlframe.train((main, create), folder='run', progress=False, overrides=overrides)
    assert np.isfinite(run.best) and 'eval/fqe' in run.metrics().tags
