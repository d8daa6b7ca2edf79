"""SAC for discrete actions, also with a memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlframe.data.timestep import Array
from rlframe.policy.parts.actions import IMPOSSIBLE, mask_of, masked
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.outputs import Values
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.parts.starting import Facts, Settings
from rlframe.policy.qac import CategoricalPolicy
from rlframe.policy.sac import SACConfig, SACPolicy, SACUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.lazy import torch


class SACDiscreteUpdate(SACUpdate):
    """Soft actor-critic whose expectations over actions are sums."""

    def target_entropy(self) -> float:
        return 0.5 * self._largest

    @property
    def _largest(self) -> float:
        """The largest entropy, in nats: that of equally likely actions."""
        space: Any = self.spec.action_space
        return math.log(space.n)

    def draws(self, rng: np.random.Generator, count: int) -> dict[str, Array]:
        return {}

    def log_probs(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the probability of each action and its logarithm, [B, A]; forbidden ones have none to speak of."""
        log_prob = torch.log_softmax(masked(self.model.actor(obs), allowed(obs), IMPOSSIBLE), 1)
        return log_prob.exp(), log_prob

    def log_prob(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        return self.log_probs(obs)[1].gather(1, action.long()[:, None]).squeeze(1)

    def critic_loss(self, rows: Rows) -> Loss:
        # target: the mean over the actions in the next state
        with torch.no_grad():
            prob, log_prob = self.log_probs(rows['next_obs'])
            next_value = self.targets.network['critic'](rows['next_obs']).amin(0)
            next_value = (prob * (next_value - self.entropy.value * log_prob)).sum(1)
            target = rows['reward'] + self.targets.discount(rows) * next_value  # [B]
        # critics
        value = self.model.critic(rows['obs'])
        index = rows['action'].long()[None, :, None].expand(len(value), -1, 1)
        return self.fitted(Values(value.gather(2, index).squeeze(2)), target, rows)

    def actor_loss(self, rows: Rows) -> Loss:
        obs = rows['obs']
        prob, log_prob = self.log_probs(obs)
        with torch.no_grad():
            value = self.model.critic(obs).amin(0)
        loss = (prob * (self.entropy.value * log_prob - value)).sum(1).mean()
        metrics = {'entropy': -(prob * log_prob).detach().sum(1).mean()}
        mask = allowed(obs)
        if self.entropy.is_learned and mask is not None:
            # each state's target is scaled to the largest entropy of its allowed actions
            share = self.entropy.target / (self._largest or 1.0)
            metrics['target_entropy'] = share * mask.sum(1).clamp(min=1).float().log().mean()
        return Loss(loss, metrics)


def allowed(obs: Any) -> torch.Tensor | None:
    """Returns the actions that the observations of an update allow, or those of steps of sequences, bool [B, A]; None: all."""
    if not hasattr(obs, 'unroll'):
        return mask_of(obs)
    mask = mask_of(obs.obs)
    return None if mask is None else mask[obs.row]


@POLICY_REGISTRY.register('sac_discrete')
class SACDiscretePolicy(CategoricalPolicy):
    """SAC for discrete actions: every expectation over actions is a sum.

    Source:
        Christodoulou, Soft Actor-Critic for Discrete Action Settings (2019), eq. 10 to 12. The target entropy is half
        of the maximum, not 98 % of it as in the paper: on CartPole-v1 no useful policy has so much entropy, and its
        weight would grow without bound.
    """

    _cfg: SACConfig
    supported_actions = 'Discrete'
    update_class = SACDiscreteUpdate
    ding = DingNames(
        'discrete_sac',
        defaults={
            'learn.update_per_collect': 1,
            'other.replay_buffer.replay_buffer_size': 1_000_000,
            'random_collect_size': 10_000,
        },
    )
    toy = SACPolicy.toy
    solves = 'CartPole-v1', 40_000

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        settings = super().starting(facts) | dict(model=facts.encoder([128, 128]))
        settings['learn'] |= dict(
            update_per_collect=4, batch_size=128, learning_rate_actor=1e-3, target_theta=0.02
        )
        return settings
