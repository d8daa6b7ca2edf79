"""ACER: an actor-critic that replays sequences, with truncated importance weights and a trust region."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.faces import Metrics
from rlframe.data.observation import mapped
from rlframe.data.timestep import Array, Batch, TimeStep
from rlframe.policy.dqn import TDConfig
from rlframe.policy.parts.actions import IMPOSSIBLE, mask_of
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import (
    BATCH_SIZE,
    UPDATE_PER_COLLECT,
    ImageModel,
    Schedule,
    grad_clip_norm,
    learning_rate,
)
from rlframe.policy.parts.sections import LearnConfig, StochasticEval
from rlframe.policy.parts.sequences import Rows, steps_of
from rlframe.policy.parts.starting import Facts, Settings
from rlframe.policy.ppo import ActorPolicy
from rlframe.policy.qac import QACUpdate
from rlframe.policy.update import Loss, Losses
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class ACERLearn(LearnConfig):
    """Section ``learn`` of ACER."""

    update_per_collect: int = option(UPDATE_PER_COLLECT.having(4))
    batch_size: int = option(BATCH_SIZE.having(16, unit='sequences'))
    learning_rate_actor: Schedule = option(learning_rate(5e-4, "the actor's Adam"))
    learning_rate_critic: Schedule = option(learning_rate(5e-4, "the critic's Adam"))
    c_clip_ratio: float = option(
        10.0,
        range='(0, inf)',
        doc='largest importance weight c; all actions make up for the rest',
        may_change=True,
    )
    trust_region: bool = option(True, doc='whether steps are limited by the average policy', may_change=True)
    trust_region_value: float = option(
        1.0, range='[0, inf)', unit='nats', doc='how fast a step may leave it (delta)', may_change=True
    )
    entropy_weight: float = option(1e-4, range='[0, inf)', doc='weight of the entropy bonus', may_change=True)
    target_theta: float = option(
        0.01,
        range='(0, 1]',
        doc='share of the new policy in the average, after each iteration',
        may_change=True,
    )
    grad_clip_norm: float | None = option(grad_clip_norm('each gradient'))


class ACERConfig(TDConfig):
    """Options of ACER."""

    nstep: int = option(1, ignored='targets reach to the end of a sequence')
    model: ImageModel
    learn: ACERLearn
    eval: StochasticEval


class ACERUpdate(QACUpdate):
    """Values by Retrace, and a policy gradient by them that is projected into a trust region."""

    losses = {'critic_loss': 'critic', 'actor_loss': 'actor'}
    inputs = 'obs', 'next_obs', 'action', 'reward', 'terminated', 'logit', 'mask'
    logged = (*QACUpdate.logged, 'entropy', 'kl')
    target_parts = ('actor',)
    turn = True
    needs_whole_batch = True

    def log_policy(self, actor: Any, rows: Rows) -> torch.Tensor:
        """Returns the log-probabilities of actions in each step and behind the last one, [B, T + 1, A]."""
        logit = self.masked(actor(rows['obs']).float(), rows['obs'])
        return logit.log_softmax(1).unflatten(0, (len(rows['mask']), -1))

    def values(self, rows: Rows) -> torch.Tensor:
        """Returns the values of actions in each step and behind the last one, [B, T + 1, A]."""
        value: torch.Tensor = self.model.critic(rows['obs']).float()
        return value.unflatten(0, (len(rows['mask']), -1))

    def step(self, losses: Losses, rows: Rows, turn: bool) -> Metrics:
        with torch.no_grad():
            rows = rows | self.retrace(rows)
        return super().step(losses, rows, turn)

    def retrace(self, rows: Rows) -> Rows:
        """Returns the targets Q^ret of steps, [B, T], and the importance weights of actions, [B, T, A]."""
        value = self.values(rows)
        log_policy = self.log_policy(self.model.actor, rows)
        state_value = (log_policy.exp() * value).sum(2)  # [B, T + 1]
        ratio = (log_policy[:, :-1] - rows['logit'].log_softmax(2)).exp()
        # from the last step on, behind which nothing is known
        own = of_taken(value[:, :-1], rows)
        trace = of_taken(ratio, rows).clamp(max=1.0) * rows['mask']
        discount = self.targets.discount_factor * ~rows['terminated']
        target = []
        following = state_value[:, -1]
        for t in reversed(range(own.shape[1])):
            target.append(rows['reward'][:, t] + discount[:, t] * following)
            following = state_value[:, t] + trace[:, t] * (target[-1] - own[:, t])
        return {'target': torch.stack(target[::-1], 1), 'ratio': ratio}

    def mean(self, steps: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Returns the mean over sequences of the means over their real steps, [B, T] to []."""
        return self.targets.mean((steps * rows['mask']).sum(1) / rows['mask'].sum(1), rows)

    def critic_loss(self, rows: Rows) -> Loss:
        """Returns the squared distance of the values of the actions taken to their targets."""
        value = of_taken(self.values(rows)[:, :-1], rows)
        error = rows['target'] - value
        with torch.no_grad():
            metrics = {'q_value': self.mean(value, rows), 'target_q_value': self.mean(rows['target'], rows)}
            distance = (error.abs() * rows['mask']).sum(1) / rows['mask'].sum(1)
        return Loss(0.5 * self.mean(error.square(), rows), metrics, distance)

    def actor_loss(self, rows: Rows) -> Loss:
        """Returns minus the probabilities of actions, each times what it gains inside the trust region."""
        cfg = self.cfg.learn
        log_policy = self.log_policy(self.model.actor, rows)[:, :-1]
        with torch.no_grad():
            policy = log_policy.exp().clamp(min=1e-6)
            value = self.values(rows)[:, :-1]
            ratio = rows['ratio']
            state_value = (policy * value).sum(2, keepdim=True)
            # gradient by probabilities: of the action taken, by a weight of at most c, and of all that have a larger one
            own = of_taken(ratio.clamp(max=cfg.c_clip_ratio) / policy, rows)[..., None] * (
                rows['target'][..., None] - state_value
            )
            gain = torch.zeros_like(policy).scatter(2, rows['action'].long()[..., None], own)
            gain += (1 - cfg.c_clip_ratio / ratio).clamp(min=0) * (value - state_value)
            gain -= cfg.entropy_weight * (log_policy + 1)
            # trust region: no faster away from the average policy, whose divergence has the gradient k
            average = self.log_policy(self.targets.network['actor'], rows)[:, :-1]
            if cfg.trust_region:
                k = -average.exp() / policy
                excess = (k * gain).sum(2, keepdim=True) - cfg.trust_region_value
                gain -= (excess / k.square().sum(2, keepdim=True)).clamp(min=0) * k
            metrics = {
                'entropy': self.mean(-(policy * log_policy).sum(2), rows),
                'kl': self.mean((average.exp() * (average - log_policy)).sum(2), rows),
            }
        return Loss(-self.mean((log_policy.exp() * gain).sum(2), rows), metrics)


