"""BDQ's branches share a trunk, a state value and a target, and each acts, and obeys masks, on its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from policy_toys import OBS, apart, random_rows, small
from zoo import Dials

import rlframe
from rlframe.config import compile_config
from rlframe.data import Batch, EnvSpec
from rlframe.data.observation import zero_obs
from rlframe.errors import ConfigWarning
from rlframe.pipeline.build import make_factory

COUNTS, SIZE, GAMMA = [2, 3, 4], 6, 0.9
SPEC: Any = EnvSpec(OBS, spaces.MultiDiscrete(COUNTS), name='Toy-v0')
IS = np.array([1, 0.5, 0.25, 1, 0.1, 0.7], np.float32)


def made(spec: Any = SPEC, **cfg: Any) -> Any:
    return apart(small('bdq', spec, discount_factor=GAMMA, **cfg))


def batch() -> Batch:
    rng = np.random.default_rng(1)
    action = np.stack([rng.integers(count, size=SIZE) for count in COUNTS], 1).astype(np.uint8)
    return random_rows(SIZE, IS=IS).replace(action=action)


def branches(value: torch.Tensor) -> list[np.ndarray]:
    return np.split(value.detach().numpy().astype(np.float64), np.cumsum(COUNTS)[:-1], 1)


def test_branches_add_their_advantages_to_one_state_value() -> None:
    model, obs = made().model, torch.randn(SIZE, 3)
    features = model.encoder(obs)
    state, advantage = model.value_head(features).detach().numpy(), branches(model.advantage_head(features))
    for own, wanted in zip(branches(model(obs)), advantage, strict=True):
        np.testing.assert_allclose(own, state + wanted - wanted.mean(1, keepdims=True), atol=1e-6)


def test_the_gradient_of_the_trunk_is_divided_by_the_heads() -> None:
    model, obs = made().model, torch.randn(SIZE, 3)
    trunk = model.encoder.layers[0].weight
    (found,) = torch.autograd.grad(model(obs).square().sum(), trunk)
    # the same values without the division
    features = model.encoder(obs)
    advantage = model.advantage_head(features).split(COUNTS, 1)
    value = [model.value_head(features) + own - own.mean(1, keepdim=True) for own in advantage]
    (whole,) = torch.autograd.grad(torch.cat(value, 1).square().sum(), trunk)
    torch.testing.assert_close(found, whole / (len(COUNTS) + 1))


def test_loss_is_the_mean_over_branches_to_a_target_that_is_their_mean() -> None:
    policy, data = made(priority=True, priority_IS_weight=True), batch()
    rows, model, network = policy.columns(data), policy.model, policy.update.targets.network
    judge, value = branches(model(rows['next_obs'])), branches(network(rows['next_obs']))
    own, at = branches(model(rows['obs'])), np.arange(SIZE)
    follows = np.mean([v[at, j.argmax(1)] for v, j in zip(value, judge, strict=True)], 0)
    target = data['reward'] + GAMMA * ~data['terminated'] * follows
    errors = np.stack([target - q[at, data['action'][:, d]] for d, q in enumerate(own)], 1)
    loss = policy.update.loss(rows)
    np.testing.assert_allclose(loss.value.item(), (IS * (errors**2).mean(1)).mean(), rtol=1e-5)
    np.testing.assert_allclose(loss.error.numpy(), np.abs(errors).sum(1), rtol=1e-4)


def test_each_branch_explores_on_its_own_among_what_its_mask_allows() -> None:
    mask = np.array([1, 1, 0, 1, 1, 1, 1, 1, 0], np.int8)
    space = spaces.Dict(observation=OBS, action_mask=spaces.MultiBinary(sum(COUNTS)))
    policy, count = made(EnvSpec(space, SPEC.action_space, name='Toy-v0')), 6000
    obs = zero_obs(space, count)
    obs['action_mask'] = mask
    best = policy.eval_mode.forward(obs[:1], np.arange(1))['action'][0]
    action = policy.collect_mode.forward(obs, np.arange(count), eps=0.6)['action']
    allowed = np.split(mask, np.cumsum(COUNTS)[:-1])
    for d, own in enumerate(allowed):
        wanted = 0.6 * own / own.sum() + 0.4 * (np.arange(COUNTS[d]) == best[d])
        np.testing.assert_allclose(np.bincount(action[:, d], minlength=COUNTS[d]) / count, wanted, atol=0.03)
    is_best = action == best
    np.testing.assert_allclose(is_best.all(1).mean(), is_best.mean(0).prod(), atol=0.03)


def test_levels_of_di_engines_actions_are_branches() -> None:
    main = {'env': {'env_id': 'Pendulum-v1', 'action_bins_per_branch': 4}}
    main['policy'] = {'model': {'num_branches': 1, 'action_bins_per_branch': 4}}
    with pytest.warns(ConfigWarning, match='4 levels, up to 0.75 of a bound where dizoo has 1'):
        cfg = compile_config(main, {'env': {'type': 'mujoco'}, 'policy': {'type': 'bdq'}})
    assert make_factory(cfg).spec.action_space == spaces.MultiDiscrete([4])


def steps_to_dials(policy: str, folder: Path, seed: int = 0, **options: Any) -> int:
    """Returns the env steps until an evaluation hits 95 of 100 dials; 30,000 if none does."""
    run = rlframe.train(
        env=Dials,
        policy=policy,
        seed=seed,
        max_env_step=30_000,
        stop_value=7.6,
        folder=folder,
        progress=False,
        overrides={f'policy.{name}': value for name, value in options.items()},
    )
    return run.progress.envstep if run.solved else 30_000


FAST: dict[str, Any] = {
    'discount_factor': 0.5,
    'model.encoder_hidden_size_list': [64],
    'learn.learning_rate': 3e-3,
    'learn.target_update_freq': 50,
    'other.eps': dict(type='linear', start=1.0, end=0.05, decay=2000),
}


@pytest.mark.slow
def test_dials_are_learned_with_a_branch_for_each(tmp_path: Path) -> None:
    assert steps_to_dials('bdq', tmp_path / 'bdq', **FAST) < 10_000


@pytest.mark.slow
def test_dials_need_no_more_env_steps_than_with_ppo(tmp_path: Path) -> None:
    rates = 3e-4, 1e-3, 3e-3
    ppo = [
        steps_to_dials('ppo', tmp_path / f'ppo{i}', **{'learn.learning_rate': rate})
        for i, rate in enumerate(rates)
    ]
    bdq = [steps_to_dials('bdq', tmp_path / f'bdq{seed}', seed, **FAST) for seed in range(3)]
    assert max(bdq) <= min(ppo), (bdq, ppo)
