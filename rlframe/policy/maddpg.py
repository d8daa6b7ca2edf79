"""MADDPG: DDPG for a team, with actors of what each agent sees and a critic of the state and all actions."""

from __future__ import annotations

from typing import Any

from rlframe.data.team import STATE
from rlframe.errors import ConfigError
from rlframe.policy.ddpg import DDPGConfig, DDPGPolicy
from rlframe.policy.parts.memory import CRITIC_OBS
from rlframe.policy.parts.options import refused
from rlframe.policy.parts.team import AGENT_ID, GROUPS, OF_TEAM, SEES_LAST_ACTION
from rlframe.policy.qac import ContinuousModel
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option


class TeamQACModel(ContinuousModel):
    """Section ``model`` of actor-critics of teams with continuous actions."""

    critic_obs: str | None = option(CRITIC_OBS.having(STATE, doc=OF_TEAM))
    agent_id: bool = option(AGENT_ID)
    last_action: bool = option(SEES_LAST_ACTION)


class MADDPGConfig(DDPGConfig):
    """Options of MADDPG."""

    groups: str | list[Any] = option(GROUPS)
    model: TeamQACModel


def check_core(cfg: Any) -> list[ConfigError]:
    """Refuses a memory, which actors of teams with continuous actions do not have."""
    message = 'agents with continuous actions have a memory with mappo only'
    return [] if cfg.model.core is None else [refused(cfg, 'model.core', message, 'None')]


@POLICY_REGISTRY.register('maddpg')
class MADDPGPolicy(DDPGPolicy):
    """Multi-agent DDPG: the critic values the actions of all agents in the state; each agent's actor follows its gradient.

    The team has one reward, so there is one critic, where the paper has one for each agent. Only learning needs the state.
    Absent agents act on in what the critic sees.

    Source:
        Lowe et al., Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments (2017), eq. 5 and 6.
    """

    _cfg: MADDPGConfig
    is_for_teams = True
    supported_actions = 'Box'
    supports_action_mask = False
    checks = (check_core,)

    def default_model(self) -> str:
        return 'team_qac'
