"""P-DQN's two losses are those of the paper, and each choice is valued by its own parameters alone if it is to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from gymnasium import spaces
from policy_toys import OBS, apart, random_rows, small

from rlframe.data import Batch, EnvSpec
from rlframe.data.composite import by_rows
from rlframe.data.observation import zero_obs
from rlframe.errors import IncompatibleError

PARTS = (spaces.Box(-1, 3, (2,), np.float32), spaces.Discrete(3, start=5))
HYBRID: Any = EnvSpec(OBS, by_rows(spaces.Tuple(PARTS)), name='Toy-v0')
MASKED: Any = EnvSpec(
    spaces.Dict(observation=OBS, action_mask=spaces.MultiBinary(3)), HYBRID.action_space, name='Toy-v0'
)
OWN: Any = EnvSpec(
    OBS,
    by_rows(spaces.Tuple((spaces.Discrete(2), spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1)))))),
)


def made(spec: EnvSpec = HYBRID, double: bool = True, **model: Any) -> Any:
    return small('pdqn', spec, model=model, discount_factor=0.9, double=double)


def hybrid_rows(count: int = 6) -> Batch:
    rng = np.random.default_rng(1)
    choice = rng.integers(3, size=(count, 1)).astype(np.float32)
    action = np.concatenate([rng.uniform(-1, 1, (count, 2)).astype(np.float32), choice], 1)
    return random_rows(count).replace(action=action)


def values(network: Any, obs: Any, parameters: Any) -> np.ndarray:
    with torch.no_grad():
        return network.critic(torch.as_tensor(obs), torch.as_tensor(parameters)).numpy()


@pytest.mark.parametrize('double', [True, False])
def test_the_target_has_the_parameters_that_the_target_network_proposes(double: bool) -> None:
    policy, data = apart(made(double=double), 0.3), hybrid_rows()
    model, target = policy.model, policy.update.targets.network
    with torch.no_grad():
        proposed = {net: net.actor(torch.as_tensor(data['next_obs'])) for net in (model, target)}
    next_value = values(target, data['next_obs'], proposed[target])
    judge = values(model, data['next_obs'], proposed[model]) if double else next_value
    best = next_value[np.arange(6), judge.argmax(1)]
    wanted = data['reward'] + 0.9 * (1 - data['terminated']) * best
    taken = values(model, data['obs'], data['action'][:, :2])[np.arange(6), data['action'][:, 2].astype(int)]
    loss = policy.update.loss(policy.columns(data))
    np.testing.assert_allclose(loss.value.item(), ((wanted - taken) ** 2).mean(), rtol=1e-5)
    np.testing.assert_allclose(loss.error, wanted - taken, rtol=1e-4, atol=1e-5)
    assert all(
        g is None for g in torch.autograd.grad(loss.value, [*model.actor.parameters()], allow_unused=True)
    )


def test_the_actor_raises_the_values_of_all_allowed_choices() -> None:
    policy, data = made(MASKED), hybrid_rows()
    rows = zero_obs(MASKED.observation_space, 6)
    rows['observation'], rows['action_mask'] = data['obs'], [[1, 1, 0]] * 5 + [[0, 1, 1]]
    columns = policy.columns(data.replace(obs=rows, next_obs=rows))
    with torch.no_grad():
        value = policy.model(columns['obs']).numpy()
    loss = policy.update.actor_loss(columns).value.item()
    np.testing.assert_allclose(loss, -(value * rows['action_mask']).sum(1).mean(), rtol=1e-5)
    # and what is taken is allowed
    action = policy.eval_mode.forward(rows, np.arange(6))['action']
    assert rows['action_mask'][np.arange(6), action[:, 2].astype(int) - 5].all()


def test_with_a_pass_for_each_choice_a_value_depends_on_its_own_parameters_alone() -> None:
    belongs = [[1, 0], [0, 1], [0, 0]]
    obs = torch.randn(1, 3)
    for model, depends in (
        (dict(multi_pass=True, action_mask=belongs, dueling=False), np.array(belongs, bool)),
        (dict(), np.ones((3, 2), bool)),
    ):
        critic = made(**model).model.critic
        parameters = torch.tensor([[0.3, -0.2]], requires_grad=True)
        slopes = [torch.autograd.grad(critic(obs, parameters)[0, k], parameters)[0] for k in range(3)]
        np.testing.assert_array_equal(torch.cat(slopes).numpy() != 0, depends)
    # a Tuple of parts says it itself
    assert made(OWN, multi_pass=True).model.critic._own.tolist() == [[1, 1, 0], [0, 0, 1]]
    for given in (None, [[1, 0]], [[1, 0, 0]] * 3, [1, 0, 0], [[1, 2]] * 3):
        with raises(IncompatibleError):
            made(multi_pass=True, action_mask=given)


def test_it_explores_by_random_actions_and_else_by_noise_on_the_parameters() -> None:
    policy, obs = made(), np.zeros((4000, 3), np.float32)
    best = policy.eval_mode.forward(obs[:1], np.arange(1))['action'][0]

    def collected(**settings: float) -> np.ndarray:
        return policy.collect_mode.forward(obs, np.arange(4000), **settings)['action']

    np.testing.assert_allclose(collected(), [best] * 4000, atol=1e-6)
    noisy = collected(noise_sigma=0.1)  # of half the range, 2
    np.testing.assert_allclose(noisy.std(0), [0.2, 0.2, 0], atol=0.02)
    drawn = collected(eps=1.0)
    assert np.bincount(drawn[:, 2].astype(int) - 5).min() > 1200
    np.testing.assert_allclose(drawn[:, :2].mean(0), 1, atol=0.1)
    np.testing.assert_allclose(drawn[:, :2].std(0), 4 / np.sqrt(12), atol=0.05)
    half = collected(eps=0.5)
    assert abs((half == np.float32(best)).all(1).mean() - 0.5) < 0.05
