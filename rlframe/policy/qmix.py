"""QMIX: DQN for a team, whose value is a monotonic function of the values of its agents."""

from __future__ import annotations

from rlframe.policy.vdn import VDN_DING, TeamQConfig, TeamQModel, VDNPolicy
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option

QMIX_DING = VDN_DING.having(unused={'model.mixer': 'the policy vdn is the one without a mixing network'})
"""What DI-engine calls the options of QMIX and its kin."""


class QMIXModel(TeamQModel):
    """Section ``model`` of QMIX."""

    mixer_size: int = option(32, range='[1, inf)', unit='units', doc='hidden units of the mixing network')


class QMIXConfig(TeamQConfig):
    """Options of QMIX."""

    model: QMIXModel


@POLICY_REGISTRY.register('qmix')
class QMIXPolicy(VDNPolicy):
    """QMIX: the team's value is monotonic in that of each agent, so each agent's best action is part of the best joint action.

    Q_tot(s, a) = w2(s) . elu(W1(s) q + b1(s)) + b2(s), where q are the values of what the agents chose, and the weights W1 and w2
    are absolute values of functions of the state; only learning needs the state and the mixer. In the two-step game of the
    paper it finds the return 8, which sums of values (``vdn``) cannot represent.

    Source:
        Rashid et al., QMIX: Monotonic Value Function Factorisation for Deep Multi-Agent Reinforcement Learning (2018),
        eq. 5 and 6, and section 4.2.
    """

    _cfg: QMIXConfig
    layers = {'mixer': 'monotonic'}
    ding = QMIX_DING
