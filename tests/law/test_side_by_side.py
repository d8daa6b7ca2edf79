"""What a run learns depends on its own seed alone, whoever else draws random numbers in the process."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import config_pair
from memory import R2D2
from runs import differences
from toys import toy_of_policy

from rlframe import config
from rlframe.pipeline import SerialPipeline
from rlframe.registry import POLICY_REGISTRY

ROUNDS = 5
FAST = 'rainbow', 'r2d2 noisy'
CASES = {
    **{name: (name, {}) for name in POLICY_REGISTRY.names() if POLICY_REGISTRY.is_builtin(name)},
    'r2d2 noisy': ('r2d2', dict(noisy=True)),
    'iqn noisy': ('iqn', dict(noisy=True)),
    'sac gru': ('sac', dict(core='gru')),
    'ppo lstm': ('ppo', dict(core='lstm')),
}
"""A name to a policy and options of its network."""


def begun(case: str, seed: int, **policy_: Any) -> SerialPipeline:
    policy, model = CASES[case]
    options = toy_of_policy(policy)
    options['model'] = options.get('model', {}) | model
    options['policy_'] = options.get('policy_', {}) | policy_
    if case == 'sac gru':
        options |= dict(buffer=dict(type='sequence'), collector=R2D2['collector'])
    cfg = config.compile_config(*config_pair(**options), seed=seed)
    return SerialPipeline(cfg)


def draw() -> None:
    """Draws from all global generators, as a user's program may at any time."""
    torch.rand(7)
    np.random.rand(7)  # noqa: NPY002  the global generator is meant
    random.random()


def alone(case: str, seed: int, **policy_: Any) -> dict[str, Any]:
    with begun(case, seed, **policy_) as run:
        for _ in range(ROUNDS):
            run.step()
        assert run.progress.train_iter
        return run.policy.learn_mode.state_dict()


def beside(case: str, *seeds: int, **policy_: Any) -> list[dict[str, Any]]:
    """Returns the states of runs that take turns; each begins when the one before has done two rounds."""
    with ExitStack() as stack:
        runs: list[SerialPipeline] = []
        for seed in seeds:
            runs.append(stack.enter_context(begun(case, seed, **policy_)))
            draw()
            for _ in range(2):
                runs[-1].step()
        for _ in range(ROUNDS - 2):
            for run in runs:
                draw()
                run.step()
        return [run.policy.learn_mode.state_dict() for run in runs]


@pytest.mark.parametrize(
    'case', [pytest.param(name, marks=() if name in FAST else (pytest.mark.slow,)) for name in CASES]
)
def test_runs_side_by_side_learn_what_each_does_alone(case: str, cwd: Path) -> None:
    for state, seed in zip(beside(case, 0, 1), (0, 1), strict=True):
        assert differences(state, alone(case, seed)) == []


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore:.torch.jit.script_method:DeprecationWarning')  # torch's own
@pytest.mark.parametrize('case', ['rainbow', 'droq'])
def test_compiled_runs_side_by_side_learn_what_each_does_alone(case: str, cwd: Path) -> None:
    for state, seed in zip(beside(case, 0, 1, compile=True), (0, 1), strict=True):
        assert differences(state, alone(case, seed, compile=True)) == []


@pytest.mark.parametrize('name', ['dqn', 'sac', 'r2d2', 'ppo'])
def test_initial_weights_depend_on_the_seed_alone(name: str, cwd: Path) -> None:
    with begun(name, 0) as run:
        first = run.policy
        draw()
        before = torch.get_rng_state()
        again, other = (type(first)(first._cfg, first.spec, seed=seed) for seed in (0, 1))
        assert torch.equal(torch.get_rng_state(), before)
    found = [torch.cat([part.flatten() for part in policy.model.parameters()]) for policy in (again, other)]
    with begun(name, 0) as run:
        weights = torch.cat([part.flatten() for part in run.policy.model.parameters()])
    assert torch.equal(found[0], weights) and not torch.equal(found[1], weights)
