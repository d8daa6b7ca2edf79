"""HAPPO: MAPPO whose agents, each with its own network, learn one after the other, and know how those before them changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Batch
from rlframe.errors import ConfigError
from rlframe.policy.mappo import MAPPOConfig, MAPPOPolicy, MAPPOUpdate
from rlframe.policy.parts.memory import unroll_of_round
from rlframe.policy.parts.options import refused
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.parts.team import GROUPS
from rlframe.policy.ppo import PPOPolicy
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


def _each_alone(policy: type[Any], cfg: Any) -> ConfigError | None:
    """Refuses shared networks, in which the update of an agent changes others."""
    message = 'agents learn one after the other, so each needs a network of its own'
    return ConfigError(message, expected="'separate', or policy.type=mappo")


def check_turns(cfg: Any) -> list[ConfigError]:
    """Refuses graphs, as each agent has an update of its own."""
    if not cfg.cuda_graph:
        return []
    return [refused(cfg, 'cuda_graph', 'each agent has an update of its own', 'False')]


class HAPPOConfig(MAPPOConfig):
    """Options of HAPPO."""

    groups: str | list[Any] = option(GROUPS.having('separate', rule=_each_alone))


class HAPPOUpdate(MAPPOUpdate):
    """The clipped objective of one agent, whose advantages are weighted by how those before it changed."""

    agent = 0
    """The agent whose turn it is."""

    def outputs(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        logit, value = self.model(rows['obs'], rows.get('unroll'), only=self.agent)
        return logit, value

    def counted(self, rows: Rows, like: torch.Tensor) -> torch.Tensor:
        present = super().counted(rows, like)
        is_turn = torch.arange(like.shape[1], device=like.device) == self.agent
        return present * is_turn

    def gain(self, ratio: torch.Tensor, advantage: torch.Tensor, rows: Rows) -> torch.Tensor:
        return super().gain(ratio, advantage * rows['factor'][:, None], rows)

    def change(self, rows: Rows) -> torch.Tensor:
        """Returns how much more probable what the agent did has become, float32 [M]; 1 where it is absent."""
        obs, action = rows['obs'], rows['action']
        with torch.no_grad():
            logit = self.masked(self.model.logit(obs, rows.get('unroll')), obs)
            log_prob, _ = self.of_agents(logit, action)
            before, _ = self.of_agents(rows['logit'], action)
        log_ratio = (log_prob - before) * self.counted(rows, log_prob)
        return log_ratio[:, self.agent].exp()


@POLICY_REGISTRY.register('happo')
class HAPPOPolicy(PPOPolicy):
    """Heterogeneous-agent PPO: in each round agents learn one after the other, in random order.

    An agent's advantage is the team's, times the probability ratios of the agents that were updated before it, so that the
    joint policy improves although each agent has its own network.

    Source:
        Kuba et al., Trust Region Policy Optimisation in Multi-Agent Reinforcement Learning (2022), eq. 11 and algorithm 4.
    """

    _cfg: HAPPOConfig
    is_for_teams = True
    config = MAPPOPolicy.config
    supported_actions = MAPPOPolicy.supported_actions
    default_network = 'team_actor_critic'
    update_class = HAPPOUpdate
    checks = (check_turns,)
    ding = MAPPOPolicy.ding.having(
        unused={
            'model.use_lstm': 'model.core gives each agent a memory',
            'learn.critic_learning_rate': 'one optimizer trains actors and critic',
        },
    )

    def forward_learn(self, data: Batch) -> Iterator[Callable[[], Metrics]]:
        columns = self.columns(data)
        count = self.model.team.size
        columns['factor'] = torch.ones(len(data), device=self.device)
        memory = {'unroll': unroll_of_round(self, data)} if self._has_core else {}
        for agent in self.rng.permutation(count).tolist():
            self.update.agent = agent
            yield from self.epochs(columns, data)
            columns['factor'] = columns['factor'] * self.update.change(columns | memory)
