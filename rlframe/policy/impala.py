"""IMPALA and APPO: actor-critics that correct for the age of the weights that collected their data."""

from __future__ import annotations

from typing import Any

import numpy as np
from easydict import EasyDict

from rlframe.data.returns import vtrace
from rlframe.data.timestep import Array, Batch, BoolArray
from rlframe.errors import ConfigError
from rlframe.policy.parts.actions import IMPOSSIBLE, mask_of, masked
from rlframe.policy.parts.memory import unroll_with_last
from rlframe.policy.parts.options import refused
from rlframe.policy.parts.sequences import Rows, Sequences, begins_of
from rlframe.policy.ppo import PPOConfig, PPOLearn, PPOPolicy
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class VTraceLearn(PPOLearn):
    """Section ``learn`` of policies that learn by V-trace."""

    clip_rho: float = option(
        1.0,
        range='(0, inf)',
        unit='ratio',
        doc='largest weight of a TD error, and of a gradient without clip_ratio (rho-bar): the larger, the nearer are values to'
        ' those of the policy that learns, and the larger is their variance',
        may_change=True,
    )
    clip_c: float = option(
        1.0,
        range='(0, inf)',
        unit='ratio',
        doc='largest weight of the next step in a target (c-bar), at most clip_rho',
        may_change=True,
    )


class VTraceConfig(PPOConfig):
    """Options of policies that learn by V-trace."""

    learn: VTraceLearn


@POLICY_REGISTRY.register('appo')
class APPOPolicy(PPOPolicy):
    """Asynchronous PPO: the clipped objective with V-trace targets, so that the data may be of older weights.

    The targets of a round are computed by the learner, with the weights at the beginning of the round.

    Source:
        Espeholt et al., IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures (2018),
        section 4; with the objective of Schulman et al., Proximal Policy Optimization Algorithms (2017), eq. 7.
    """

    _cfg: VTraceConfig
    config: dict[str, Any] = dict(collect=dict(gae_lambda=1.0))
    corrects_lag = True

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        errors = super().check_config(cfg)
        if cfg.learn.clip_c > cfg.learn.clip_rho:
            message = f'V-trace cuts traces at most where it cuts TD errors (clip_rho={cfg.learn.clip_rho})'
            errors.append(refused(cfg, 'learn.clip_c', message, f'at most {cfg.learn.clip_rho}'))
        return errors

    def sample_columns(self, block: Batch, apart: BoolArray) -> dict[str, Array]:
        names = 'next_obs', 'reward', 'terminated'
        return {name: block[name] for name in names} | {'begins': begins_of(apart)}

    def advantages(self, data: Batch) -> Rows:
        """Returns advantages, returns and values of the rows of a round, by V-trace, float32 [M]."""
        cfg, sequences = self._cfg, Sequences(np.asarray(data['begins']))
        count, (row, step, sequence) = len(data), sequences.rows(np.arange(len(sequences)))
        is_last = step == sequences.length[sequence] - 1
        log_prob, value = self._seen_now(data, sequences)
        following = self.tensor(np.where(is_last, count + sequence, row + 1))
        next_value = value[following].masked_fill(self.tensor(data['terminated']), 0.0)
        value, place = value[:count], (self.tensor(step), self.tensor(sequence))
        ratio = (log_prob - self.tensor(data['log_prob'])).exp()
        shape = int(sequences.length.max()), len(sequences)

        def padded(column: torch.Tensor) -> torch.Tensor:
            return column.new_zeros(shape).index_put(place, column)

        columns = self.tensor(data['reward']), value, next_value, self.tensor(~is_last), ratio
        reward, values, after, goes_on, ratios = map(padded, columns)
        found = vtrace(
            *(reward, values, after, ~goes_on, ratios),
            cfg.collect.discount_factor,
            cfg.collect.gae_lambda,
            (cfg.learn.clip_rho, cfg.learn.clip_c),
        )
        return {'advantage': found.advantage[place], 'return_': found.return_[place], 'value': value}

    def _seen_now(self, data: Batch, sequences: Sequences) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns what the newest weights make of a round.

        Args:
            data: Its rows, [M].
            sequences: The sequences that they consist of, S.

        Returns:
            Log-probabilities of the actions, float32 [M]; values in the env's units of the observations of all rows and,
            behind them, of the last next observation of each sequence, float32 [M + S].
        """
        last = np.asarray(data['next_obs'])[sequences.start + sequences.length - 1]
        inputs = [self.tensor(np.concatenate([data['obs'], last]))]
        if self._has_core:
            inputs.append(unroll_with_last(data, sequences, self.tensor))
        with torch.no_grad():
            logit, value = self.model(*inputs)
            logit = masked(logit, mask_of(inputs[0]), IMPOSSIBLE)[: len(data)]
            log_prob, _ = self.distribution.evaluate(logit, self.tensor(data['action']))
            if self._returns is not None:
                value = value * float(self._returns.std) + float(self._returns.mean)
        return log_prob, value

    def _policy_loss(
        self, log_prob: torch.Tensor, ratio: torch.Tensor, advantage: torch.Tensor, rows: Rows
    ) -> tuple[torch.Tensor, torch.Tensor]:
        learn = self._cfg.learn
        if learn.clip_ratio is not None:
            return super()._policy_loss(log_prob, ratio, advantage, rows)
        weight = ratio.detach().clamp(max=learn.clip_rho)
        return -(weight * log_prob * advantage).mean(), ratio > learn.clip_rho


@POLICY_REGISTRY.register('impala')
class IMPALAPolicy(APPOPolicy):
    """Importance-weighted actor-learners: V-trace targets and their policy gradient, in one update for each round.

    It is ``appo`` without clipped ratios. With ``collector.backend=ray`` and ``sync=False``, actors collect while it learns.

    Source:
        Espeholt et al., IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures (2018),
        section 4.2; RMSProp with gradients up to a norm of 40: table D.1.
    """

    config: dict[str, Any] = dict(
        learn=dict(
            epoch_per_collect=1,
            batch_size=None,
            learning_rate=6e-4,
            clip_ratio=None,
            advantage_norm=None,
            grad_clip_norm=40.0,
            optimizer='rmsprop',
        ),
        collect=dict(n_sample=160),
    )
