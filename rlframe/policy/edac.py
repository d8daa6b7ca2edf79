"""EDAC: SAC with many critics whose gradients by the action are kept different; with weight 0 it is SAC-N."""

from __future__ import annotations

from typing import Any

from rlframe.errors import ConfigError
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import refused
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac import QACPolicy, critic_num
from rlframe.policy.sac import ContinuousSACConfig, SACLearn, SACPolicy, SACUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class EDACLearn(SACLearn):
    """Section ``learn`` of EDAC."""

    eta: float = option(
        1.0,
        range='[0, inf)',
        doc="weight of the likeness of the critics' gradients by the action; 0: SAC-N",
        may_change=True,
    )


class EDACConfig(ContinuousSACConfig):
    """Options of EDAC."""

    learn: EDACLearn


def check_critics(cfg: Any) -> list[ConfigError]:
    """Refuses a likeness of a critic that is alone."""
    if not cfg.learn.eta or critic_num(cfg.model) > 1:
        return []
    return [refused(cfg, 'learn.eta', 'one critic is like no other', '0, or more critics')]


class EDACUpdate(SACUpdate):
    """SAC with the least of many values, and a loss of how alike the critics' gradients are."""

    def slopes(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        """Returns the gradient of each critic's value by the action, divided by its length, [critics, B, A]."""
        critic = self.model.critic

        def total(actions: torch.Tensor) -> torch.Tensor:
            return critic.own_values(obs, actions).sum()

        # not by autograd.grad, whose result torch.compile cannot derive
        slope = torch.func.grad(total)(action.expand(len(critic.nets), -1, -1))
        return torch.nn.functional.normalize(slope, dim=2)

    def critic_loss(self, rows: Rows) -> Loss:
        # SAC's loss: the distance of values to their target
        loss = super().critic_loss(rows)
        eta = self.cfg.learn.eta
        if not eta:
            return loss
        # cosines between the gradients of all pairs of critics
        slope = self.slopes(rows['obs'], rows['action'])
        cosines = slope.sum(0).square().sum(1) - slope.square().sum((0, 2))  # [B]
        likeness = self.targets.mean(cosines, rows) / (len(slope) - 1)
        metrics = loss.metrics | {'likeness': likeness.detach()}
        return loss._replace(value=loss.value + eta * likeness, metrics=metrics)


@POLICY_REGISTRY.register('edac')
class EDACPolicy(QACPolicy):
    """SAC with ten critics, the least of whose values counts, and whose gradients by the action are kept apart.

    To the losses of the critics it adds η / (N - 1) times the mean over states of Σ_{i≠j} <∇_a Q_i(s, a), ∇_a Q_j(s, a)>, of
    gradients of length 1: critics that agree on the direction in which values rise would all promise too much for actions
    that are in no data.

    Source:
        An et al., Uncertainty-Based Offline Reinforcement Learning with Diversified Q-Ensemble (2021), section 4, algorithm 1.
    """

    _cfg: EDACConfig
    actor_kind = 'gaussian'
    may_learn_from_data = True
    config: dict[str, Any] = dict(model=dict(n_critic=10))
    update_class = EDACUpdate
    checks = (check_critics,)
    ding = DingNames(
        options={'model.ensemble_num': 'model.n_critic'},
        defaults={'learn.eta': 0.1},
        unused={'learn.with_q_entropy': 'targets include the entropy, as those of SAC'},
    )
    toy = SACPolicy.toy | dict(model=dict(n_critic=4))
