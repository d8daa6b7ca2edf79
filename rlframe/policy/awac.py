"""AWAC: an actor-critic whose actor imitates recorded actions, those with large advantages more."""

from __future__ import annotations

import numpy as np

from rlframe.data.timestep import Array
from rlframe.policy.awr import AWRConfig, AWRLearn, AWRPolicy, AWRUpdate
from rlframe.policy.parts.outputs import Values
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class AWACLearn(AWRLearn):
    """Section ``learn`` of AWAC."""

    temperature: float = option(
        1.0,
        range='(0, inf)',
        unit='return',
        doc='advantage by which the weight of a recorded action grows e-fold, lambda; if most are far larger, few rows count',
        may_change=True,
    )


class AWACConfig(AWRConfig):
    """Options of AWAC."""

    learn: AWACLearn


class AWACUpdate(AWRUpdate):
    """Critics of the actor's actions, and an actor by advantages over them."""

    def draws(self, rng: np.random.Generator, count: int) -> dict[str, Array]:
        return {'next_noise': self.noise(rng, count), 'noise': self.noise(rng, count)}

    def act(self, obs: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Returns drawn actions of the actor, [B, A]."""
        mean, log_std = self.model.actor(obs)
        return torch.addcmul(mean, log_std.exp(), noise).clamp(-1, 1)

    def loss(self, rows: Rows) -> Loss:
        """Returns the sum of the losses of the critics and of the actor."""
        obs, next_obs = rows['obs'], rows['next_obs']
        # target
        with torch.no_grad():
            next_value = self.targets.network['critic'](next_obs, self.act(next_obs, rows['next_noise']))
            target = Values(next_value).smallest().target(rows['reward'], self.targets.discount(rows))
        # critics
        value = self.model.critic(obs, rows['action'])
        critics = self.fitted(Values(value), target, rows)
        # actor
        with torch.no_grad():
            usual = self.model.critic(obs, self.act(obs, rows['noise'])).amin(0)
            advantage = value.amin(0) - usual
            weight = (advantage / self.cfg.learn.temperature).softmax(0)
        actor_loss = -(weight * self.likelihood(obs, rows['action'])).sum()
        parts = {'critic_loss': critics.value, 'actor_loss': actor_loss}
        metrics = critics.metrics | {'advantage': advantage.mean()}
        return Loss(critics.value + actor_loss, metrics, critics.error, parts)


@POLICY_REGISTRY.register('awac')
class AWACPolicy(AWRPolicy):
    """Advantage-weighted actor-critic.

    Its actor raises the likelihood of recorded actions by weights ∝ exp((Q(s, a) - Q(s, a')) / λ) that sum to 1 over a
    batch, with an action a' that the actor draws.

    Source:
        Nair et al., AWAC: Accelerating Online Reinforcement Learning with Offline Datasets (2020), eq. 13; weights that sum
        to 1: the authors' code.
    """

    _cfg: AWACConfig
    update_class = AWACUpdate
