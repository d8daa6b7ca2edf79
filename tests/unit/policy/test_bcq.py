"""BCQ: its losses by hand, and that neither kind acts in a way that the data do not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from policy_toys import BOX, PLAIN, apart, random_rows, small


def made(kind: str, spec: Any = BOX, model: Any = None, **learn: Any) -> Any:
    return apart(small(kind, spec, model=model, learn=learn))


def array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy().astype(float)


def test_the_target_takes_the_best_of_the_actions_that_the_autoencoder_makes() -> None:
    policy = made('bcq', model={'phi': 0.3}, num_actions=4, least_weight=0.6)
    data = random_rows(6, actions=None)
    rows, model, target = policy.columns(data), policy.model, policy.update.targets.network
    best = np.full(6, -np.inf)
    for k in range(4):
        latent = rows['next_latent'][:, k].clamp(-0.5, 0.5)
        action = model.vae.decode(torch.cat([rows['next_obs'], latent], 1))
        change = target['actor'](torch.cat([rows['next_obs'], action], 1))
        value = array(target['critic'](rows['next_obs'], (action + 0.3 * change).clamp(-1, 1)))
        best = np.maximum(best, 0.6 * value.min(0) + 0.4 * value.max(0))
    wanted = data['reward'] + 0.99 * ~data['terminated'] * best
    value = array(model.critic(rows['obs'], rows['action']))
    assert policy.update.critic_loss(rows).value.item() == pytest.approx(
        ((value - wanted) ** 2).mean(1).sum(), rel=1e-4
    )


def test_the_autoencoder_has_the_loss_of_kingma_and_welling() -> None:
    policy = made('bcq')
    rows = policy.columns(random_rows(6, actions=None))
    mean, log_std = policy.model.vae.encode(torch.cat([rows['obs'], rows['action']], 1))
    latent = mean + log_std.exp() * rows['latent']
    decoded = array(policy.model.vae.decode(torch.cat([rows['obs'], latent], 1)))
    mean, log_std = array(mean), array(log_std)
    divergence = -0.5 * (1 + 2 * log_std - mean**2 - np.exp(2 * log_std)).mean()
    wanted = ((decoded - rows['action'].numpy()) ** 2).mean() + 0.5 * divergence
    assert policy.update.vae_loss(rows).value.item() == pytest.approx(wanted, rel=1e-5)


def test_it_acts_near_what_the_autoencoder_makes_and_takes_the_best_of_it() -> None:
    policy = made('bcq', model={'phi': 0.0, 'choices': 7})
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    acted = policy.eval_mode.forward(obs, np.arange(5))['action']
    tensor = torch.from_numpy(obs)
    with torch.no_grad():
        made_ones = policy.model.decoded(tensor, policy.model.latents.expand(5, -1, -1))
        values = torch.stack([policy.model.critic(tensor, made_ones[:, k])[0] for k in range(7)], 1)
    chosen = made_ones[torch.arange(5), values.argmax(1)].numpy()
    np.testing.assert_allclose(acted, chosen, atol=1e-6)


def test_discrete_actions_that_the_imitator_finds_unlikely_are_neither_taken_nor_learned_from() -> None:
    policy = made('discrete_bcq', PLAIN, threshold=0.5)
    data = random_rows(6)
    rows, model = policy.columns(data), policy.model
    logit = array(model.imitator(rows['next_obs']))
    likely = np.exp(logit - logit.max(1, keepdims=True)) >= 0.5
    assert (~likely).sum() > 0
    online, target = array(model(rows['next_obs'])), array(policy.update.targets.network(rows['next_obs']))
    best = np.where(likely, online, -np.inf).argmax(1)
    wanted = data['reward'] + 0.97 * ~data['terminated'] * target[np.arange(6), best]
    np.testing.assert_allclose(array(policy.update.target(rows)), wanted, rtol=1e-5)
    acted = policy.eval_mode.forward(data['next_obs'], np.arange(6))['action']
    np.testing.assert_array_equal(acted, best)


def test_thresholds_of_0_and_1_are_dqn_and_behaviour_cloning() -> None:
    dqn, cloning = made('discrete_bcq', PLAIN, threshold=0.0), made('discrete_bcq', PLAIN, threshold=1.0)
    obs = random_rows(6)['obs']
    acts = [policy.eval_mode.forward(obs, np.arange(6))['action'].tolist() for policy in (dqn, cloning)]
    tensor = torch.from_numpy(obs)
    assert acts[0] == dqn.model(tensor).argmax(1).tolist()
    assert acts[1] == cloning.model.imitator(tensor).argmax(1).tolist()
