"""RND: states are worth the error of a network that predicts the random features of another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.data.timestep import Batch, FloatArray
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.network import NetworkConfig, NetworkRewardModel
from rlframe.utils.lazy import torch


@REWARD_MODEL_REGISTRY.register('rnd')
class RND(NetworkRewardModel):
    """Random network distillation: a state is new if a predictor does not know its random features yet.

        r(s') = mean (predictor(s') - target(s'))², and the same is the loss of the predictor

    Source:
        Burda et al., Exploration by Random Network Distillation (2018), section 2.2; standardised observations and rewards:
        section 2.4.
    """

    _cfg: NetworkConfig

    def make_network(self) -> Any:
        network: Any = torch.nn.ModuleDict({'target': self.encoder(), 'predictor': self.encoder()})
        network['target'].requires_grad_(False)
        return network

    def error(self, obs: Any) -> torch.Tensor:
        """Returns how little is known of observations, as ``inputs`` returns them, float32 [B]."""
        wrong: torch.Tensor = self.network['predictor'](obs) - self.network['target'](obs)
        return wrong.square().mean(1)

    def loss(self, rows: Mapping[str, Any]) -> torch.Tensor:
        return self.error(rows['next_obs']).mean()

    def reward(self, rows: Batch) -> FloatArray:
        return self.by_pieces(rows, lambda columns: self.error(columns['next_obs']))
