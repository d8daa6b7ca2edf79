"""SAC for discrete actions, also with a memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Array, Batch, IntArray, TimeStep
from rlframe.model.distributions import perturbed
from rlframe.policy.base_policy import Policy
from rlframe.policy.parts.actions import IMPOSSIBLE, mask_of, masked
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac import QACPolicy
from rlframe.policy.sac import SACConfig
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.lazy import torch


@POLICY_REGISTRY.register('sac_discrete')
class SACDiscretePolicy(QACPolicy):
    """SAC for discrete actions: every expectation over actions is a sum.

    Source:
        Christodoulou, Soft Actor-Critic for Discrete Action Settings (2019), eq. 10 to 12. The target entropy is half
        of the maximum, not 98 % of it as in the paper: on CartPole-v1 no useful policy has so much entropy, and its
        weight would grow without bound.
    """

    _cfg: SACConfig
    supported_actions = 'Discrete'
    supports_action_mask = True
    actor_kind = 'categorical'

    # learning

    def _target_entropy(self) -> float:
        return 0.5 * math.log(self._action_space.n)

    def _noises(self) -> Sequence[str]:
        return ()

    def _log_probs(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the probability of each action and its logarithm, [B, A]; forbidden ones have none to speak of."""
        log_prob = torch.log_softmax(masked(self.model.actor(obs), self._allowed(obs), IMPOSSIBLE), 1)
        return log_prob.exp(), log_prob

    def _allowed(self, obs: Any) -> torch.Tensor | None:
        """Returns the actions that the observations of an update allow, bool [B, A]; None: all."""
        if self._memory is None:
            return mask_of(obs)
        mask = mask_of(obs.obs)
        return None if mask is None else mask[obs.row]

    def critic_loss(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, Metrics]:
        with torch.no_grad():
            target = rows['reward'] + self.targets.discount(rows) * self._next_value(rows)  # [B]
        value = self._value(rows['obs'], rows['action'])
        return self._critic_losses((target - value).square(), value, target, rows)

    def _value(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        """Returns each critic's value of the actions taken, float32 [critics, B]."""
        value = self.model.critic(obs)
        return value.gather(2, action.long()[None, :, None].expand(len(value), -1, 1)).squeeze(2)

    def _next_value(self, rows: Rows) -> torch.Tensor:
        """Returns the target networks' value of the next states, float32 [B], without gradients."""
        next_obs = rows['next_obs']
        prob, log_prob = self._log_probs(next_obs)
        value = self.target_model['critic'](next_obs).amin(0)
        return (prob * (value - self._alpha * log_prob)).sum(1)

    def actor_loss(self, rows: Rows) -> tuple[torch.Tensor, Metrics]:
        obs = rows['obs']
        assert self._entropy is not None  # the actor is not deterministic
        prob, log_prob = self._log_probs(obs)
        with torch.no_grad():
            value = self.model.critic(obs).amin(0)
        loss = (prob * (self._alpha * log_prob - value)).sum(1).mean()
        metrics = {'entropy': -(prob * log_prob).detach().sum(1).mean()}
        if self._entropy.is_learned and self._has_mask:
            metrics['target_entropy'] = self._masked_target_entropy(obs)
        return loss, metrics

    def _masked_target_entropy(self, obs: Any) -> torch.Tensor:
        """Returns the mean of the target entropies of states, each scaled to the largest entropy of its allowed actions."""
        mask, largest = self._allowed(obs), math.log(self._action_space.n) or 1.0
        assert mask is not None and self._entropy is not None
        return self._entropy.target / largest * mask.sum(1).clamp(min=1).float().log().mean()

    # acting

    def init_collect(self) -> None:
        self._action_dtype = np.min_scalar_type(max(int(self._action_space.n) - 1, 0))

    def init_eval(self) -> None: ...

    def _logit(self, obs: Any) -> torch.Tensor:
        """Returns the logit of each action while acting, float32 [B, A]; forbidden ones have none to speak of."""
        logit = self._step(obs) if self._has_core else self.model.actor(obs)
        return masked(logit, mask_of(obs), IMPOSSIBLE)

    def _best_of(self, output: Any) -> torch.Tensor:
        action: torch.Tensor = output.argmax(1)
        return action

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        return self._best_of(self._logit(obs))

    def _acting_logit(self, obs: Array) -> Array:
        with torch.inference_mode():
            logit: Array = self._logit(self.tensor(obs)).cpu().numpy()
        return logit

    def forward_collect(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        before = self._remember(env_id)
        return self._taken(perturbed(self._acting_logit(obs), self.rng), before)

    def forward_greedy(self, obs: Array, env_id: IntArray) -> Batch:
        before = self._remember(env_id)
        return self._taken(self._acting_logit(obs), before)

    def forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        self._remember(env_id, is_evaluation=True)
        logit = self._acting_logit(obs)
        return self._taken(perturbed(logit, self._eval_rng) if self._draws_in_eval else logit, {})

    def _taken(self, logit: Array, before: dict[str, Array]) -> Batch:
        """Returns the actions of the largest logits, with the column ``state`` if there is a core."""
        action = logit.argmax(1)
        action = (action + int(self._action_space.start)).astype(self._action_space.dtype, copy=False)
        return Batch.unchecked({'action': action, **before}, len(action))

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        rows = Policy.process_transition(self, obs, output, timestep)
        action = (rows['action'] - int(self._action_space.start)).astype(self._action_dtype)
        return rows | {'action': action} | ({'state': output['state']} if self._has_core else {})
