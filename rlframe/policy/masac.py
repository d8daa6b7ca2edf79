"""MASAC: soft actor-critic for a team, with actors of what each agent sees and critics of the state and all actions."""

from __future__ import annotations

from typing import Any

from rlframe.policy.maddpg import TeamQACModel, check_core
from rlframe.policy.parts.team import GROUPS
from rlframe.policy.sac import ContinuousSACConfig, SACPolicy
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option


class MASACConfig(ContinuousSACConfig):
    """Options of MASAC."""

    groups: str | list[Any] = option(GROUPS)
    model: TeamQACModel


@POLICY_REGISTRY.register('masac')
class MASACPolicy(SACPolicy):
    """Multi-agent SAC: critics value the actions of all agents in the state, and actors also earn the entropy of the team.

    As in ``maddpg`` the team has one reward, and only learning needs the state.

    Source:
        Haarnoja et al., Soft Actor-Critic Algorithms and Applications (2018), for the joint action of Lowe et al.,
        Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments (2017), section 4.1.
    """

    _cfg: MASACConfig
    is_for_teams = True
    checks = (check_core,)

    def default_model(self) -> str:
        return 'team_qac'
