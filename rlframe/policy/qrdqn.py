"""QR-DQN: DQN that learns quantiles of the return at fixed fractions."""

from __future__ import annotations

from typing import Any

from rlframe.data.timestep import EnvSpec
from rlframe.policy.dqn import DoubleConfig, QLearn, QModel, QPolicy, QUpdate
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.outputs import Output, Quantiles
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class QRDQNModel(QModel):
    """Section ``model`` of QR-DQN."""

    num_quantiles: int = option(
        32,
        range='[2, inf)',
        unit='quantiles',
        doc='number of quantiles that describe the return of an action',
    )


class QRDQNLearn(QLearn):
    """Section ``learn`` of QR-DQN."""

    kappa: float = option(
        1.0, range='(0, inf)', doc='error from which the loss grows linearly', may_change=True
    )


class QRDQNConfig(DoubleConfig):
    """Options of QR-DQN."""

    model: QRDQNModel
    learn: QRDQNLearn


class QRDQNUpdate(QUpdate):
    """Quantiles at the midpoints of even parts."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self._kappa = cfg.learn.kappa

    def output(self, network: Any, obs: Any, tau: torch.Tensor | None = None) -> Output:
        return Quantiles(network(obs), kappa=self._kappa)


@POLICY_REGISTRY.register('qrdqn')
class QRDQNPolicy(QPolicy):
    """DQN whose network outputs quantiles of each action's return; actions are compared by their mean.

    Source:
        Dabney et al., Distributional Reinforcement Learning with Quantile Regression (2018), algorithm 1.
    """

    _cfg: QRDQNConfig
    network_arguments: dict[str, str | None] = {'num_quantiles': 'atoms'}
    update_class = QRDQNUpdate
    ding = DingNames(defaults={'other.replay_buffer.replay_buffer_size': 10_000, 'model.dueling': False})
    toy = QPolicy.toy | dict(model=dict(num_quantiles=8))
    search_space = QPolicy.search_space.having({'model.num_quantiles': 'randint(5,201)'})
    solves = 'CartPole-v1', 40_000
