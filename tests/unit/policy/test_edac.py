"""EDAC's critics have the loss of SAC, and that of the cosines between their gradients; with weight 0 it is SAC-N."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from policy_toys import BOX, apart, random_rows, small

import rlframe
from rlframe.errors import ConfigError
from rlframe.policy import create_policy

CRITICS, SIZE = 4, 6


def made(kind: str = 'edac', **options: Any) -> Any:
    return small(kind, BOX, model={'activation': 'tanh', 'n_critic': CRITICS}, **options)


def slopes(policy: Any, rows: Any) -> np.ndarray:
    """The derivative of each critic's value by the action, divided by its length, [critics, B, A]: one tanh layer, by hand."""
    read, found = torch.cat([rows['obs'], rows['action']], 1).double().numpy(), []
    for net in policy.model.critic.nets:
        (inner, bias), (outer, _) = (
            (layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy())
            for layer in net.layers
        )
        found.append((outer * (1 - np.tanh(read @ inner.T + bias) ** 2)) @ inner[:, 3:])
    slope = np.stack(found)
    return slope / np.linalg.norm(slope, axis=2, keepdims=True)


def test_likeness_is_the_mean_cosine_between_gradients_of_different_critics() -> None:
    policy = made(learn={'eta': 0.7})
    rows = policy.columns(random_rows(SIZE, actions=None))
    slope, total = slopes(policy, rows), 0.0
    for i in range(CRITICS):
        for j in range(CRITICS):
            total += 0.0 if i == j else float((slope[i] * slope[j]).sum(1).mean())
    loss, plain = policy.update.critic_loss(rows), made(learn={'eta': 0.0}).update.critic_loss(rows)
    assert float(loss.metrics['likeness']) == pytest.approx(total / (CRITICS - 1), rel=1e-4)
    assert (loss.value - plain.value).item() == pytest.approx(0.7 * total / (CRITICS - 1), rel=1e-3)


def test_its_gradient_turns_the_slopes_of_critics_apart() -> None:
    policy = made(learn={'eta': 1.0, 'learning_rate_critic': 1e-2})
    rows = policy.columns(random_rows(SIZE, actions=None))
    alike = [policy.update.critic_loss(rows).metrics['likeness'].item()]
    optimizer = torch.optim.Adam(policy.model.critic.parameters(), 1e-2)
    for _ in range(30):
        loss = policy.update.critic_loss(rows)
        optimizer.zero_grad()
        loss.value.backward()
        optimizer.step()
        alike.append(loss.metrics['likeness'].item())
    # N gradients cannot be less alike than if they add up to nothing: N - N² / N over N - 1
    assert alike[-1] < alike[0] - 0.1 and alike[-1] >= -CRITICS / (CRITICS - 1) - 1e-4


def test_without_weight_it_is_sac_with_as_many_critics() -> None:
    sac, own = made('sac'), made(learn={'eta': 0.0})
    apart(sac)
    own.learn_mode.load_state_dict(sac.learn_mode.state_dict())
    for seed in range(3):
        data = random_rows(SIZE, seed, actions=None)
        one, other = sac.learn_mode.forward(data), own.learn_mode.forward(data)
        assert {name: float(value) for name, value in one.items()} == {n: float(v) for n, v in other.items()}
    for one, other in zip(sac.model.parameters(), own.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_one_critic_has_none_to_differ_from() -> None:
    with raises(ConfigError):
        create_policy({'type': 'edac', 'model': {'twin_critic': False, 'n_critic': None}}, BOX)


@pytest.mark.slow
def test_it_learns_while_it_acts(tmp_path: Path) -> None:
    run = rlframe.train('pendulum_edac', stop_value=-200, folder=tmp_path / 'run', progress=False)
    assert run.solved, f'{run.best} after {run.progress.envstep:,} env steps'
