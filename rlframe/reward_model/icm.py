"""ICM: steps are worth the error of a model that predicts the features of the next state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.timestep import Batch, EnvSpec, FloatArray
from rlframe.errors import ConfigError
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.network import NetworkConfig, NetworkRewardModel
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class ICMConfig(NetworkConfig):
    """Options of ``icm``."""

    forward_share: float = option(
        0.2, range='[0, 1]', doc='weight of the loss of the forward model, beside that of the inverse model'
    )


class InverseModel(NetworkRewardModel):
    """Body of reward models whose features are those by which the action between two states is found.

    Discrete actions are told apart by their log-probabilities, continuous ones by their squared distance.
    """

    columns = 'obs', 'next_obs', 'action'

    @classmethod
    def check_spec(cls, cfg: Any, spec: EnvSpec) -> list[ConfigError]:
        space: Any = spec.action_space
        if type(space).__name__ in ('Discrete', 'Box'):
            return []
        message = f'actions of {spec.name} are {space!r}, and this model finds Discrete or Box ones'
        return [
            ConfigError(
                message, where='type', got=cfg['type'], remedy="'rnd' and 'counts' pay for any actions."
            )
        ]

    def make_network(self) -> Any:
        width = self._cfg.hidden_size_list[-1]
        return torch.nn.ModuleDict(
            {'encoder': self.encoder(), 'inverse': _two_layers(2 * width, width, self._action_size)}
        )

    @property
    def _action_size(self) -> int:
        """Numbers of an action: classes, or dimensions."""
        space: Any = self.spec.action_space
        return int(space.n) if hasattr(space, 'n') else int(np.prod(space.shape))

    def as_numbers(self, action: torch.Tensor) -> torch.Tensor:
        """Returns actions as vectors [B, A]; classes are one-hot."""
        if hasattr(self.spec.action_space, 'n'):
            return torch.nn.functional.one_hot(action.long(), self._action_size).float()
        return action.flatten(1).float()

    def inverse_loss(self, before: torch.Tensor, after: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Returns how badly actions are found, by features of the states before and after them, [B, F]."""
        found: torch.Tensor = self.network['inverse'](torch.cat([before, after], 1))
        if hasattr(self.spec.action_space, 'n'):
            return torch.nn.functional.cross_entropy(found, action.long())
        return (found - self.as_numbers(action)).square().mean()


@REWARD_MODEL_REGISTRY.register('icm')
class ICM(InverseModel):
    """Intrinsic curiosity module: a step is new if its outcome is not foreseen, in features that actions depend on.

        r = ½ |φ̂(s') - φ(s')|², with φ̂(s') = f(φ(s), a), and the loss is (1 - β) L_inverse + β r

    Source:
        Pathak et al., Curiosity-driven Exploration by Self-supervised Prediction (2017), eq. 2 to 7; β is ``forward_share``.
    """

    _cfg: ICMConfig

    def make_network(self) -> Any:
        network = super().make_network()
        width = self._cfg.hidden_size_list[-1]
        network['foresee'] = _two_layers(width + self._action_size, width, width)
        return network

    def surprise(self, before: torch.Tensor, after: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Returns half of the squared distance of features [B, F] from those foreseen, [B]."""
        foreseen: torch.Tensor = self.network['foresee'](torch.cat([before, self.as_numbers(action)], 1))
        return (foreseen - after).square().sum(1) / 2

    def loss(self, rows: Mapping[str, Any]) -> torch.Tensor:
        share = self._cfg.forward_share
        action = rows['action']
        before, after = (self.network['encoder'](rows[name]) for name in ('obs', 'next_obs'))
        inverse = self.inverse_loss(before, after, action)
        return (1 - share) * inverse + share * self.surprise(before, after, action).mean()

    def reward(self, rows: Batch) -> FloatArray:
        encoder = self.network['encoder']
        return self.by_pieces(
            rows, lambda c: self.surprise(encoder(c['obs']), encoder(c['next_obs']), c['action'])
        )


def _two_layers(inputs: int, hidden: int, outputs: int) -> Any:
    layers = torch.nn.Linear(inputs, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, outputs)
    return torch.nn.Sequential(*layers)
