"""Weighted QMIX: QMIX that cares less about joint actions that are worse than they seem, with a critic that is not monotonic."""

from __future__ import annotations

from typing import Any

from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qmix import QMIX_DING, QMIXConfig
from rlframe.policy.update import Loss
from rlframe.policy.vdn import TeamQLearn, VDNPolicy, VDNUpdate
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class WQMIXLearn(TeamQLearn):
    """Section ``learn`` of weighted QMIX."""

    optimistic: bool = option(
        True,
        doc='which joint actions count fully: True: those worth more than QMIX thinks (OW-QMIX); False: the best one, and those'
        ' worth more than it (CW-QMIX)',
    )
    alpha: float = option(0.5, range='(0, 1]', doc='weight of the others', may_change=True)


class WQMIXConfig(QMIXConfig):
    """Options of weighted QMIX."""

    learn: WQMIXLearn


class WQMIXUpdate(VDNUpdate):
    """A critic of joint actions, and the monotonic values that fit it by weights."""

    def target(self, rows: Rows) -> torch.Tensor:
        # what the critic says of the agents' best choices in the next state
        next_obs = rows['next_obs']
        best = self.best(self.model(next_obs), next_obs)
        critic = self.targets.network.central
        joint = self.joint(critic, critic(next_obs), best, next_obs)
        target: torch.Tensor = rows['reward'] + self.targets.discount(rows) * joint
        return target

    def is_same(self, one: torch.Tensor, other: torch.Tensor, obs: Any) -> torch.Tensor:
        """Returns whether joint actions, [B, A], are the same as far as agents are present, bool [B]."""
        present = self.model.present(obs, torch.ones(one.shape, device=one.device))
        return ((one == other) | (present == 0)).all(1)

    def loss(self, rows: Rows) -> Loss:
        # the joint actions taken, by the monotonic network and by the critic
        obs, action = rows['obs'], rows['action']
        value = self.model(obs)
        central = self.model.central(obs)
        joint = self.joint(self.model, value, action, obs)
        judged = self.joint(self.model.central, central, action, obs)
        # target, and the weight of each row
        with torch.no_grad():
            target = self.target(rows)
            is_full = target > joint
            if not self.cfg.learn.optimistic:
                best = self.best(value, obs)
                is_best = self.is_same(best, action.reshape(len(best), -1), obs)
                is_full = is_best | (target > self.joint(self.model.central, central, best, obs))
            weight = torch.where(is_full, 1.0, self.cfg.learn.alpha)
        error = target - joint
        loss = self.targets.mean(weight * error.square() + (target - judged).square(), rows)
        metrics = {'q_value': joint.detach().mean(), 'target_q_value': target.mean()}
        return Loss(loss, metrics, error.detach())


@POLICY_REGISTRY.register('wqmix')
class WQMIXPolicy(VDNPolicy):
    """Weighted QMIX: a monotonic value of the team that fits an unrestricted critic best where joint actions are good.

    L = mean of w (y - Q_tot)^2 + (y - Q*)^2, y = r + gamma Q*'(s', argmax Q_tot). Q* has agents of its own, and a mixer that
    reads their values and the state. w is 1 or ``alpha``: 1 where y > Q_tot (optimistic), or for the best joint action and
    those with y > Q*(s, best) (centrally weighted).

    Source:
        Rashid et al., Weighted QMIX: Expanding Monotonic Value Function Factorisation for Deep Multi-Agent Reinforcement
        Learning (2020), eq. 5, 7 and 8, and section 5.
    """

    _cfg: WQMIXConfig
    update_class = WQMIXUpdate
    layers = {'mixer': 'monotonic', 'has_critic': True}
    ding = QMIX_DING.having(options={'learn.wqmix_ow': 'learn.optimistic'})
