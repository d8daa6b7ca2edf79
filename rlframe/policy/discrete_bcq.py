"""BCQ for discrete actions: DQN from recorded data, among actions that the data are likely to hold."""

from __future__ import annotations

import math
from typing import Any

from rlframe.policy.dqn import DQNConfig, DQNLearn, DQNUpdate, QPolicy
from rlframe.policy.parts.actions import mask_of, masked
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.recorded import FROM_DATA
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class DiscreteBCQLearn(DQNLearn):
    """Section ``learn`` of BCQ for discrete actions."""

    threshold: float = option(
        0.3,
        range='[0, 1]',
        doc='least probability of an action, as a share of that of the most likely one; 0: DQN, 1: behaviour cloning',
        may_change=True,
    )
    logit_decay: float = option(
        0.01, range='[0, inf)', doc='weight of the squared logits of the imitator', may_change=True
    )


class DiscreteBCQConfig(DQNConfig):
    """Options of BCQ for discrete actions."""

    learn: DiscreteBCQLearn


class DiscreteBCQUpdate(DQNUpdate):
    """DQN whose targets take the best of the likely actions, and an imitator that says which these are."""

    def likely(self, obs: Any) -> torch.Tensor:
        """Returns which actions are likely to be recorded, and allowed, bool [B, A]."""
        logit = self.masked(self.model.imitator(obs), obs)
        threshold = self.cfg.learn.threshold
        least = logit.amax(1, keepdim=True) + (math.log(threshold) if threshold else -math.inf)
        return logit >= least

    def target(self, rows: Rows) -> torch.Tensor:
        next_obs = rows['next_obs']
        output = self.output(self.targets.network, next_obs)
        judge = self.output(self.model, next_obs) if self.double else output
        allowed = masked(judge.mean(), mask_of(next_obs))
        best = allowed.masked_fill(~self.likely(next_obs), -math.inf).argmax(1)
        return output.gather(best).target(rows['reward'], self.targets.discount(rows))

    def loss(self, rows: Rows) -> Loss:
        values = super().loss(rows)
        # imitator
        logit = self.model.imitator(rows['obs'])
        allowed = self.masked(logit, rows['obs'])
        imitation = torch.nn.functional.cross_entropy(allowed, rows['action'].long())
        decay = self.cfg.learn.logit_decay * logit.square().mean()
        metrics = values.metrics | {'imitation_loss': imitation.detach()}
        return values._replace(value=values.value + imitation + decay, metrics=metrics)


@POLICY_REGISTRY.register('discrete_bcq')
class DiscreteBCQPolicy(QPolicy):
    """Batch-constrained Q-learning for discrete actions.

    When it acts and in its targets, it takes the action of the highest value among the likely ones: a network that imitates the
    data gives them at least ``learn.threshold`` times the probability of the most likely one.

    Source:
        Fujimoto et al., Benchmarking Batch Deep Reinforcement Learning Algorithms (2019), algorithm 1.
    """

    _cfg: DiscreteBCQConfig
    config: dict[str, Any] = dict(collect=FROM_DATA)
    default_network = 'imitating_q_net'
    update_class = DiscreteBCQUpdate
    ding = DingNames()
    search_space = QPolicy.search_space.without(
        'learn.update_per_collect', source=f'{QPolicy.search_space.source}; one update for each batch of data'
    )
    toy = dict(
        discount_factor=0.5,
        learn=dict(batch_size=64, learning_rate=3e-3, target_update_freq=50, threshold=0.1),
    )

    def values(self, obs: Any) -> torch.Tensor:
        value = super().values(obs)
        return value.masked_fill(~self.update.likely(obs), -math.inf)
