"""FQF's quantiles, their weighted mean and the loss of its fractions are those of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from policy_toys import apart, random_rows, small

ENTROPY = 0.3


def made() -> Any:
    learn = {'entropy_weight': ENTROPY, 'learning_rate_fractions': 1e-2}
    policy = small('fqf', model={'num_quantiles': 5}, learn=learn)
    assert np.allclose(policy.model.propose(torch.randn(2, 8))[2].detach(), 1 / 5), 'even in the beginning'
    policy.model.fractions.weight.detach().normal_(generator=torch.Generator().manual_seed(0))
    return apart(policy, 1.5)


def test_actions_are_compared_by_the_mean_over_the_proposed_widths() -> None:
    policy, obs = made(), torch.randn(2, 3)
    features = policy.model.encoder(obs)
    width = policy.model.fractions(features).softmax(1)
    edge = torch.cat([torch.zeros(2, 1), width.cumsum(1)], 1)
    quantiles = policy.model.quantiles(features, (edge[:, 1:] + edge[:, :-1]) / 2)  # [2, 4, 5]
    torch.testing.assert_close(policy.values(obs), (width[:, None] * quantiles).sum(2))
    torch.testing.assert_close(policy.model(obs), quantiles)


def test_the_slope_of_each_fraction_is_that_of_the_wasserstein_distance() -> None:
    policy = made()
    rows, model = policy.columns(random_rows(6, actions=4)), policy.model
    features = model.encoder(rows['obs']).detach()
    logit = model.fractions(features).detach().requires_grad_()
    width = logit.softmax(1)
    edge = width.cumsum(1)
    # eq. 8 of the paper, by fraction and row
    middle, total = (edge - width / 2).detach(), torch.zeros(())
    for row, action in enumerate(rows['action'].tolist()):

        def value(tau: torch.Tensor, row: int = row, action: int = action) -> torch.Tensor:
            return model.quantiles(features[row : row + 1], tau.view(1, 1))[0, action, 0].detach()

        for i in range(4):
            tau = edge[row, i]
            slope = 2 * value(tau.detach()) - value(middle[row, i]) - value(middle[row, i + 1])
            total = total + slope * tau / 6
    entropy = -(width * width.log()).sum(1).mean()
    (wanted,) = torch.autograd.grad(total - ENTROPY * entropy, logit)
    # of the update, by the bias, whose gradient is the sum over rows
    loss = policy.update.fraction_loss(rows)
    (found,) = torch.autograd.grad(loss.value, model.fractions.bias, retain_graph=True)
    torch.testing.assert_close(found, wanted.sum(0), rtol=1e-3, atol=1e-5)
    # each loss moves its own part
    weights = [p for name, p in model.named_parameters() if not name.startswith('fractions')]
    assert all(g is None for g in torch.autograd.grad(loss.value, weights, allow_unused=True))
    quantile_loss = policy.update.quantile_loss(rows).value
    assert torch.autograd.grad(quantile_loss, model.fractions.weight, allow_unused=True) == (None,)
