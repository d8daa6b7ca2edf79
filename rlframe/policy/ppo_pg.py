"""PPO without a critic: clipped ratios, weighed by the returns of whole episodes, and several epochs over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Batch
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import EPOCH_PER_COLLECT
from rlframe.policy.parts.sequences import Rows, epochs_of, flat
from rlframe.policy.pg import PGConfig, PGLearn, PGPolicy, PGUpdate
from rlframe.policy.ppo import clipped_loss, metrics_of
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class PPOPGLearn(PGLearn):
    """Section ``learn`` of PPO without a critic."""

    epoch_per_collect: int = option(EPOCH_PER_COLLECT.having(10))
    clip_ratio: float = option(
        0.2, range='(0, inf)', doc='clip range of the probability ratio around 1', may_change=True
    )


class PPOPGConfig(PGConfig):
    """Options of PPO without a critic."""

    learn: PPOPGLearn


class PPOPGUpdate(PGUpdate):
    """The clipped objective of PPO with returns in place of advantages."""

    inputs = (*PGUpdate.inputs, 'log_prob')
    logged = (*PGUpdate.logged, 'approx_kl', 'clip_fraction')

    def policy_loss(
        self, log_prob: torch.Tensor, return_: torch.Tensor, rows: Rows
    ) -> tuple[torch.Tensor, Metrics]:
        clip = self.cfg.learn.clip_ratio
        log_ratio = log_prob - rows['log_prob']
        ratio = log_ratio.exp()
        metrics = metrics_of(ratio, log_ratio, (ratio - 1).abs() > clip)
        return clipped_loss(ratio, return_, 1 - clip, 1 + clip), metrics


@POLICY_REGISTRY.register('ppo_pg')
class PPOPGPolicy(PGPolicy):
    """PPO without a critic: REINFORCE that learns from the rows of a round several times, as ratios are clipped.

        L = -E[min(r R, clip(r, 1 - ε, 1 + ε) R)] - c H,  r = π(a|s) / π_old(a|s)

    R is the discounted return behind a row, normalised over a batch with ``return_norm``.

    Source:
        Schulman et al., Proximal Policy Optimization Algorithms (2017), eq. 7, with the returns of Williams (1992) in place of
        advantages, as DI-engine's policy of that name.
    """

    _cfg: PPOPGConfig
    config: dict[str, Any] = dict(learn=dict(batch_size=64, learning_rate=3e-4, grad_clip_norm=0.5))
    update_class = PPOPGUpdate
    ding = DingNames(
        options={'learn.grad_clip_value': 'learn.grad_clip_norm'},
        defaults={
            'model.encoder_hidden_size_list': [128, 128, 64],
            'learn.entropy_weight': 0.0,
            'learn.return_norm': False,
        },
        unused={
            'learn.grad_clip_type': 'gradients are clipped by their norm',
            'learn.adv_norm': 'without effect in DI-engine as well',
            'learn.ppo_param_init': 'networks are always initialized this way',
        },
    )
    toy = dict(learn=dict(batch_size=64, learning_rate=3e-3), collect=dict(n_sample=128))
    solves = 'CartPole-v1', 100_000

    def forward_learn(self, data: Batch) -> Iterator[Callable[[], Metrics]]:
        return epochs_of(self, self.columns(data), self._cfg.learn.epoch_per_collect)

    def get_train_sample(self, block: Batch) -> Batch:
        log_prob = self.distribution.log_prob(flat(block['logit']), flat(block['action']))
        return super().get_train_sample(block.replace(log_prob=log_prob.reshape(block['reward'].shape)))