def of_taken(each: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Selects the entries of the actions taken, [B, T, A] to [B, T]."""
    return each.gather(2, rows['action'].long()[..., None]).squeeze(2)


def seen(obs: Any, next_obs: Any) -> Any:
    """Returns all observations of sequences, one behind the other, [B * (T + 1), ...]."""
    return mapped(lambda now, after: torch.cat([now[:, :1], after], 1).flatten(0, 1), obs, next_obs)


@POLICY_REGISTRY.register('acer')
class ACERPolicy(ActorPolicy):
    """Actor-critic with experience replay, for discrete actions: values by Retrace, over sequences of older policies.

    Importance weights are cut at c, which the other actions make up for, and steps are projected into a trust region around
    an average of past policies. Sequences are those of the replay buffer 'sequence'; another one gives sequences of one step.

    Source:
        Wang et al., Sample Efficient Actor-Critic with Experience Replay (2017), algorithms 1 and 2, eq. 4, 5, 9 and 12;
        Retrace: Munos et al. (2016).
    """

    _cfg: ACERConfig
    config = dict(on_policy=False, collect=dict(n_sample=64))
    supported_actions = 'Discrete'
    replays_sequences = True
    default_network = 'actor_q_critic'
    update_class = ACERUpdate
    ding = DingNames(
        options={
            'unroll_len': 'other.replay_buffer.unroll_len',
            'learn.discount_factor': 'discount_factor',
            'learn.clip_value': 'learn.grad_clip_norm',
        },
        defaults={
            'discount_factor': 0.9,
            'model.encoder_hidden_size_list': [128, 128, 64],
            'other.replay_buffer.replay_buffer_size': 1000,
            'other.replay_buffer.unroll_len': 32,
        },
        unused={
            'learn.value_weight': 'actor and critic have optimizers of their own, as in DI-engine',
            'learn.grad_clip_type': 'gradients are only clipped by their norm',
            'learn.lambda_': 'without effect in DI-engine as well',
            'learn.unroll_len': 'replay_buffer.unroll_len',
            'collect.unroll_len': 'replay_buffer.unroll_len',
            'collect.discount_factor': 'without effect in DI-engine as well',
            'collect.gae_lambda': 'without effect in DI-engine as well',
            'other.replay_buffer.max_use': 'the sequence replay buffer has no such limit',
        },
    )
    toy = dict(
        discount_factor=0.5,
        learn=dict(batch_size=8, learning_rate_actor=3e-3, learning_rate_critic=3e-3, entropy_weight=0.01),
        collect=dict(n_sample=32),
        other=dict(replay_buffer=dict(unroll_len=4)),
    )
    solves = 'CartPole-v1', 80_000

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        return dict(
            normalize_obs=facts.has_numbers,
            discount_factor=0.99,
            model=facts.encoder([64, 64]),
            learn=dict(learning_rate_actor=1e-3, learning_rate_critic=1e-3, entropy_weight=0.01),
            collect=dict(n_sample=64, collector=dict(mark_episodes=True)),
            other=dict(replay_buffer=dict(replay_buffer_size=facts.buffer_size, unroll_len=16)),
        )

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        rows = super().process_transition(obs, output, timestep)
        if 'logit' in rows:
            return rows
        # drawn at random, by someone else
        allowed = mask_of(obs)
        logit = np.zeros((len(obs), self.distribution.size), np.float32)
        return rows | {
            'logit': logit if allowed is None else np.where(allowed, logit, np.float32(IMPOSSIBLE))
        }

    def columns(self, data: Batch) -> Rows:
        rows = super().columns(steps_of(data))
        rows['obs'] = seen(rows['obs'], rows.pop('next_obs'))
        return rows | ({'IS': self.tensor(data['IS'])} if 'IS' in data else {})
