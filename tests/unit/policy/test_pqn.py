"""PQN's returns are those of the paper, and those of tensors are those of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from policy_toys import MASKED, PLAIN, random_block, small

from rlframe.data import Batch, EnvSpec

GAMMA, LAMBDA = 0.9, 0.7


def make(spec: EnvSpec = PLAIN, **cfg: Any) -> Any:
    return small('pqn', spec, discount_factor=GAMMA, collect={'q_lambda': LAMBDA, 'n_sample': 10}, **cfg)


def block_of(spec: EnvSpec) -> Batch:
    """Returns rows of two envs, in which an episode terminates and another one is truncated."""
    block = random_block(5, 2, seed=1)
    assert block['terminated'][:-1].any() and block['truncated'][:-1].any()

    def obs(numbers: np.ndarray) -> Any:
        row = np.zeros(numbers.shape[:2], [('action_mask', np.int8, 4), ('observation', np.float32, 3)])
        row['observation'], row['action_mask'] = numbers, [1, 0, 1, 1]
        return row

    return block if spec is PLAIN else block.replace(obs=obs(block['obs']), next_obs=obs(block['next_obs']))


@pytest.mark.parametrize('spec', [PLAIN, MASKED], ids=['all actions', 'a mask'])
def test_returns_are_those_of_the_paper(spec: EnvSpec) -> None:
    policy, block = make(spec), block_of(spec)
    numbers = block['next_obs'] if spec is PLAIN else block['next_obs']['observation']
    with torch.no_grad():
        flat = torch.from_numpy(numbers.reshape(-1, 3).copy())
        obs = flat if spec is PLAIN else {'observation': flat, 'action_mask': torch.ones(10, 4)}
        value = policy.model(obs).numpy().reshape(5, 2, 4)
    allowed = [0, 1, 2, 3] if spec is PLAIN else [0, 2, 3]
    best = value[..., allowed].max(-1)
    expected = np.zeros((5, 2))
    for env in range(2):
        for t in reversed(range(5)):
            later = best[t, env]
            if t < 4 and not block['truncated'][t, env]:
                later = LAMBDA * expected[t + 1, env] + (1 - LAMBDA) * later
            going_on = 0.0 if block['terminated'][t, env] else GAMMA
            expected[t, env] = block['reward'][t, env] + going_on * later
    samples = policy.collect_mode.get_train_sample(block)
    np.testing.assert_allclose(samples['return_'].reshape(5, 2), expected, rtol=1e-5)
    assert len(samples) == 10 and samples['action'].tolist() == block['action'].reshape(-1).tolist()


def test_tensors_have_the_returns_of_arrays() -> None:
    policy, block = make(), block_of(PLAIN)
    tensors = Batch({name: torch.as_tensor(column) for name, column in block.items()})
    mode = policy.collect_mode.get_attribute('tensor_mode')
    returns = mode.get_train_sample(tensors)['return_']
    np.testing.assert_allclose(returns, policy.collect_mode.get_train_sample(block)['return_'], rtol=1e-5)


def test_a_tensor_acts_greedily_but_for_a_share_of_its_steps() -> None:
    policy = make()
    forward = policy.collect_mode.get_attribute('tensor_mode').forward
    obs = torch.randn(4000, 3)
    best = policy.best_action(obs)
    action, columns = forward(obs, torch.Generator().manual_seed(0), eps=0.4)
    assert (action == columns['action']).all() and action.dtype == torch.int64
    assert (action != best).float().mean() == pytest.approx(0.4 * 3 / 4, abs=0.03)
    assert (forward(obs, torch.Generator(), eps=0.0)[0] == best).all()


def test_each_epoch_learns_from_every_row_once() -> None:
    policy = make(learn={'batch_size': 4, 'epoch_per_collect': 3})
    samples = policy.collect_mode.get_train_sample(block_of(PLAIN))
    sizes, seen = [], []
    policy.train_step = lambda rows: (
        sizes.append(len(rows['action'])),
        seen.extend(rows['return_'].tolist()),
    )
    for update in policy.learn_mode.forward(samples):
        update()
    assert sizes == [4, 4, 2] * 3
    for epoch in range(3):
        assert sorted(seen[epoch * 10 : epoch * 10 + 10]) == sorted(samples['return_'].tolist())
    assert seen[:10] != seen[10:20]


def test_a_batch_learns_the_values_of_its_actions() -> None:
    policy = make(learn={'batch_size': 10, 'learning_rate': 3e-2, 'epoch_per_collect': 100})
    samples = policy.collect_mode.get_train_sample(block_of(PLAIN))
    losses = [update()['total_loss'].item() for update in policy.learn_mode.forward(samples)]
    assert losses[-1] < 0.05 * losses[0]
