"""VTrace: advantages that are corrected for the age of the weights that collected the data."""

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
from rlframe.utils.lazy import torch


class VTrace:
    """Makes the advantages of a policy those of V-trace, from data that older weights collected.

    The targets of a round are computed by the learner, with the weights at the beginning of the round.

    Args:
        policy: A PPO, whose network values a round anew.

    Source:
        Espeholt et al., IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures (2018),
        section 4.
    """

    def __init__(self, policy: Any) -> None:
        self._policy, self._cfg = policy, policy._cfg

    @staticmethod
    def check_config(cfg: EasyDict) -> list[ConfigError]:
        """Refuses traces that are longer than values can be corrected."""
        if cfg.learn.clip_c <= cfg.learn.clip_rho:
            return []
        message = f'V-trace cuts traces at most where it cuts TD errors (clip_rho={cfg.learn.clip_rho})'
        return [refused(cfg, 'learn.clip_c', message, f'at most {cfg.learn.clip_rho}')]

    def sample_columns(self, block: Batch, apart: BoolArray) -> dict[str, Array]:
        """Returns the columns [T, N, ...] of a block that ``advantages`` reads."""
        names = 'next_obs', 'reward', 'terminated'
        return {name: block[name] for name in names} | {'begins': begins_of(apart)}

    def advantages(self, data: Batch) -> Rows:
        """Returns advantages, returns and values of the rows of a round, by V-trace, float32 [M]."""
        cfg, tensor, sequences = self._cfg, self._policy.tensor, Sequences(np.asarray(data['begins']))
        count, (row, step, sequence) = len(data), sequences.rows(np.arange(len(sequences)))
        is_last = step == sequences.length[sequence] - 1
        log_prob, value = self._seen_now(data, sequences)
        following = tensor(np.where(is_last, count + sequence, row + 1))
        next_value = value[following].masked_fill(tensor(data['terminated']), 0.0)
        value, place = value[:count], (tensor(step), tensor(sequence))
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

    def _seen_now(self, data: Batch, sequences: Sequences) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns what the newest weights make of a round.

        Args:
            data: Its rows, [M].
            sequences: The sequences that they consist of, S.

        Returns:
            Log-probabilities of the actions, float32 [M]; values in the env's units of the observations of all rows and,
            behind them, of the last next observation of each sequence, float32 [M + S].
        """
        policy, tensor = self._policy, self._policy.tensor
        last = np.asarray(data['next_obs'])[sequences.start + sequences.length - 1]
        inputs = [tensor(np.concatenate([data['obs'], last]))]
        if policy._has_core:
            inputs.append(unroll_with_last(data, sequences, tensor))
        with torch.no_grad():
            logit, value = policy.model(*inputs)
            logit = masked(logit, mask_of(inputs[0]), IMPOSSIBLE)[: len(data)]
            log_prob, _ = policy.distribution.evaluate(logit, tensor(data['action']))
            if policy._returns is not None:
                value = value * float(policy._returns.std) + float(policy._returns.mean)
        return log_prob, value

    def policy_loss(
        self, log_prob: torch.Tensor, ratio: torch.Tensor, advantage: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the loss of an actor without clipped ratios, and which weights of rows are cut, bool [B]."""
        limit = self._cfg.learn.clip_rho
        weight = ratio.detach().clamp(max=limit)
        return -(weight * log_prob * advantage).mean(), ratio > limit
