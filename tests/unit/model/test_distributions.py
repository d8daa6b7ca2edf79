"""Distributions over actions agree with torch.distributions, and draws with their probabilities."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from error_texts import raises
from torch import distributions as reference

from rlframe.data import EnvSpec
from rlframe.data.composite import by_rows
from rlframe.errors import IncompatibleError
from rlframe.model.actor_critic import Actor, ActorCritic
from rlframe.model.distributions import distribution_for, perturbed
from rlframe.policy.parts.actions import IMPOSSIBLE, masked

SPACES = {
    'Discrete': gymnasium.spaces.Discrete(5, start=2),
    'MultiDiscrete': gymnasium.spaces.MultiDiscrete([3, 2, 4]),
    'MultiBinary': gymnasium.spaces.MultiBinary(3),
    'Box': gymnasium.spaces.Box(-1, 1, (2, 2), np.float32),
}
WIDTH = {'Discrete': 5, 'MultiDiscrete': 9, 'MultiBinary': 3, 'Box': 4}
PARTS = by_rows(
    gymnasium.spaces.Dict(
        a=SPACES['MultiBinary'],
        b=gymnasium.spaces.Tuple([SPACES['Box'], SPACES['Discrete']]),
        c=gymnasium.spaces.Dict(d=SPACES['MultiDiscrete'], e=gymnasium.spaces.Box(0, 1, (), np.float32)),
    )
)


def known(name: str, logit: torch.Tensor) -> Any:
    """Returns torch's own distribution, whose log_prob is of a whole action."""
    if name == 'Discrete':
        return reference.Categorical(logits=logit)
    if name == 'MultiBinary':
        return reference.Independent(reference.Bernoulli(logits=logit), 1)
    if name == 'Box':
        return reference.Independent(reference.Normal(logit[:, :4], logit[:, 4:].exp()), 1)
    return [reference.Categorical(logits=part) for part in logit.split([3, 2, 4], 1)]


def logit_of(name: str, rows: int, seed: int = 0) -> np.ndarray:
    size = 8 if name == 'Box' else WIDTH[name]
    logit = np.random.default_rng(seed).normal(size=(rows, size)).astype(np.float32)
    return logit * (0.5 if name == 'Box' else 2.0)


