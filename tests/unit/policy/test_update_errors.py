"""A wrong update of the user is one error in its first update, which names the class and the method."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from policy_toys import PLAIN, random_rows

from rlframe.policy.dqn import DQNPolicy, DQNUpdate
from rlframe.policy.parts.outputs import Quantiles
from rlframe.policy.update import Loss, Update


class Tensors(DQNUpdate):
    def output(self, network: Any, obs: Any, tau: Any = None) -> Any:
        return network(obs)

    def target(self, rows: Any) -> torch.Tensor:
        return rows['reward']


class Means(DQNUpdate):
    def output(self, network: Any, obs: Any, tau: Any = None) -> Any:
        return Quantiles(network(obs)[:, :, None].expand(-1, -1, 3))

    def target(self, rows: Any) -> torch.Tensor:
        return rows['reward']


class Spread(DQNUpdate):
    def target(self, rows: Any) -> torch.Tensor:
        return rows['reward'][:, None].expand(-1, 3)


class Rowwise(DQNUpdate):
    def loss(self, rows: Any) -> Loss:
        return Loss(self.model(rows['obs']).square().mean(1))


class Constant(DQNUpdate):
    def loss(self, rows: Any) -> Loss:
        return Loss(rows['reward'].mean())


class Bare(DQNUpdate):
    def loss(self, rows: Any) -> Any:
        return self.model(rows['obs']).mean()


class Lossless(Update):
    losses = {'actor_loss': 'model'}


class Frozen(DQNUpdate):
    losses = {'loss': 'nothing'}


WRONG = {
    Tensors: 'Tensors.output returned Tensor, not an Output: Values, Quantiles or Atoms',
    Means: 'Means.target returned [8]; Quantiles need a target [B, M]',
    Spread: 'Spread.target returned [8, 3]; Values need a target [B]',
    Rowwise: 'Rowwise.loss returned a loss of the shape [8], not a number',
    Constant: 'Constant.loss returned a loss that depends on no parameter',
    Bare: 'Bare.loss returned Tensor, not a Loss',
    Lossless: "Lossless has no method 'actor_loss', which its losses name",
    Frozen: "Frozen.loss trains 'nothing', which has no parameters with gradients",
}


@pytest.mark.parametrize('update', WRONG)
def test_the_class_and_the_method_are_named(update: type[Update]) -> None:
    kind = type('OwnPolicy', (DQNPolicy,), {'update_class': update})
    with pytest.raises(TypeError) as caught:
        kind({'cuda': False, 'double': False}, PLAIN).learn_mode.forward(random_rows(8))
    assert str(caught.value) == WRONG[update]
