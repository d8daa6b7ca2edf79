"""The layers of critics are those that options ask for, and networks of users take them or are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from error_texts import raises
from test_sac_switches import SIZE, SPEC, batch_of, make

from rlframe.errors import ConfigError
from rlframe.registry import MODEL_REGISTRY


@pytest.mark.parametrize('name', ['ddpg', 'td3', 'sac'])
def test_number_and_norm_of_critics_are_those_that_are_set(name: str) -> None:
    policy = make(name, model=dict(n_critic=3, twin_critic=True, norm='layer'))
    critic, rows = policy.model.critic, policy.columns(batch_of())
    assert critic(rows['obs'], rows['action']).shape == (3, SIZE)
    assert isinstance(critic.nets[2].norms[0], torch.nn.LayerNorm)


def test_units_of_droq_are_dropped_while_it_learns() -> None:
    policy = make('droq', model=dict(dropout=0.5))
    rows = policy.columns(batch_of())
    learning = [policy.model.critic(rows['obs'], rows['action'], is_training=True) for _ in range(2)]
    acting = [policy.model.critic(rows['obs'], rows['action']) for _ in range(2)]
    assert not torch.equal(*learning) and torch.equal(*acting)
    value = []
    for seed in (1, 1, 2):  # the policy's generator draws the units
        again = make('droq', model=dict(dropout=0.5))
        again.generator.manual_seed(seed)
        value.append(float(again.learn_mode.forward(batch_of())['critic_loss']))
    assert value[0] == value[1] != value[2]


@pytest.mark.parametrize('name', ['ddpg', 'td3', 'sac'])
def test_residual_blocks_are_those_of_simba_in_actor_and_critics(name: str) -> None:
    policy = make(name, model=dict(encoder_hidden_size_list=[12, 16], residual_blocks=2))
    nets = [policy.model.actor, *policy.model.critic.nets]
    assert len(nets) == (2 if name == 'ddpg' else 3)
    rows = policy.columns(batch_of())
    for net in nets:
        given = rows['obs'] if net is nets[0] else torch.cat([rows['obs'], rows['action']], 1)
        first, second, head = net.layers
        features = second(first(given).relu())
        for block in net.blocks:
            assert block.widen.weight.shape == (64, 16)
            features = features + block.narrow(block.widen(block.norm(features)).relu())
        expected = head(net.norm(features))
        if net is nets[0]:
            got, expected = net(rows['obs']), expected.tanh() if name != 'sac' else expected[:, :2]
            got = got if name != 'sac' else got[0]
        else:
            got, expected = (
                policy.model.critic(rows['obs'], rows['action'])[nets.index(net) - 1],
                expected[:, 0],
            )
        torch.testing.assert_close(got, expected)
    before = [parameter.clone() for parameter in policy.model.parameters()]
    policy.learn_mode.forward(batch_of())
    after = list(policy.model.parameters())
    assert all(bool((one != other).any()) for one, other in zip(before, after, strict=True))


# networks of users


class PlainActor(torch.nn.Linear):
    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return super().forward(obs).chunk(2, 1)


class PlainCritics(torch.nn.Linear):
    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.cat([obs, action], 1)).T


@MODEL_REGISTRY.register('strict_toy')
class Strict(torch.nn.Module):
    """Takes only the arguments that it names."""

    def __init__(
        self,
        spec: Any,
        actor: str,
        critic_num: int,
        encoder_hidden_size_list: Any,
        activation: str,
        conv_layers: Any,
        image_layout: str,
    ) -> None:
        super().__init__()
        self.actor, self.critic = PlainActor(3, 4), PlainCritics(5, critic_num)


def test_a_network_takes_the_switches_that_are_set_or_is_refused() -> None:
    policy = make('sac', SPEC, model=dict(type='strict_toy'))
    assert 'critic_loss' in policy.learn_mode.forward(batch_of())
    with raises(ConfigError):
        make('sac', model=dict(type='strict_toy', norm='layer'))
