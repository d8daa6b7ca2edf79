"""Munchausen DQN: rewards and targets that have the entropy of a soft policy."""

from __future__ import annotations

from typing import Any

from rlframe.data.timestep import EnvSpec
from rlframe.policy.dqn import DQNLearn, DQNUpdate, QPolicy, QReplayConfig
from rlframe.policy.parts.actions import IMPOSSIBLE, mask_of, masked
from rlframe.policy.parts.outputs import chosen
from rlframe.policy.parts.sequences import Rows
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

LEAST_BONUS = -1.0
"""Lower bound of what the log-policy adds to a reward, before its weight."""


class MDQNConfig(QReplayConfig):
    """Options of Munchausen DQN."""

    entropy_tau: float = option(
        0.03, range='(0, inf)', doc='temperature of the soft policy in targets', may_change=True
    )
    m_alpha: float = option(
        0.9,
        range='[0, 1]',
        doc='weight of the log-policy that targets add to the reward, of n-step returns to the first one',
        may_change=True,
    )
    learn: DQNLearn


def soft_policy(
    value: torch.Tensor, tau: float, mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the probability of each action by softmax(value / tau), and tau times its logarithm, [B, A] each.

    A forbidden action of ``mask``, bool [B, A], has probability 0 and a finite logarithm.

    Source:
        Vieillard et al., Munchausen Reinforcement Learning (2020), section 3.
    """
    log_prob = torch.log_softmax(masked(value, mask, IMPOSSIBLE) / tau, 1)
    return log_prob.exp(), tau * log_prob


class MDQNUpdate(DQNUpdate):
    """DQN with the targets of Munchausen DQN."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self._tau, self._weight = cfg.entropy_tau, cfg.m_alpha

    def target(self, rows: Rows) -> torch.Tensor:
        tau, network = self._tau, self.targets.network
        obs, next_obs = rows['obs'], rows['next_obs']
        # reward: with a bonus for actions that the policy finds likely
        value = self.output(network, obs).mean()
        _, log_policy = soft_policy(value, tau, mask_of(obs))
        bonus = chosen(log_policy, rows['action']).clamp(LEAST_BONUS, 0)
        reward = rows['reward'] + self._weight * bonus
        # next state: the soft value
        value = self.output(network, next_obs).mean()
        policy, log_policy = soft_policy(value, tau, mask_of(next_obs))
        soft = (policy * (value - log_policy)).sum(1)
        return reward + self.targets.discount(rows) * soft


@POLICY_REGISTRY.register('mdqn')
class MDQNPolicy(QPolicy):
    """Munchausen DQN: DQN whose rewards and targets have the entropy of a soft policy.

    Source:
        Vieillard et al., Munchausen Reinforcement Learning (2020), section 3 and table 2: temperature 0.03 and weight
        0.9 of the log-policy.
    """

    _cfg: MDQNConfig
    update_class = MDQNUpdate
    solves = 'CartPole-v1', 40_000
