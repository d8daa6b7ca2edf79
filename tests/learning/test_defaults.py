"""Every policy solves CartPole or Pendulum with the defaults of ``rlframe train --env ENV --policy POLICY``."""

from __future__ import annotations

from pathlib import Path

import pytest

import rlframe
from rlframe.registry import POLICY_REGISTRY

GOALS = {'CartPole-v1': 475.0, 'Pendulum-v1': -200.0}
"""Mean return of an evaluation that solves an env: the reward threshold, and for an env without one the usual number."""
QUICK = (0, 1, 2)
"""Seeds of policies that need a few seconds."""
LEARNS: dict[str, tuple[str, int, tuple[int, ...]]] = {
    'a2c': ('CartPole-v1', 60_000, QUICK),
    'appo': ('CartPole-v1', 40_000, QUICK),
    'c51': ('CartPole-v1', 40_000, (0,)),
    'crossq': ('Pendulum-v1', 6_000, (0,)),
    'ddpg': ('Pendulum-v1', 8_000, (0,)),
    'dqn': ('CartPole-v1', 40_000, QUICK),
    'fqf': ('CartPole-v1', 60_000, (0,)),
    'impala': ('CartPole-v1', 100_000, QUICK),
    'iqn': ('CartPole-v1', 40_000, (0,)),
    'mdqn': ('CartPole-v1', 40_000, QUICK),
    'pg': ('CartPole-v1', 80_000, QUICK),
    'ppo': ('CartPole-v1', 40_000, QUICK),
    'pqn': ('CartPole-v1', 60_000, QUICK),
    'qrdqn': ('CartPole-v1', 40_000, (0,)),
    'r2d2': ('CartPole-v1', 40_000, (0,)),
    'rainbow': ('CartPole-v1', 40_000, (0,)),
    'sac': ('Pendulum-v1', 8_000, (0,)),
    'sac_discrete': ('CartPole-v1', 40_000, (0,)),
    'sql': ('CartPole-v1', 40_000, (0,)),
    'sqn': ('CartPole-v1', 80_000, (0,)),
    'td3': ('Pendulum-v1', 8_000, (0,)),
    'tqc': ('Pendulum-v1', 6_000, (0,)),
    'xqc': ('Pendulum-v1', 6_000, (0,)),
}
"""Env, budget in env steps, and seeds."""
EXEMPT = {
    'bc': 'learns from recorded data',
    'droq': '20 updates for each env step take more than ten minutes; its parts are those of sac',
    'redq': '20 updates of ten critics for each env step take more than ten minutes; its parts are those of sac',
}


def test_every_policy_is_tried_or_exempt_for_a_reason() -> None:
    assert sorted([*LEARNS, *EXEMPT]) == POLICY_REGISTRY.names()


@pytest.mark.slow
@pytest.mark.parametrize(
    ('policy', 'seed'), [(policy, seed) for policy, (*_, seeds) in LEARNS.items() for seed in seeds]
)
def test_the_defaults_of_a_policy_solve_its_env(policy: str, seed: int, tmp_path: Path) -> None:
    env, budget, _ = LEARNS[policy]
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
