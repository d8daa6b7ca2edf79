"""HAPPO: MAPPO whose agents, each with its own network, learn one after the other, and know how those before them changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Batch
from rlframe.errors import ConfigError
from rlframe.policy.mappo import MAPPOConfig, MAPPOPolicy, MAPPOUpdate
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
    """Refuses a memory, as how an agent changed is asked of single rows, and graphs, as each agent has an update of its own."""
    errors = []
    if cfg.model.core is not None:
        message = 'how an agent changed is asked of single rows, not of sequences'
        errors.append(refused(cfg, 'model.core', message, 'None'))
    if cfg.cuda_graph:
        errors.append(refused(cfg, 'cuda_graph', 'each agent has an update of its own', 'False'))
    return errors


class HAPPOConfig(MAPPOConfig):
    """Options of HAPPO."""

    groups: str | list[Any] = option(GROUPS.having('separate', rule=_each_alone))


class HAPPOUpdate(MAPPOUpdate):
    """The clipped objective of one agent, whose advantages are weighted by how those before it changed."""

    agent = 0
    """The agent whose turn it is."""

    def outputs(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        logit, value = self.model(rows['obs'], only=self.agent)
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
            log_prob, _ = self.of_agents(self.logit(obs), action)
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
            'model.use_lstm': 'agents have no memory',
            'learn.critic_learning_rate': 'one optimizer trains actors and critic',
        },
    )

    def forward_learn(self, data: Batch) -> Iterator[Callable[[], Metrics]]:
        columns = self.columns(data)
        count = self.model.team.size
        size = self._cfg.learn.batch_size or len(data)
        columns['factor'] = torch.ones(len(data), device=self.device)
        for agent in self.rng.permutation(count).tolist():
            self.update.agent = agent
            for _ in range(self._cfg.learn.epoch_per_collect):
                for rows in self._minibatches(columns, data, size):
                    yield partial(self.train_step, rows)
            columns['factor'] = columns['factor'] * self.update.change(columns)
