"""IMPALA and APPO: actor-critics that correct for the age of the weights that collected their data."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.returns import vtrace
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec
from rlframe.errors import ConfigError
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.memory import unroll_with_last
from rlframe.policy.parts.options import refused
from rlframe.policy.parts.sequences import Rows, Sequences, begins_of
from rlframe.policy.ppo import DING_NETWORK, PPOConfig, PPOLearn, PPOPolicy, PPOUpdate
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class VTraceLearn(PPOLearn):
    """Section ``learn`` of policies that learn by V-trace."""

    clip_rho: float = option(
        1.0,
        range='(0, inf)',
        unit='ratio',
        doc='largest weight of a TD error, and of a gradient without clip_ratio (rho-bar): a larger one has less bias and more'
        ' variance',
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


class VTraceUpdate(PPOUpdate):
    """The policy gradient of V-trace, unless ratios are clipped."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self._clips = cfg.learn.clip_ratio is not None
        self._most = cfg.learn.clip_rho

    def policy_loss(
        self, log_prob: torch.Tensor, ratio: torch.Tensor, advantage: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self._clips:
            return super().policy_loss(log_prob, ratio, advantage)
        weight = ratio.detach().clamp(max=self._most)
        return -(weight * log_prob * advantage).mean(), ratio > self._most


def check_traces(cfg: Any) -> list[ConfigError]:
    """Refuses traces that are longer than values can be corrected."""
    most = cfg.learn.clip_rho
    if cfg.learn.clip_c <= most:
        return []
    message = f'V-trace cuts traces at most where it cuts TD errors (clip_rho={most})'
    return [refused(cfg, 'learn.clip_c', message, f'at most {most}')]


def vtrace_columns(policy: PPOPolicy, block: Batch, apart: BoolArray) -> dict[str, Array]:
    """Returns the columns [T, N, ...] of a block that ``vtrace_advantages`` reads; see ``PPOPolicy.sample_columns``."""
    names = 'next_obs', 'reward', 'terminated'
    return {name: block[name] for name in names} | {'begins': begins_of(apart)}


def vtrace_advantages(policy: PPOPolicy, data: Batch) -> Rows:
    """Returns advantages, returns and values of the rows of a round, which older weights collected, float32 [M].

    The learner computes them, with the weights at the beginning of the round.

    Source:
        Espeholt et al., IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures (2018),
        section 4.
    """
    cfg: Any = policy._cfg
    tensor = policy.tensor
    sequences = Sequences(np.asarray(data['begins']))
    count = len(data)
    row, step, sequence = sequences.rows(np.arange(len(sequences)))
    is_last = step == sequences.length[sequence] - 1
    log_prob, value = _seen_now(policy, data, sequences)
    following = tensor(np.where(is_last, count + sequence, row + 1))
    next_value = value[following].masked_fill(tensor(data['terminated']), 0.0)
    value = value[:count]
    place = (tensor(step), tensor(sequence))
    ratio = (log_prob - tensor(data['log_prob'])).exp()
    shape = int(sequences.length.max()), len(sequences)

    def padded(column: torch.Tensor) -> torch.Tensor:
        return column.new_zeros(shape).index_put(place, column)

    columns = tensor(data['reward']), value, next_value, tensor(~is_last), ratio
    reward, values, after, goes_on, ratios = map(padded, columns)
    found = vtrace(
        *(reward, values, after, ~goes_on, ratios),
        cfg.collect.discount_factor,
        cfg.collect.gae_lambda,
        (cfg.learn.clip_rho, cfg.learn.clip_c),
    )
    return {'advantage': found.advantage[place], 'return_': found.return_[place], 'value': value}


def _seen_now(policy: PPOPolicy, data: Batch, sequences: Sequences) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns what the newest weights make of a round.

    Returns:
        Log-probabilities of the actions, float32 [M]; values in the env's units of the observations of all rows and,
        behind them, of the last next observation of each sequence, float32 [M + S].
    """
    tensor = policy.tensor
    last = np.asarray(data['next_obs'])[sequences.start + sequences.length - 1]
    inputs = [tensor(np.concatenate([data['obs'], last]))]
    if policy._has_core:
        inputs.append(unroll_with_last(data, sequences, tensor))
    with torch.no_grad():
        logit, value = policy.model(*inputs)
        logit = policy.masked(logit, inputs[0])[: len(data)]
        log_prob, _ = policy.distribution.evaluate(logit, tensor(data['action']))
        if policy._returns is not None:
            value = value * float(policy._returns.std) + float(policy._returns.mean)
    return log_prob, value


@POLICY_REGISTRY.register('appo')
class APPOPolicy(PPOPolicy):
    """Asynchronous PPO: the clipped objective with V-trace targets, so that the data may be of older weights.

    Source:
        Espeholt et al. (2018), section 4; with the objective of Schulman et al., Proximal Policy Optimization Algorithms
        (2017), eq. 7.
    """

    _cfg: VTraceConfig
    corrects_lag = True
    update_class = VTraceUpdate
    checks = (check_traces,)
    sample_columns, advantages = vtrace_columns, vtrace_advantages
    config: dict[str, Any] = dict(collect=dict(gae_lambda=1.0))
    ding = DingNames()


@POLICY_REGISTRY.register('impala')
class IMPALAPolicy(PPOPolicy):
    """Importance-weighted actor-learners: V-trace targets and their policy gradient, in one update for each round.

    It is ``appo`` without clipped ratios. With ``collector.backend=ray`` and ``sync=False``, actors collect while it learns.

    Source:
        Espeholt et al., IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures (2018),
        section 4.2; RMSProp with gradients up to a norm of 40: table D.1.
    """

    _cfg: VTraceConfig
    corrects_lag = True
    update_class = VTraceUpdate
    checks = (check_traces,)
    sample_columns, advantages = vtrace_columns, vtrace_advantages
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
        collect=dict(n_sample=160, gae_lambda=1.0),
    )
    ding = DingNames(
        options={
            'learn.discount_factor': 'collect.discount_factor',
            'learn.lambda_': 'collect.gae_lambda',
            'learn.rho_clip_ratio': 'learn.clip_rho',
            'learn.c_clip_ratio': 'learn.clip_c',
            'learn.optim': 'learn.optimizer',
        },
        defaults={
            **DING_NETWORK,
            'learn.optimizer': 'adam',
            'learn.learning_rate': 5e-4,
            'learn.batch_size': 512,
            'learn.entropy_weight': 1e-4,
            'learn.grad_clip_norm': None,
            'collect.gae_lambda': 0.95,
        },
        unused={'learn.rho_pg_clip_ratio': 'policy.learn.clip_rho limits the weights of both losses'},
    )
    toy = dict(learn=dict(batch_size=None, learning_rate=3e-3), collect=dict(n_sample=40))
    solves = 'CartPole-v1', 100_000
