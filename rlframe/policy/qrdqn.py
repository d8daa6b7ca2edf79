"""QR-DQN and IQN: DQN that learns quantiles of the return, at fixed fractions or at any."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Batch
from rlframe.policy.dqn import DQNConfig, DQNLearn, DQNModel, QPolicy, Returns
from rlframe.policy.parts.sequences import Rows
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class QRDQNModel(DQNModel):
    """Section ``model`` of QR-DQN."""

    num_quantiles: int = option(
        32,
        range='[2, inf)',
        unit='quantiles',
        doc='number of quantiles that describe the return of an action',
    )


class QRDQNLearn(DQNLearn):
    """Section ``learn`` of QR-DQN."""

    kappa: float = option(
        1.0, range='(0, inf)', doc='error from which the loss grows linearly', may_change=True
    )


class QRDQNConfig(DQNConfig):
    """Options of QR-DQN."""

    model: QRDQNModel
    learn: QRDQNLearn


class Quantiles(Returns):
    """Quantiles of the return; actions are compared by their mean.

    Source:
        Dabney et al., Distributional Reinforcement Learning with Quantile Regression (2018), algorithm 1.
    """

    def expected(self, output: torch.Tensor) -> torch.Tensor:
        return output.mean(2)

    def loss(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, Metrics]:
        policy = self._policy
        quantiles = policy.chosen(policy.valued(policy.model, rows, 'obs'), rows['action'])  # [B, M]
        target = policy.target(rows)  # [B, M]
        losses = quantile_huber_loss(quantiles, target, policy._kappa, rows.get('obs_tau'))
        value, wanted = quantiles.detach().mean(1), target.mean(1)
        return losses, wanted - value, {'q_value': value.mean(), 'target_q_value': wanted.mean()}

    def target(self, rows: Rows) -> torch.Tensor:
        policy = self._policy
        with torch.no_grad():
            reward, discount = policy.reward(rows), policy.targets.discount(rows)
            return reward[:, None] + discount[:, None] * policy.next_output(rows)


@POLICY_REGISTRY.register('qrdqn')
class QRDQNPolicy(QPolicy):
    """DQN whose network outputs quantiles of each action's return; actions are compared by their mean.

    Source:
        Dabney et al. (2018), algorithm 1.
    """

    _cfg: QRDQNConfig
    network_arguments: dict[str, str | None] = {'num_quantiles': 'atoms'}
    return_kind = Quantiles


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


class IQNConfig(QRDQNConfig):
    """Options of IQN."""

    model: IQNModel


@POLICY_REGISTRY.register('iqn')
class IQNPolicy(QPolicy):
    """DQN whose network gives the quantile of an action's return at any fraction; an update draws fractions.

    Acting compares actions by the mean of the quantiles at the midpoints of ``num_quantiles`` even parts, where the paper
    draws 32 fractions, so that an evaluation and an exported policy have no noise of their own.

    Source:
        Dabney et al., Implicit Quantile Networks for Distributional Reinforcement Learning (2018), eq. 3 and 4.
    """

    _cfg: IQNConfig
    network_arguments: dict[str, str | None] = {
        'num_quantiles': 'atoms',
        'quantile_embedding_size': 'embedding_size',
    }
    return_kind = Quantiles

    def default_model(self) -> str:
        return 'implicit_q_net'

    def columns(self, data: Batch) -> Rows:
        rows, size = super().columns(data), (len(data), self._cfg.model.num_quantiles)
        for name in ('obs_tau', 'next_obs_tau'):
            rows[name] = self.tensor(self.rng.random(size, np.float32))
        return rows

    def valued(self, model: Any, rows: Rows, column: str) -> torch.Tensor:
        output: torch.Tensor = model(rows[column], rows[f'{column}_tau'])
        return output


def quantile_huber_loss(
    quantiles: torch.Tensor, target: torch.Tensor, kappa: float = 1.0, tau: torch.Tensor | None = None
) -> torch.Tensor:
    """Returns the loss of estimated quantiles against samples of the distribution they are of.

    Args:
        quantiles: Estimates, float32 [B, M].
        target: Samples, float32 [B, K].
        kappa: Error from which the loss grows linearly.
        tau: The fractions that the estimates are at, float32 [B, M]; None: the midpoints (2i + 1) / 2M.

    Returns:
        The loss of each row, summed over estimates and averaged over samples, float32 [B].

    Source:
        Dabney et al. (2018), eq. 9 and 10.
    """
    if tau is None:
        count = quantiles.shape[1]
        tau = ((torch.arange(count, device=quantiles.device) + 0.5) / count)[None]  # [1, M]
    # the derivative is known, and autograd would fill a dozen tensors of this size to find it
    with torch.no_grad():
        error = target[:, None, :] - quantiles[:, :, None]  # [B, M, K]
        slope = error.clamp(-kappa, kappa)  # of the Huber loss
        # times |tau - [error < 0]|, which is tau, and 1 - 2 tau more where the slope is negative
        pull = slope.clamp(max=0).mul_(1 - 2 * tau[:, :, None]).addcmul_(slope, tau[:, :, None])
        loss = error.sub_(slope, alpha=0.5).mul_(pull).mean(2) / kappa
        derivative = pull.mean(2) / -kappa
    return (loss + derivative * (quantiles - quantiles.detach())).sum(1)
