"""Every policy solves CartPole or Pendulum with the defaults of ``rlframe train --env ENV --policy POLICY``."""

from __future__ import annotations

from pathlib import Path

import pytest
from policies import learns_from_data

import rlframe
from rlframe.registry import POLICY_REGISTRY

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
    'droq': '20 updates for each env step take more than ten minutes; its parts are those of sac',
    'edac': 'gradients of the gradients of ten critics take more than ten minutes; test_edac.py solves it by its config',
    'redq': '20 updates of ten critics for each env step take more than ten minutes; its parts are those of sac',
} | {name: 'learns from recorded data' for name in POLICY_REGISTRY.names() if learns_from_data(name)}


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
