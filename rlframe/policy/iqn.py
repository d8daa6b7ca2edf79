"""IQN: DQN that learns the quantiles of the return at any fraction."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.timestep import Array
from rlframe.policy.dqn import QPolicy
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.outputs import Output, Quantiles
from rlframe.policy.parts.starting import Facts, Settings
from rlframe.policy.qrdqn import QRDQNConfig, QRDQNModel, QRDQNPolicy, QRDQNUpdate
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class IQNModel(QRDQNModel):
    """Section ``model`` of IQN."""

    num_quantiles: int = option(
        32,
        range='[2, inf)',
        unit='quantiles',
        doc='number of random fractions in an update, and of evenly spaced ones for acting',
    )
    quantile_embedding_size: int = option(
        64, range='[1, inf)', unit='cosines', doc='number of cosines that embed a fraction'
    )


FRACTIONS: dict[str, str | None] = {
    'num_quantiles': 'atoms',
    'quantile_embedding_size': 'embedding_size',
}
"""Options of quantiles at any fraction, to the arguments of networks that output them."""
STARTING: Settings = dict(num_quantiles=16, quantile_embedding_size=32)
"""Sizes to begin with: in the paper (figure 2), returns hardly rise beyond 8 quantiles."""


class IQNConfig(QRDQNConfig):
    """Options of IQN."""

    model: IQNModel


class IQNUpdate(QRDQNUpdate):
    """Quantiles at fractions that an update draws."""

    def draws(self, rng: np.random.Generator, count: int) -> dict[str, Array]:
        size = count, self.cfg.model.num_quantiles
        return {name: rng.random(size, np.float32) for name in ('obs_tau', 'next_obs_tau')}

    def output(self, network: Any, obs: Any, tau: torch.Tensor | None = None) -> Output:
        return Quantiles(network(obs, tau), tau, kappa=self._kappa)


@POLICY_REGISTRY.register('iqn')
class IQNPolicy(QPolicy):
    """DQN whose network gives the quantile of an action's return at any fraction; an update draws fractions.

    Acting compares actions by the mean of the quantiles at the midpoints of ``num_quantiles`` even parts, where the paper
    draws 32 fractions, so that an evaluation and an exported policy have no noise of their own.

    Source:
        Dabney et al., Implicit Quantile Networks for Distributional Reinforcement Learning (2018), eq. 3 and 4.
    """

    _cfg: IQNConfig
    network_arguments = FRACTIONS
    default_network = 'implicit_q_net'
    update_class = IQNUpdate
    ding = DingNames(
        defaults={
            'other.replay_buffer.replay_buffer_size': 10_000,
            'model.dueling': False,
            'model.quantile_embedding_size': 128,
        },
        unused={'kappa': 'without effect in DI-engine as well; policy.learn.kappa is the option'},
    )
    toy = QPolicy.toy | dict(model=dict(num_quantiles=8, quantile_embedding_size=16))
    search_space = QRDQNPolicy.search_space
    solves = 'CartPole-v1', 40_000

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        found = super().starting(facts)
        return found | dict(model=found['model'] | STARTING)
