"""CQL: SAC from recorded data, whose critics are to value actions less that are not in them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlframe.data.timestep import Array
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.outputs import Values
from rlframe.policy.parts.recorded import FROM_DATA
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac import QACPolicy
from rlframe.policy.sac import ContinuousSACConfig, SACLearn, SACUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

RETURN = 'reference_return'
"""Column of the discounted return from each env step on, float32 [B], of policies whose values should not fall below it."""


class CQLLearn(SACLearn):
    """Section ``learn`` of CQL."""

    conservative_weight: float = option(
        5.0,
        range='[0, inf)',
        doc='weight of what other actions are worth more than recorded ones; 0: SAC',
        may_change=True,
    )
    num_actions: int = option(
        4,
        range='[1, inf)',
        unit='actions',
        doc='actions drawn of each kind for a state: of the actor there, of the actor in the next state, and uniform',
    )


class CQLConfig(ContinuousSACConfig):
    """Options of CQL."""

    learn: CQLLearn


class CQLUpdate(SACUpdate):
    """SAC whose critics also have a loss of what unseen actions promise."""

    inputs = (*SACUpdate.inputs, RETURN)

    def draws(self, rng: np.random.Generator, count: int) -> dict[str, Array]:
        size = count, self.cfg.learn.num_actions, self.action_size
        several = {
            'several_noise': rng.standard_normal((2, *size), np.float32),
            'several_uniform': rng.random(size, np.float32) * 2 - 1,
        }
        return super().draws(rng, count) | several

    def several(self, obs: Any, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns actions that the actor draws in each state, [B, K, A], and their log densities, [B, K]."""
        from rlframe.model.qac import squashed_gaussian

        mean, log_std = (part[:, None].expand_as(noise).flatten(0, 1) for part in self.model.actor(obs))
        action, log_prob = squashed_gaussian(mean, log_std, noise.flatten(0, 1))
        return action.view_as(noise), log_prob.view(noise.shape[:2])

    def promises(self, value: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Returns what drawn actions promise, by their values [critics, B, 3 K].

        Rows with returns of what was done there lower no value of the actor's actions below them.

        Source:
            Nakamoto et al., Cal-QL: Calibrated Offline RL Pre-Training for Efficient Online Fine-Tuning (2023), eq. 5.1.
        """
        if RETURN not in rows:
            return value
        drawn = 2 * self.cfg.learn.num_actions  # those of the actor come first
        return torch.cat([value[:, :, :drawn].maximum(rows[RETURN][:, None]), value[:, :, drawn:]], 2)

    def critic_loss(self, rows: Rows) -> Loss:
        obs, next_obs = rows['obs'], rows['next_obs']
        # target
        with torch.no_grad():
            next_action, _ = self.act(next_obs, rows['next_noise'])
            next_value = self.next_returns(rows, next_action)
            target = next_value.target(rows['reward'], self.targets.discount(rows))
            # actions of the actor, here and in the next state, and uniform ones
            here, log_here = self.several(obs, rows['several_noise'][0])
            there, log_there = self.several(next_obs, rows['several_noise'][1])
            uniform = rows['several_uniform']
            log_uniform = torch.full_like(log_here, -self.action_size * math.log(2))
            log_prob = torch.cat([log_here, log_there, log_uniform], 1)
            actions = torch.cat([here, there, uniform, rows['action'][:, None]], 1)
        # critics, by one pass over all actions
        value = self.model.critic.values_of_many(obs, actions)  # [critics, B, 3 K + 1]
        recorded = value[:, :, -1]
        loss = self.fitted(Values(recorded), target, rows)
        # what is not recorded should not promise more
        promised = (self.promises(value[:, :, :-1], rows) - log_prob).logsumexp(2)
        gap = self.targets.mean(promised - recorded, rows).sum()
        metrics = loss.metrics | {'conservative_gap': gap.detach()}
        return loss._replace(value=loss.value + self.cfg.learn.conservative_weight * gap, metrics=metrics)


@POLICY_REGISTRY.register('cql')
class CQLPolicy(QACPolicy):
    """Conservative Q-learning, CQL(H), for continuous actions.

    To the loss of each critic it adds alpha (log Σ exp(Q(s, a_k) - log μ(a_k)) - Q(s, a)) for the recorded action a and drawn
    actions a_k of densities μ: of the actor in s and in s', and uniform ones. Targets have no entropy.

    Source:
        Kumar et al., Conservative Q-Learning for Offline Reinforcement Learning (2020), eq. 4 and appendix F.
    """

    _cfg: CQLConfig
    actor_kind = 'gaussian'
    config: dict[str, Any] = dict(learn=dict(learning_rate_actor=1e-4), collect=FROM_DATA)
    update_class = CQLUpdate
    ding = DingNames(
        options={'learn.min_q_weight': 'learn.conservative_weight'},
        defaults={
            'learn.conservative_weight': 1.0,
            'learn.num_actions': 10,
            'learn.learning_rate_actor': 3e-4,
        },
        unused={
            'learn.with_lagrange': 'the weight of the gap is constant',
            'learn.lagrange_thresh': 'the weight of the gap is constant',
            'learn.with_q_entropy': 'targets have no entropy, as by default there',
        },
    )
    toy: dict[str, Any] = dict(
        discount_factor=0.5,
        learn=dict(
            batch_size=64, learning_rate_actor=3e-3, learning_rate_critic=3e-3, conservative_weight=0.1
        ),
    )
