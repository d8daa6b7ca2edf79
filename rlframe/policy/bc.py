"""Behaviour cloning: supervised learning of recorded actions."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Array, Batch, IntArray
from rlframe.errors import ConfigError
from rlframe.policy.base_policy import LearnConfig, Policy, PolicyConfig
from rlframe.policy.parts.actions import IMPOSSIBLE, mask_of, masked
from rlframe.policy.parts.optim import OPTIMIZER, Optimizer
from rlframe.policy.parts.options import (
    BATCH_SIZE,
    ImageModel,
    Schedule,
    grad_clip_norm,
    learning_rate,
    refused,
)
from rlframe.policy.parts.sequences import Rows, real_rows
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class BCLearn(LearnConfig):
    """Section ``learn`` of behaviour cloning."""

    batch_size: int = option(BATCH_SIZE)
    learning_rate: Schedule = option(learning_rate(1e-3, over='env steps that were read'))
    grad_clip_norm: float | None = option(grad_clip_norm())
    optimizer: Literal['adam', 'rmsprop'] = option(OPTIMIZER)


class BCConfig(PolicyConfig):
    """Options of behaviour cloning."""

    model: ImageModel
    learn: BCLearn


@POLICY_REGISTRY.register('bc')
class BCPolicy(Policy):
    """Behaviour cloning.

    It maximizes the likelihood of recorded discrete actions, and minimizes the squared distance to continuous ones, in
    units of [-1, 1]; of actions with parts, it maximizes the likelihood, with standard deviations of 1. The collector ``dataset``, its default, reads the data that ``collector.data`` names.

    Source:
        Pomerleau, Efficient Training of Artificial Neural Networks for Autonomous Navigation (1991).
    """

    _cfg: BCConfig
    config = dict(on_policy=True, collect=dict(collector=dict(type='dataset')))
    supported_actions = 'Discrete, Box, MultiDiscrete, MultiBinary, Dict, Tuple'
    supports_action_mask = True
    compiled_parts = ('loss',)
    inputs = 'obs', 'action'

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        errors = super().check_config(cfg)
        collector = cfg.collect.get('collector') or {}
        if collector.get('type', 'dataset') in ('sample', 'episode'):
            message = (
                'behaviour cloning learns from recorded data, and this collector plays the policy itself'
            )
            errors.append(refused(cfg, 'collect.collector.type', message, "'dataset'"))
        return errors

    def default_model(self) -> str:
        return 'actor'

    def init_learn(self) -> None:
        self._optimizer = self.optimizers['model'] = Optimizer(self.model, self._cfg.learn)

    def forward_learn(self, data: Batch) -> Metrics:
        return {**self._optimizer.metrics(), **self.update_tensors(self.columns(data))}

    def columns(self, data: Batch) -> Rows:
        return super().columns(data.replace(action=self._actions.from_env(np.asarray(data['action']))))

    def update_tensors(self, rows: Rows) -> Metrics:
        """Updates the network; only reads and changes tensors."""
        loss, metrics = self.loss(rows)
        self._optimizer.step(loss)
        return metrics

    def loss(self, rows: Rows) -> tuple[torch.Tensor, Metrics]:
        """Returns the loss of a batch, a number, and the values to log; called for each batch."""
        output, action = self._output(rows['obs']), rows['action']
        if self._actions.is_continuous:
            loss = torch.nn.functional.mse_loss(output, action)
        else:
            if count := self.distribution.log_std_size:
                output = torch.cat([output, output.new_zeros(len(output), count)], 1)
            loss = -self.distribution.evaluate(output, action)[0].mean()
        return loss, {'total_loss': loss.detach()}

    def _acting_output(self, obs: Any) -> tuple[torch.Tensor, int]:
        return self.model(obs), self.distribution.size

    def _output(self, obs: Any) -> torch.Tensor:
        return masked(self.model(obs), mask_of(obs), IMPOSSIBLE)

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the most probable action as the network means it, [B, ...], as a part of a torch graph."""
        return self.distribution.mode_tensor(self.model(obs))

    def forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        with torch.inference_mode():
            output = self._output(self.tensor(obs)).cpu().numpy()
        return Batch.unchecked({'action': self._actions.to_env(self.distribution.mode(output))}, len(output))

    def forward_collect(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        return self.forward_eval(obs, env_id)

    def get_train_sample(self, block: Batch) -> Batch:
        real = real_rows(block)
        return Batch({name: block[name][real] for name in (*self.inputs, 'collect_iter') if name in block})
