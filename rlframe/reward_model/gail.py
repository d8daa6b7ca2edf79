"""Generative adversarial imitation learning: a discriminator pays for rows that it takes for demonstrations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.adversarial import AdversarialConfig, AdversarialModel, Rows
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class GAILConfig(AdversarialConfig):
    """Options of ``gail``."""

    activation: Literal['relu', 'tanh', 'gelu', 'silu'] = option('relu', doc='nonlinearity')
    gradient_penalty: float = option(
        10.0,
        range='[0, inf)',
        doc='weight of the distance of the norm of its gradients from 1; 0: none, as in the paper',
        may_change=True,
    )


def discriminator_loss(agent: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
    """Returns the cross-entropy of a discriminator.

    ``agent`` and ``expert`` are its logits, [B] each: the larger one is, the more a row looks like a demonstration.

    Source:
        Ho & Ermon, algorithm 1, where D, the probability of the agent, is the sigmoid of minus the logit.
    """
    softplus = torch.nn.functional.softplus
    loss: torch.Tensor = softplus(agent).mean() + softplus(-expert).mean()
    return loss


def gradient_penalty(
    network: Callable[[torch.Tensor], torch.Tensor],
    agent: torch.Tensor,
    expert: torch.Tensor,
    share: torch.Tensor,
) -> torch.Tensor:
    """Returns the mean squared distance of the norms of gradients from 1, at points between rows.

    Args:
        network: Maps [B, size] to [B, 1].
        agent: Vectors of rows, [B, size].
        expert: Vectors of demonstrations, [B, size].
        share: Share of the demonstration in each point, in [0, 1], [B, 1].

    Source:
        Gulrajani et al., Improved Training of Wasserstein GANs (2017), algorithm 1.
    """
    between = (agent + share * (expert - agent)).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(network(between).sum(), between, create_graph=True)
    distance: torch.Tensor = gradient.norm(dim=1) - 1
    return distance.square().mean()


@REWARD_MODEL_REGISTRY.register('gail')
class GAIL(AdversarialModel):
    """Generative adversarial imitation learning.

        D = argmax E_agent[log D(s, a)] + E_expert[log(1 - D(s, a))]
        r(s, a) = -log D(s, a)

    Source:
        Ho & Ermon, Generative Adversarial Imitation Learning (2016), algorithm 1. Other forms of the reward, and the gradient
        penalty: Kostrikov et al., Discriminator-Actor-Critic (2019), section 4.
    """

    _cfg: GAILConfig

    def make_network(self) -> torch.nn.Module:
        from rlframe.reward_model.reward_net import RewardNet

        sizes, activation = self._cfg.hidden_size_list, self._cfg.activation
        return RewardNet(self.spec, self.demonstrations, self.columns, sizes, activation=activation)

    def contrast(self, agent: Rows, expert: Rows) -> torch.Tensor:
        features, layers = self.network.features, self.network.layers
        of_agent, of_expert = features(agent), features(expert)
        loss = discriminator_loss(layers(of_agent), layers(of_expert))
        if self._cfg.gradient_penalty:
            count = min(len(of_agent), len(of_expert))
            share = torch.from_numpy(self.rng.random((count, 1), np.float32)).to(self.device)
            penalty = gradient_penalty(layers, of_agent[:count], of_expert[:count], share)
            loss = loss + self._cfg.gradient_penalty * penalty
        return loss

    def logit(self, rows: Rows) -> torch.Tensor:
        logit: torch.Tensor = self.network(rows)
        return logit
