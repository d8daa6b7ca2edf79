"""QTRAN: DQN for a team with a value of joint actions, whose best one the sum of the agents' values is made to share."""

from __future__ import annotations

from rlframe.policy.parts.sequences import Rows
from rlframe.policy.update import Loss
from rlframe.policy.vdn import VDN_DING, TeamQConfig, TeamQLearn, TeamQModel, VDNPolicy, VDNUpdate
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class QTRANModel(TeamQModel):
    """Section ``model`` of QTRAN."""

    joint_size: int = option(
        64, range='[1, inf)', unit='units', doc='hidden units of the values of joint actions and states'
    )


class QTRANLearn(TeamQLearn):
    """Section ``learn`` of QTRAN."""

    opt_weight: float = option(
        1.0, range='[0, inf)', doc='weight of the loss at the best joint action', may_change=True
    )
    nopt_weight: float = option(
        1.0, range='[0, inf)', doc='weight of the loss at the joint actions taken', may_change=True
    )


class QTRANConfig(TeamQConfig):
    """Options of QTRAN."""

    model: QTRANModel
    learn: QTRANLearn


class QTRANUpdate(VDNUpdate):
    """Double Q-learning of joint actions, and the sum of the agents' values, which is to be the same at the best one."""

    logged = (*VDNUpdate.logged, 'td_loss', 'opt_loss', 'nopt_loss')

    def target(self, rows: Rows) -> torch.Tensor:
        # the joint value of the agents' best choices in the next state
        next_obs = rows['next_obs']
        judge = self.model if self.double else self.targets.network
        best = self.best(judge(next_obs), next_obs)
        joint = self.targets.network.joint(self.model.now(next_obs), best)
        target: torch.Tensor = rows['reward'] + self.targets.discount(rows) * joint
        return target

    def loss(self, rows: Rows) -> Loss:
        obs, action = rows['obs'], rows['action']
        seen = self.model.now(obs)
        # value of the joint actions taken, and target
        joint = self.model.joint(seen, action)
        with torch.no_grad():
            target = self.target(rows)
        error = target - joint
        # sums of the values of agents, at the best joint action and at the one taken
        value = self.model(obs)
        best = self.best(value.detach(), obs)
        with torch.no_grad():
            joint_of_best = self.model.joint(seen, best)
        offset = self.model.state_value(seen)
        at_best = self.joint(self.model, value, best, obs) - joint_of_best + offset
        at_taken = self.joint(self.model, value, action, obs) - joint.detach() + offset
        # losses
        learn = self.cfg.learn
        td_loss = self.targets.mean(error.square(), rows)
        opt_loss = self.targets.mean(at_best.square(), rows)
        nopt_loss = self.targets.mean(at_taken.clamp(max=0).square(), rows)
        loss = td_loss + learn.opt_weight * opt_loss + learn.nopt_weight * nopt_loss
        metrics = {'q_value': joint.detach().mean(), 'target_q_value': target.mean()}
        parts = {'td_loss': td_loss, 'opt_loss': opt_loss, 'nopt_loss': nopt_loss}
        return Loss(loss, metrics, error.detach(), parts)


@POLICY_REGISTRY.register('qtran')
class QTRANPolicy(VDNPolicy):
    """QTRAN: the sum of the agents' values has the same best joint action as a value of joint actions without limits.

    The value of joint actions Q(s, u) learns by double Q-learning. With Q'(s, u) the sum of the agents' values, u* the agents'
    best choices and Q held fixed, two more losses make u* the best joint action of Q, too (QTRAN-base):

        L_opt = (Q'(s, u*) - Q(s, u*) + V(s))²
        L_nopt = min(Q'(s, u) - Q(s, u) + V(s), 0)²

    Q and V read the state and what agents see at present, not what they remember; only learning needs them.

    Source:
        Son et al., QTRAN: Learning to Factorize with Transformation for Cooperative Multi-Agent Reinforcement Learning
        (2019), eq. 4 and 5, and section 3.3.
    """

    _cfg: QTRANConfig
    default_network = 'qtran_net'
    update_class = QTRANUpdate
    ding = VDN_DING.having(
        options={
            'model.embedding_size': 'model.joint_size',
            'learn.nopt_min_weight': 'learn.nopt_weight',
        },
        defaults={'learn.opt_weight': 0.01, 'learn.nopt_weight': 1e-4, 'double': True},
        unused={
            'learn.td_weight': 'the loss of joint values has the weight 1',
            'model.lstm_type': 'policy.model.core is a GRU by default',
            'other.replay_buffer.max_reuse': 'the sequence replay buffer has no such limit',
            'other.replay_buffer.max_staleness': 'the sequence replay buffer has none',
        },
    )
