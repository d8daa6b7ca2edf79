"""Guided cost learning: demonstrations are the likeliest rows under a cost, whose partition function the agent samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.timestep import Batch
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.adversarial import AdversarialConfig, AdversarialModel, Rows
from rlframe.utils.lazy import torch
from rlframe.utils.schema import NUMBER, check_state

SHARE = 0.05
"""Share of a batch in the running mean of the costs of demonstrations."""


def cost_loss(expert: torch.Tensor, sampled: torch.Tensor, log_prob: torch.Tensor) -> torch.Tensor:
    """Returns the mean negative log-likelihood of demonstrations, but for a constant.

    Args:
        expert: Costs of demonstrations, [B].
        sampled: Costs of rows that estimate the partition function, [M].
        log_prob: Logarithm of the probability by which each of those was drawn, [M].

    Source:
        Finn et al., section 4: mean c(demonstrations) + log mean exp(-c(samples)) / q(samples).
    """
    return expert.mean() + torch.logsumexp(-sampled - log_prob, 0) - math.log(len(sampled))


def log_uniform(space: Any) -> float:
    """Returns the logarithm of the probability of a random action, or of its density where actions lie in [-1, 1]."""
    kind = type(space).__name__
    if kind == 'MultiDiscrete':
        return -float(np.log(space.nvec).sum())
    return -math.log(space.n) if kind == 'Discrete' else -math.log(2) * math.prod(space.shape)


@REWARD_MODEL_REGISTRY.register('gcl')
class GCL(AdversarialModel):
    """Guided cost learning, step by step: the reward of a row is minus its cost.

        min over c: mean c(demonstrations) + log mean exp(-c(s, a)) / q(a|s),    q = (pi + uniform) / 2

    The second mean is over rows of the agent and demonstrations together, which keeps costs of rows that the agent never
    visits from falling without bound; q, a mixture, bounds the weight of actions that the policy
    would hardly take. Costs are known but for a constant: a demonstration earns, on average, what ``form`` pays for
    0. The paper sums costs over trajectories; single steps have less variance.

    Source:
        Finn et al., Guided Cost Learning: Deep Inverse Optimal Control via Policy Optimization (2016), algorithm 2.
    """

    _cfg: AdversarialConfig
    needs_likelihood = True
    _level = 0.0  # running mean of the costs of demonstrations

    def make_network(self) -> torch.nn.Module:
        from rlframe.reward_model.reward_net import RewardNet

        return RewardNet(self.spec, self.demonstrations, self.columns, self._cfg.hidden_size_list)

    def read(self, rows: Batch) -> dict[str, Any]:
        uniform = torch.tensor(log_uniform(self.spec.action_space), device=self.device)
        log_prob = torch.logaddexp(self.log_probs(rows), uniform) - math.log(2)
        return super().read(rows) | {'log_prob': log_prob}

    def contrast(self, agent: Rows, expert: Rows) -> torch.Tensor:
        of_agent, of_expert = self.network(agent), self.network(expert)
        self._level += SHARE * (float(of_expert.detach().mean()) - self._level)
        sampled = torch.cat([of_agent, of_expert])
        return cost_loss(of_expert, sampled, torch.cat([agent['log_prob'], expert['log_prob']]))

    def logit(self, rows: Rows) -> torch.Tensor:
        logit: torch.Tensor = self._level - self.network(rows)
        return logit

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {'level': self._level}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'level': NUMBER})
        super().load_state_dict(state)
        self._level = state['level']
