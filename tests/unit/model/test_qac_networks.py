"""Actors and critics: their widths, also apart from each other, and the density of a squashed Gaussian."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from error_texts import raises
from torch import distributions, nn

from rlframe.data import EnvSpec
from rlframe.errors import ConfigError
from rlframe.model.qac import QAC, QCritics, squashed_gaussian
from rlframe.policy import create_policy
from rlframe.policy.parts.ding_form import spec_of_env
from rlframe.policy.parts.fit import misfit
from rlframe.registry import POLICY_REGISTRY

OBS = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
BOX = gymnasium.spaces.Box(-2, 1, (2,), np.float32)


def spec_of(action: Any = BOX, obs: Any = OBS) -> EnvSpec:
    return EnvSpec(obs, action, name='Toy-v0')


def test_log_prob_is_that_of_torch_distributions() -> None:
    torch.manual_seed(0)
    mean, log_std, noise = torch.randn(3, 50, 4, dtype=torch.float64)
    action, log_prob = squashed_gaussian(mean, log_std, noise)
    normal = distributions.Independent(distributions.Normal(mean, log_std.exp()), 1)
    reference = distributions.TransformedDistribution(normal, distributions.TanhTransform(cache_size=1))
    torch.testing.assert_close(action, (mean + log_std.exp() * noise).tanh())
    inside = action.abs().amax(1) < 0.999  # where the reference is exact
    assert int(inside.sum()) > 25
    torch.testing.assert_close(log_prob[inside], reference.log_prob(action)[inside], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(('mean', 'log_std'), [(-300.0, -20.0), (30.0, -20.0), (300.0, 2.0)])
def test_far_out_values_and_gradients_stay_finite(mean: float, log_std: float) -> None:
    means = torch.full((4, 2), mean, requires_grad=True)
    log_stds = torch.full((4, 2), log_std, requires_grad=True)
    action, log_prob = squashed_gaussian(
        means, log_stds, torch.tensor([[-3.0], [0.0], [1.0], [3.0]]).expand(4, 2)
    )
    (log_prob.sum() + action.sum()).backward()
    assert means.grad is not None and log_stds.grad is not None
    assert bool(action.abs().le(1).all()) and bool(log_prob.isfinite().all())
    assert bool(means.grad.isfinite().all()) and bool(log_stds.grad.isfinite().all())


def test_log_std_is_bounded() -> None:
    actor = QAC(spec_of(), 'gaussian', []).actor
    for bias, expected in ((100.0, 2.0), (-100.0, -20.0)):
        torch.nn.init.constant_(actor.layers[-1].bias, bias)
        assert bool((actor(torch.zeros(2, 3))[1] == expected).all())


def test_critics_are_independent_and_named_one_by_one() -> None:
    torch.manual_seed(0)
    model = QAC(spec_of(), 'gaussian', [8])
    obs, action = torch.randn(5, 3), torch.rand(5, 2)
    before = model.critic(obs, action)
    assert not torch.equal(before[0], before[1])
    torch.testing.assert_close(model.critic(obs, action, count=1)[0], before[0])
    names = [name for name, _ in model.named_parameters() if name.startswith('critic.nets.1.')]
    assert names == [f'critic.nets.1.layers.{i}.{part}' for i in (0, 1) for part in ('weight', 'bias')]
    with torch.no_grad():
        model.critic.nets[1].layers[0].weight.add_(1.0)
    after = model.critic(obs, action)
    assert torch.equal(before[0], after[0]) and not torch.equal(before[1], after[1])


FIELDS = {name: POLICY_REGISTRY.get(name).config_fields()['model'] for name in POLICY_REGISTRY.names()}
TEAMS = ('mappo', 'happo', 'coma', 'maddpg', 'masac', 'maddpg_discrete', 'masac_discrete')
"""Policies whose critics read the state of a team, without a memory."""
WITHOUT_CORE = ('bcq', 'crossq', 'xqc', 'droq', 'rebrac', 'trpo', *TEAMS)
"""Policies whose critics have norms, or learn from shuffled rows, or are of teams."""
BLOCKS = {'simbav2'}
"""Policies whose widths are those of equal blocks."""
BOTH = [name for name, model in FIELDS.items() if 'critic_hidden_size_list' in model and name not in BLOCKS]


def widths(network: nn.Module) -> list[int]:
    """Returns the outputs of the hidden layers of a network, or of the first of several critics."""
    first = network.nets[0] if hasattr(network, 'nets') else network
    return [layer.out_features for layer in first.modules() if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize('core', [None, 'gru'])
@pytest.mark.parametrize('name', BOTH)
def test_the_critic_has_widths_of_its_own(name: str, core: str | None) -> None:
    kind: Any = POLICY_REGISTRY.get(name)
    env = 'Pendulum-v1' if misfit(kind, spec_of_env('CartPole-v1')) else 'CartPole-v1'
    model: dict[str, Any] = dict(encoder_hidden_size_list=[6, 5], critic_hidden_size_list=[9, 8, 7])
    if core and (name in WITHOUT_CORE or 'core' not in FIELDS[name]):
        pytest.skip('it has no core')
    policy = create_policy(name, env=env, model=model | (dict(core=core) if core else {}))
    if core is None or hasattr(policy.model.actor, 'nets'):
        parts = [getattr(policy.model, 'policy', None) or policy.model.actor, policy.model.critic]
    elif hasattr(policy.model, 'memories'):
        parts = list(policy.model.memories)
    else:
        parts = [policy.model.actor.memory, policy.model.critic.nets[0].memory]
    assert [widths(part)[:size] for part, size in zip(parts, (2, 3), strict=True)] == [[6, 5], [9, 8, 7]]


def test_a_shared_encoder_has_one_list_of_widths() -> None:
    model = dict(share_encoder=True, critic_hidden_size_list=[8])
    with raises(ConfigError):
        create_policy('ppo', env='CartPole-v1', model=model)
    assert {name for name, model in FIELDS.items() if 'core' in model and 'dueling' not in model} <= {*BOTH}


@pytest.mark.parametrize('options', [{}, {'norm': 'layer'}])
def test_values_of_many_actions_and_their_gradients_are_those_of_each(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.Tensor, 'float', torch.Tensor.double)
    critics = QCritics(spec_of(), [16, 16], 'relu', 2, **options).double()
    obs, actions = torch.randn(100, 3).double(), torch.rand(100, 31, 2).double()
    found = []
    for values in (critics.values_of_many, critics.values_of_several):
        value = values(obs, actions)
        found.append([value, *torch.autograd.grad(value.logsumexp(2).sum(), list(critics.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
