"""QR-DQN: DQN that learns quantiles of the return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.data.faces import Metrics
from rlframe.policy.dqn import DQNConfig, DQNLearn, DQNModel, DQNPolicy
from rlframe.policy.parts.sequences import Rows
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


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


@POLICY_REGISTRY.register('qrdqn')
class QRDQNPolicy(DQNPolicy):
    """DQN whose network outputs quantiles of each action's return; actions are compared by their mean.

    Source:
        Dabney et al., Distributional Reinforcement Learning with Quantile Regression (2018), algorithm 1.
    """

    _cfg: QRDQNConfig

    def model_kwargs(self) -> dict[str, Any]:
        kwargs = super().model_kwargs()
        return kwargs | {'atoms': kwargs.pop('num_quantiles')}

    def _init_learn(self) -> None:
        super()._init_learn()
        self._kappa = self._cfg.learn.kappa

    def _expected(self, output: torch.Tensor) -> torch.Tensor:
        return output.mean(2)

    def _losses(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, Metrics]:
        quantiles = self._chosen(self._model(rows['obs']), rows['action'])  # [B, M]
        target = self._target(rows)  # [B, M]
        losses = quantile_huber_loss(quantiles, target, self._kappa)
        value, wanted = quantiles.detach().mean(1), target.mean(1)
        return losses, wanted - value, {'q_value': value.mean(), 'target_q_value': wanted.mean()}

    def _target(self, rows: Rows) -> torch.Tensor:
        with torch.no_grad():
            reward, discount = rows['reward'], self._targets.discount(rows)
            return reward[:, None] + discount[:, None] * self._next_output(rows['next_obs'])


def quantile_huber_loss(quantiles: torch.Tensor, target: torch.Tensor, kappa: float = 1.0) -> torch.Tensor:
    """Returns the loss of estimated quantiles against samples of the distribution they are of.

    Args:
        quantiles: Estimates at the midpoints (2i + 1) / 2M, float32 [B, M].
        target: Samples, float32 [B, K].
        kappa: Error from which the loss grows linearly.

    Returns:
        The loss of each row, summed over estimates and averaged over samples, float32 [B].

    Source:
        Dabney et al. (2018), eq. 9 and 10.
    """
    count = quantiles.shape[1]
    midpoints = (torch.arange(count, device=quantiles.device) + 0.5) / count  # [M]
    error = target[:, None, :] - quantiles[:, :, None]  # [B, M, K]
    huber = torch.nn.functional.huber_loss(
        quantiles[:, :, None].expand_as(error),
        target[:, None, :].expand_as(error),
        reduction='none',
        delta=kappa,
    )
    weight = (midpoints[None, :, None] - (error.detach() < 0).float()).abs()
    return (weight * huber / kappa).mean(2).sum(1)
