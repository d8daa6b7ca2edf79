"""Actor and critic may have widths of their own, in every policy that has both, with and without a core."""

from __future__ import annotations

from typing import Any

import pytest
from error_texts import raises
from torch import nn

from rlframe.errors import ConfigError
from rlframe.policy import create_policy
from rlframe.policy.parts.ding_form import spec_of_env
from rlframe.policy.parts.fit import misfit
from rlframe.registry import POLICY_REGISTRY

FIELDS = {name: POLICY_REGISTRY.get(name).config_fields()['model'] for name in POLICY_REGISTRY.names()}
WITHOUT_CORE = ('crossq', 'xqc', 'droq', 'rebrac', 'trpo')
"""Policies whose critics have norms, or learn from shuffled rows."""
BOTH = [name for name, model in FIELDS.items() if 'critic_hidden_size_list' in model]


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
    if core is None:
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
