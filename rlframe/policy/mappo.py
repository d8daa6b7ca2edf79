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
            advantage = self.normalised(advantage, rows)
        gain = self.gain(ratio, advantage.reshape(len(advantage), -1), rows)
        # means over agents that are present
        count = present.sum().clamp(min=1)
        is_clipped = (ratio - 1).abs() > self._clip
        metrics = metrics_of(ratio, log_ratio, is_clipped)
        return (
            -(gain * present).sum() / count,
            (entropy * present).sum() / count,
            {name: value * (present.numel() / count) for name, value in metrics.items()},
        )

    def normalised(self, advantage: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Gives the advantages of the team, [B], or those of each agent while it is present, [B, A], mean 0 and deviation 1."""
        return self._scaled(advantage, self.standardised(advantage, self._ddof), rows)

    def normalised_round(self, columns: Rows) -> torch.Tensor:
        return self._scaled(columns['advantage'], super().normalised_round(columns), columns)

    def _scaled(self, advantage: torch.Tensor, scaled: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Returns normalised advantages; ``scaled`` are those if all agents are present."""
        if advantage.dim() == 1:
            return scaled
        present = self.model.present(rows['obs'], advantage)
        return standardised_present(advantage, present, self._ddof, scaled)

    def counted_values(self, column: torch.Tensor, rows: Rows) -> torch.Tensor:
        if column.dim() == 1:
            return column
        return column[self.model.present(rows['obs'], column).bool()]

    def value_loss(self, value: torch.Tensor, rows: Rows) -> torch.Tensor:
        if value.dim() == 1:
            return super().value_loss(value, rows)
        # values of absent agents are right as they are
        present = self.model.present(rows['obs'], value)
        learned = {
            name: torch.where(present.bool(), rows[name], value.detach())
            for name in ('return_', 'value')
            if name in rows
        }
        return super().value_loss(value, rows | learned) * (present.numel() / present.sum().clamp(min=1))

    def counted(self, rows: Rows, like: torch.Tensor) -> torch.Tensor:
        """Returns 1 for agents that learn from a row, and 0 for others, of the shape and type of a tensor [B, A]."""
        present: torch.Tensor = self.model.present(rows['obs'], like)
        return present

    def gain(self, ratio: torch.Tensor, advantage: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Returns what each agent gains, float32 [B, A].

        Given are the ratios of probabilities, [B, A], and the advantage of the team, [B, 1], or of each agent, [B, A].
        """
        return torch.min(ratio * advantage, ratio.clamp(self._low, self._high) * advantage)


def standardised_present(
    column: torch.Tensor, present: torch.Tensor, ddof: int, scaled: torch.Tensor
) -> torch.Tensor:
    """Gives each column of [B, A] mean 0 and standard deviation 1 over the rows whose agent is present, 1 of [B, A].

    ``scaled`` is what it becomes if all are present.
    """
    count = present.sum(0)
    centred = column - (column * present).sum(0) / count.clamp(min=1)
    squares = (centred.square() * present).sum(0)
    deviation = (squares / (count - ddof).clamp(min=1)).sqrt() + 1e-8
    own = torch.where(count > 1, centred / deviation, column)
    return torch.where(present.bool().all(), scaled, own)


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