@pytest.mark.parametrize('name', SPACES)
def test_log_prob_and_entropy_equal_torch_s_and_gradients_too(name: str) -> None:
    distribution = distribution_for(SPACES[name])
    assert distribution.size == WIDTH[name]
    logit = torch.from_numpy(logit_of(name, 50)).requires_grad_()
    action = distribution.sample(logit.detach().numpy(), np.random.default_rng(1))
    assert len({row.tobytes() for row in action}) > 4
    given = torch.from_numpy(action)
    log_prob, entropy = distribution.evaluate(logit, given)
    assert log_prob.shape == entropy.shape == (50,)
    other = logit.detach().clone().requires_grad_()
    truth = known(name, other)
    if isinstance(truth, list):
        wanted = sum(part.log_prob(given[:, k]) for k, part in enumerate(truth))
        wanted_entropy = sum(part.entropy() for part in truth)
    else:
        wanted, wanted_entropy = (
            truth.log_prob(given.float() if name != 'Discrete' else given),
            truth.entropy(),
        )
    torch.testing.assert_close(log_prob, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(entropy, wanted_entropy.expand(50), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        distribution.log_prob(logit.detach().numpy(), action), log_prob.detach().numpy(), rtol=1e-4, atol=1e-5
    )
    (log_prob.sum() + entropy.sum()).backward()
    (wanted.sum() + wanted_entropy.expand(50).sum()).backward()
    torch.testing.assert_close(logit.grad, other.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize('name', ['Discrete', 'MultiDiscrete', 'MultiBinary'])
def test_discrete_draws_are_as_frequent_as_probable_and_the_mode_is_the_most_probable(name: str) -> None:
    distribution, rows = distribution_for(SPACES[name]), 40_000
    logit = np.repeat(logit_of(name, 1, seed=3), rows, axis=0)
    drawn = distribution.sample(logit, np.random.default_rng(2)).reshape(rows, -1)
    seen, counts = np.unique(drawn, axis=0, return_counts=True)
    shaped = seen if name != 'Discrete' else seen[:, 0]
    probability = np.exp(distribution.log_prob(logit[: len(seen)], shaped))
    assert len(seen) >= 5
    np.testing.assert_allclose(counts / rows, probability, atol=0.012)
    best = distribution.mode(logit[:1]).reshape(-1)
    np.testing.assert_array_equal(best, seen[probability.argmax()])


def test_gaussian_draws_have_their_mean_and_deviation_whatever_the_network_said() -> None:
    distribution, rows = distribution_for(SPACES['Box']), 40_000
    one = np.array([[0.5, -2.0, 3.0, 0.0, -1.0, 0.0, 0.5, -3.0]], np.float32)
    drawn = distribution.sample(np.repeat(one, rows, axis=0), np.random.default_rng(2))
    assert drawn.dtype == np.float32
    np.testing.assert_allclose(drawn.mean(0), one[0, :4], atol=0.03)
    np.testing.assert_allclose(drawn.std(0), np.exp(one[0, 4:]), rtol=0.03)
    np.testing.assert_array_equal(distribution.mode(one), one[:, :4])
    one[:, 4:] = 1000.0
    assert np.isfinite(distribution.sample(one, np.random.default_rng(2))).all()
    assert np.isfinite(distribution.log_prob(one, one[:, :4])).all()


@pytest.mark.parametrize(('name', 'share_encoder'), [('Box', False), ('MultiDiscrete', True)])
def test_networks_have_as_many_outputs_as_the_distribution_needs(name: str, share_encoder: bool) -> None:
    spec = EnvSpec(gymnasium.spaces.Box(-9, 9, (3,), np.float32), SPACES[name])
    obs = torch.randn(6, 3)
    model = ActorCritic(spec, [8], share_encoder=share_encoder, log_std_init=-0.5)
    logit, value = model(obs)
    assert logit.shape == (6, 8 if name == 'Box' else WIDTH[name]) and value.shape == (6,)
    assert torch.equal(model.logit(obs), logit) and torch.equal(model.value(obs), value)
    assert Actor(spec, [8])(obs).shape == (6, WIDTH[name])
    if name == 'Box':
        assert (logit[:, 4:] == -0.5).all()
    value.sum().backward()
    reaches_actor = any(p.grad is not None for p in model.actor.parameters())
    assert not reaches_actor
    assert (model.encoder is not None) == share_encoder


@pytest.mark.parametrize('share_encoder', [False, 'images', True])
def test_actor_and_critic_share_nothing_convolutions_or_all_hidden_layers(share_encoder: Any) -> None:
    parts = dict(image=gymnasium.spaces.Box(0, 255, (5, 5, 3), np.uint8), speed=SPACES['Box'])
    spec = EnvSpec(gymnasium.spaces.Dict(parts), SPACES['Discrete'])
    obs = {'image': torch.randint(0, 255, (6, 5, 5, 3)), 'speed': torch.randn(6, 2, 2)}
    model = ActorCritic(spec, [8], share_encoder=share_encoder)
    logit, value = model(obs)
    assert torch.equal(model.logit(obs), logit) and torch.equal(model.value(obs), value)
    value.sum().backward()
    kinds = {False: [], 'images': ['Conv2d'], True: ['Conv2d', 'Linear']}[share_encoder]
    shared = [layer for layer in model.encoder.modules()] if model.encoder is not None else []
    assert [type(layer).__name__ for layer in shared if hasattr(layer, 'weight')] == kinds
    assert all(layer.weight.grad is not None for layer in shared if hasattr(layer, 'weight'))
    assert not any(parameter.grad is not None for parameter in model.actor.parameters())
    vector = EnvSpec(gymnasium.spaces.Dict(speed=SPACES['Box']), SPACES['Discrete'])
    assert (ActorCritic(vector, [8], share_encoder=share_encoder).encoder is not None) == (
        share_encoder is True
    )


def test_parts_are_drawn_and_judged_by_their_own_distributions_and_classes_have_the_first_logits() -> None:
    distribution, rng = distribution_for(PARTS), np.random.default_rng(0)
    assert (distribution.size, distribution.log_std_size) == (5 + 9 + 3 + 4 + 1, 5)
    logit = torch.from_numpy(rng.normal(size=(50, 27)).astype(np.float32)).requires_grad_()
    names, at = ['Discrete', 'MultiDiscrete', 'MultiBinary'], [(0, 5), (5, 14), (14, 17)]
    own = {name: logit[:, begin:end] for name, (begin, end) in zip(names, at, strict=True)}
    own['Box'] = torch.cat([logit[:, 17:21], logit[:, 22:26]], 1)
    action = distribution.sample(logit.detach().numpy(), rng)
    assert action.dtype == np.float32 and action.shape == (50, 3 + 4 + 1 + 3 + 1)
    columns = {'MultiBinary': slice(0, 3), 'Box': slice(3, 7), 'Discrete': 7, 'MultiDiscrete': slice(8, 11)}
    total, entropy = distribution.evaluate(logit, torch.from_numpy(action))
    last = distribution_for(gymnasium.spaces.Box(0, 1, (), np.float32))
    wanted, wanted_entropy = last.evaluate(
        torch.cat([logit[:, 21:22], logit[:, 26:]], 1), torch.from_numpy(action[:, 11:])
    )
    modes = distribution.mode(logit.detach().numpy())
    for name, column in columns.items():
        part = distribution_for(SPACES[name])
        each = part.evaluate(own[name], torch.from_numpy(action[:, column]))
        wanted, wanted_entropy = wanted + each[0], wanted_entropy + each[1]
        np.testing.assert_array_equal(modes[:, column], part.mode(own[name].detach().numpy()))
    torch.testing.assert_close(total, wanted), torch.testing.assert_close(entropy, wanted_entropy)
    mask = torch.from_numpy(rng.random((50, 14)) < 0.5)
    hidden = masked(logit, mask, IMPOSSIBLE).detach()
    drawn = distribution.sample(hidden.numpy(), rng)
    chosen = drawn[:, 7].astype(int)
    any_allowed = mask[:, :5].any(1).numpy()
    assert mask.numpy()[np.arange(50), chosen][any_allowed].all()
    assert torch.equal(hidden[:, 14:], logit[:, 14:])
    near = torch.distributions.Normal(0.0, 1.0)
    tensors = distribution.sample_tensor(logit.detach().repeat(400, 1), torch.Generator().manual_seed(0))
    mean, std = logit[0, 21].item(), logit[0, 26].exp().item()
    z = (tensors.view(400, 50, 12)[:, 0, 11].mean().item() - mean) / std * 20
    assert near.cdf(torch.tensor(abs(z))) < 0.9999


HYBRID = by_rows(
    gymnasium.spaces.Dict(
        kind=gymnasium.spaces.Discrete(3),
        speed=gymnasium.spaces.Box(0, 1, (1,), np.float32),
        with_=gymnasium.spaces.Tuple(
            [
                SPACES['Box'],
                gymnasium.spaces.Dict(x=SPACES['Discrete'], y=SPACES['Box']),
                SPACES['MultiBinary'],
            ]
        ),
    )
)


def test_parameters_count_where_their_class_is_chosen() -> None:
    distribution, apart = distribution_for(HYBRID, True), distribution_for(HYBRID)
    logit = np.random.default_rng(0).normal(size=(1, 29)).astype(np.float32).repeat(40_000, 0) * 0.3
    action = distribution.sample(logit, np.random.default_rng(1))
    np.testing.assert_array_equal(action, apart.sample(logit, np.random.default_rng(1)))
    log_prob, entropy = distribution.evaluate(*map(torch.from_numpy, (logit, action)))
    torch.testing.assert_close(-log_prob.mean(), entropy[0], atol=0.05, rtol=0)  # by its definition
    columns = {0: slice(2, 6), 1: slice(6, 11), 2: slice(11, 14)}  # behind the choice and the speed
    for k, own in columns.items():
        other = action.copy()
        other[:, own] = other[:, own] == 0
        is_other = ~torch.isclose(distribution.evaluate(*map(torch.from_numpy, (logit, other)))[0], log_prob)
        assert torch.equal(is_other, torch.from_numpy(action[:, 0] == k)), k
    parts = dict(a=SPACES['MultiBinary'], b=gymnasium.spaces.Tuple([SPACES['Box']] * 3))
    two = dict(c=gymnasium.spaces.Discrete(3), d=gymnasium.spaces.Discrete(3))
    for given in (parts, parts | two):  # a MultiBinary has an n, too
        with raises(IncompatibleError):
            distribution_for(by_rows(gymnasium.spaces.Dict(given)), True)


def test_another_space_is_refused_by_name() -> None:
    with raises(IncompatibleError):
        distribution_for(gymnasium.spaces.Text(3))


class Zeros:
    """A generator that draws the rarest number of all."""

    def standard_exponential(self, shape: Any, dtype: Any) -> Any:
        return np.zeros(shape, dtype)


def test_the_rarest_draw_does_not_make_the_impossible_possible() -> None:
    logit = np.array([[0.0, -1e8], [-1e8, 0.0]], np.float32)
    assert np.array_equal(perturbed(logit, Zeros()).argmax(1), [0, 1])
