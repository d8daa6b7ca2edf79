"""MASAC: soft actor-critic for a team, with actors of what each agent sees and critics of the state and all actions."""

from __future__ import annotations

from typing import Any

from rlframe.data.timestep import EnvSpec
from rlframe.policy.maddpg import TeamQACModel, check_core
from rlframe.policy.parts.team import GROUPS, learning_parts
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
    checks = (check_core,)

    @classmethod
    def learning_parts(cls, spec: EnvSpec, cfg: Any) -> tuple[str, ...]:
        return learning_parts(spec)

    def default_model(self) -> str:
        return 'team_qac'

    def model_kwargs(self) -> dict[str, Any]:
        return super().model_kwargs() | {'groups': self._cfg.groups}
