"""TRPO steps along the natural gradient, never further than its trust region, and leaves the critic to Adam."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from policy_toys import random_block, small

from rlframe.data.composite import Composite
from rlframe.model.distributions import distribution_for
from rlframe.policy.parts.natural import conjugate_gradients, natural_step


def made(**learn: Any) -> Any:
    return small('trpo', model={'encoder_hidden_size_list': [4]}, learn=learn)


def updated(policy: Any) -> dict[str, Any]:
    """Makes the update of a round, and returns the values to log."""
    block = random_block(steps=20)
    with torch.no_grad():
        logit = policy.model.logit(torch.as_tensor(block['obs']).flatten(0, 1))
    data = policy.get_train_sample(block.replace(logit=logit.unflatten(0, (20, -1)).numpy()))
    (step,) = policy.forward_learn(data)
    return step()


def test_conjugate_gradients_solve_a_linear_system_in_as_many_steps_as_it_has_numbers() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    matrix, wanted = torch.as_tensor(root @ root.T + np.eye(6)), torch.as_tensor(rng.normal(size=6))
    for steps in (6, 20):
        found = conjugate_gradients(lambda vector: matrix @ vector, wanted, steps)
        np.testing.assert_allclose(found, np.linalg.solve(matrix, wanted), rtol=1e-6)


def test_step_is_the_inverse_fisher_matrix_times_the_gradient_on_the_edge_of_the_trust_region() -> None:
    # a softmax over three logits w, whose Fisher matrix is diag(p) - p p'
    weight = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64, requires_grad=True)
    kind = distribution_for(spaces.Discrete(3))
    divergence = kind.divergence(weight.detach()[None], weight[None]).mean()
    gradient, damping, limit = np.array([0.2, 0.1, -0.3]), 0.05, 0.02
    loss = torch.as_tensor(gradient) @ weight
    step = natural_step(loss, divergence, [weight], limit, 3, damping)
    p = np.exp(weight.detach().numpy())
    p /= p.sum()
    fisher = np.diag(p) - np.outer(p, p) + damping * np.eye(3)
    wanted = -np.linalg.solve(fisher, gradient)
    np.testing.assert_allclose(step, wanted * np.sqrt(2 * limit / (wanted @ fisher @ wanted)), rtol=1e-6)


@pytest.mark.parametrize('limit', [1e-4, 1e-2, 5.0])
def test_actor_gains_and_stays_inside_the_trust_region(limit: float) -> None:
    policy = made(target_kl=limit, epoch_per_collect=1)
    metrics = updated(policy)
    assert 0 < metrics['step_length'] <= 1 and 0 < metrics['kl'] <= limit


def test_actor_stays_if_no_length_gains_and_only_the_critic_learns() -> None:
    policy = made()
    before = {name: p.clone() for name, p in policy.model.state_dict().items()}
    real = policy.update.distribution.divergence
    policy.update.distribution.divergence = lambda *logits: real(*logits) + 1.0  # nothing is inside
    assert updated(policy)['step_length'] == 0
    moved = {name for name, p in policy.model.state_dict().items() if not torch.equal(p, before[name])}
    assert moved == {name for name in before if name.startswith('critic.')}


SPACES = [
    spaces.Discrete(4),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(3),
    spaces.Box(-1, 1, (2,), np.float32),
    Composite(spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (2,), np.float32))),
]


@pytest.mark.parametrize('space', SPACES, ids=lambda space: type(space).__name__)
def test_divergence_is_the_mean_log_ratio_of_drawn_actions(space: Any) -> None:
    kind = distribution_for(space)
    size = kind.size + kind.log_std_size
    logit, other = torch.randn(2, 1, size, generator=torch.Generator().manual_seed(0)).unbind()
    rows, generator = 200_000, torch.Generator().manual_seed(1)
    action = kind.sample_tensor(logit.expand(rows, -1), generator)
    pair = [kind.evaluate(each.expand(rows, -1), action)[0] for each in (logit, other)]
    mean = (pair[0] - pair[1]).mean()
    torch.testing.assert_close(kind.divergence(logit, other)[0], mean, rtol=0.05, atol=0.02)
