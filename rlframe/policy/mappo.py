"""MAPPO: PPO for a team, with a critic of the team's state, whose advantages all agents share."""

from __future__ import annotations

from typing import Any

from rlframe.data.faces import Metrics
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.parts.starting import Facts, Settings
from rlframe.policy.parts.team import AGENT_REWARDS, GROUPS, TeamModel
from rlframe.policy.ppo import DING_NETWORK, PPOConfig, PPOModel, PPOPolicy, PPOUpdate, metrics_of
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class MAPPOModel(TeamModel, PPOModel):
    """Section ``model`` of MAPPO."""


class MAPPOConfig(PPOConfig):
    """Options of MAPPO."""

    groups: str | list[Any] = option(GROUPS)
    agent_rewards: bool = option(AGENT_REWARDS)
    model: MAPPOModel


class MAPPOUpdate(PPOUpdate):
    """The clipped objective of each agent that is present, with the advantage of the team."""

    inputs = (*PPOUpdate.inputs, 'logit')

    def surrogate(self, logit: torch.Tensor, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, Metrics]:
        # probabilities of what agents did
        obs, action = rows['obs'], rows['action']
        log_prob, entropy = self.of_agents(self.masked(logit, obs), action)
        before, _ = self.of_agents(rows['logit'], action)
        present = self.counted(rows, log_prob)
        log_ratio = (log_prob - before) * present
        ratio = log_ratio.exp()
        # advantage of the team, or of each agent
        advantage = rows['advantage']
        if self._normalises:
            advantage = self.standardised(advantage, self._ddof)
        gain = self.gain(ratio, advantage.reshape(len(advantage), -1), rows)
        # means over agents that are present
        count = present.sum().clamp(min=1)
        is_clipped = (ratio - 1).abs() > self._clip
        return (
            -(gain * present).sum() / count,
            (entropy * present).sum() / count,
            metrics_of(ratio, log_ratio, is_clipped),
        )

    def counted(self, rows: Rows, like: torch.Tensor) -> torch.Tensor:
        """Returns 1 for agents that learn from a row, and 0 for others, of the shape and type of a tensor [B, A]."""
        present: torch.Tensor = self.model.present(rows['obs'], like)
        return present

    def gain(self, ratio: torch.Tensor, advantage: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Returns what each agent gains, float32 [B, A].

        Given are the ratios of probabilities, [B, A], and the advantage of the team, [B, 1], or of each agent, [B, A].
        """
        return torch.min(ratio * advantage, ratio.clamp(self._low, self._high) * advantage)


@POLICY_REGISTRY.register('mappo')
class MAPPOPolicy(PPOPolicy):
    """Multi-agent PPO: actors of what each agent sees, and a critic of the state of the env, which only learning needs.

    Each agent that is present has its own probability ratio and clipping; all share the advantage of the team's reward or, with
    ``agent_rewards``, each has its own. Values are normalised. The critic has no memory: it reads the state. Without a critic of
    the state, and with a reward of its own for each agent, it is ``ppo`` on an env ``agents:`` (IPPO).

    Source:
        Yu et al., The Surprising Effectiveness of PPO in Cooperative, Multi-Agent Games (2022), sections 3 and 5.1, and
        algorithm 1.
    """

    _cfg: MAPPOConfig
    is_for_teams = True
    config: dict[str, Any] = dict(learn=dict(value_norm=True))
    supported_actions = 'Discrete, Box, MultiDiscrete'
    default_network = 'team_actor_critic'
    update_class = MAPPOUpdate
    ding = DingNames(
        defaults={**DING_NETWORK, 'model.share_encoder': 'images', 'learn.entropy_weight': 0.0},
        unused={
            'model.agent_num': 'read from the spaces of the env',
            'agent_num': 'read from the spaces of the env',
        },
    )

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        settings = super().starting(facts)
        # a step of a team is one row, of several actions
        settings['model'] |= dict(encoder_hidden_size_list=[64, 64])
        return settings
