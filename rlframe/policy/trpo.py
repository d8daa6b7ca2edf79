"""TRPO: natural policy gradients, with steps as long as a trust region allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Array, Batch
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.natural import move, natural_step
from rlframe.policy.parts.optim import Optimizer
from rlframe.policy.parts.options import without_core
from rlframe.policy.parts.sequences import Rows, shuffled_batches
from rlframe.policy.ppo import PPOConfig, PPOLearn, PPOPolicy, PPOUpdate
from rlframe.policy.update import Loss, Losses, Update
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

LENGTHS = [0.8**i for i in range(10)]
"""Parts of the longest step that a line search tries."""


class TRPOLearn(PPOLearn):
    """Section ``learn`` of TRPO; batches, epochs and the learning rate are those of the critic."""

    target_kl: float = option(
        0.01, range='(0, inf)', unit='nats', doc='largest mean KL divergence of a step', may_change=True
    )
    cg_steps: int = option(10, range='[1, inf)', doc='steps of conjugate gradients', may_change=True)
    cg_damping: float = option(0.1, range='[0, inf)', doc='added to the diagonal of the Fisher matrix')


class TRPOConfig(PPOConfig):
    """Options of TRPO."""

    learn: TRPOLearn


class TRPOUpdate(PPOUpdate):
    """One natural gradient step of the actor by all rows of a round, and many gradient steps of the critic."""

    losses = {'actor_loss': 'actor', 'critic_loss': 'critic'}
    logged = (*Update.logged, 'policy_loss', 'value_loss', 'entropy', 'kl', 'step_length')
    needs_whole_batch = True

    def init_learn(self) -> None:
        self._check()
        self._actor = [p for name, p in self.model.named_parameters() if not name.startswith('critic.')]
        self.optimizers['critic'] = Optimizer(self.model.critic, self.cfg.learn)

    def draws(self, rng: np.random.Generator, count: int) -> dict[str, Array]:
        epochs = range(self.cfg.learn.epoch_per_collect)
        return {'order': np.stack([rng.permutation(count) for _ in epochs], 1)}  # [B, epochs]

    def actor_loss(self, rows: Rows) -> Loss:
        """Returns minus the advantages of actions, by how much more probable they became, and the entropy bonus."""
        loss, entropy, _ = self.surrogate(self.model.logit(rows['obs']), rows)
        return Loss(loss - self.entropy_weight * entropy, {'entropy': entropy.detach()})

    def critic_loss(self, rows: Rows) -> Loss:
        """Returns the distance of values to returns."""
        return Loss(self.value_weight * self.value_loss(self.model.value(rows['obs']), rows))

    def step(self, losses: Losses, rows: Rows, turn: bool) -> Metrics:
        metrics = self.actor_step(losses['actor_loss'], rows)
        # critic
        inputs = {name: rows[name] for name in ('obs', 'return_', 'value') if name in rows}
        found = []
        for order in rows['order'].unbind(1):
            for batch in shuffled_batches(inputs, order, self.cfg.learn.batch_size or len(order)):
                loss = self._checked('critic_loss', losses['critic_loss'](batch)).value
                self.optimizers['critic'].step(loss, critic_loss=loss)
                found.append(loss.detach())
        value_loss = torch.stack(found).mean()
        return metrics | {'value_loss': value_loss, 'total_loss': metrics['policy_loss'] + value_loss}

    def actor_step(self, actor_loss: Callable[[Rows], Loss], rows: Rows) -> Metrics:
        """Makes the step of the actor, and returns values to log."""
        cfg = self.cfg.learn
        obs = rows['obs']
        before = self.logit(obs).detach()

        def divergence() -> torch.Tensor:
            return self.distribution.divergence(before, self.logit(obs)).mean()

        # natural gradient
        loss = self._checked('actor_loss', actor_loss(rows))
        trust = (cfg.target_kl, cfg.cg_steps, cfg.cg_damping)
        step = natural_step(loss.value, divergence(), self._actor, *trust)
        # line search: the first length with a gain inside the trust region; all are tried, so that no device is waited for
        start = torch.cat([p.detach().flatten() for p in self._actor])
        length, kl = start.new_zeros(2).unbind()
        with torch.no_grad():
            for tried in LENGTHS:
                move(self._actor, start + tried * step)
                gains = actor_loss(rows).value < loss.value
                far = divergence()
                is_first = (length == 0) & gains & (far <= cfg.target_kl)
                length = length.masked_fill(is_first, tried)
                kl = torch.where(is_first, far, kl)
            move(self._actor, torch.where(length > 0, start + length * step, start))
        return {'policy_loss': loss.value.detach(), 'kl': kl, 'step_length': length} | loss.metrics


@POLICY_REGISTRY.register('trpo')
class TRPOPolicy(PPOPolicy):
    """Trust region policy optimisation: each round, one step along the natural gradient, of bounded KL divergence.

    Only this step changes the actor, and what the critic shares with it; the critic takes steps of Adam.

    Source:
        Schulman et al., Trust Region Policy Optimization (2015), eq. 14 and appendix C; with the advantages of Schulman et
        al., High-Dimensional Continuous Control Using Generalized Advantage Estimation (2016).
    """

    _cfg: TRPOConfig
    update_class = TRPOUpdate
    checks = (without_core('the critic learns from shuffled rows, not from sequences'),)
    config: dict[str, Any] = dict(
        learn=dict(
            epoch_per_collect=10,
            batch_size=128,
            learning_rate=1e-3,
            clip_ratio=None,
            advantage_norm='round',
            entropy_weight=0.0,
            grad_clip_norm=None,
        ),
        collect=dict(n_sample=2048),
    )
    ding = DingNames()
    toy = dict(learn=dict(batch_size=32, target_kl=0.05), collect=dict(n_sample=128))
    solves = 'CartPole-v1', 60_000

    def forward_learn(self, data: Batch) -> Iterator[Callable[[], Metrics]]:
        yield partial(self.train_step, self.columns(data))
