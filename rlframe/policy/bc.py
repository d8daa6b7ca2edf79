"""Behaviour cloning: supervised learning of recorded actions."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray
from rlframe.policy.base_policy import Policy
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.optim import OPTIMIZER
from rlframe.policy.parts.options import BATCH_SIZE, ImageModel, Schedule, grad_clip_norm, learning_rate
from rlframe.policy.parts.sections import LearnConfig, PolicyConfig
from rlframe.policy.parts.sequences import Rows, real_samples
from rlframe.policy.update import Loss, Update
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


class BCUpdate(Update):
    """Maximum likelihood of actions, or the smallest distance to continuous ones."""

    inputs: tuple[str, ...] = ('obs', 'action')

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self._is_continuous = type(spec.action_space).__name__ == 'Box'

    def loss(self, rows: Rows) -> Loss:
        """Returns the mean negative log-likelihood, or squared distance, of recorded actions."""
        output = self.masked(self.model(rows['obs']), rows['obs'])
        return Loss(self.distance(output, rows['action']).mean())

    def distance(self, output: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Returns the negative log-likelihood of each action, or its squared distance per number, by outputs of the actor, [B]."""
        if self._is_continuous:
            return (output - action).square().flatten(1).mean(1)
        count = self.distribution.log_std_size
        if count:
            output = torch.cat([output, output.new_zeros(len(output), count)], 1)
        return -self.distribution.evaluate(output, action)[0]


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
    default_network = 'actor'
    update_class = BCUpdate
    ding = DingNames(
        'continuous_bc',
        options={'collect.data_path': 'collect.collector.data'},
        defaults={'learn.batch_size': 32, 'learn.learning_rate': 1e-5},
    )
    toy = dict(learn=dict(batch_size=32, learning_rate=1e-2))

    def columns(self, data: Batch) -> Rows:
        return super().columns(data.replace(action=self.actions.from_env(np.asarray(data['action']))))

    def _output(self, obs: Any) -> torch.Tensor:
        return self.masked(self.model(obs), obs)

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the most probable action as the network means it, [B, ...], as a part of a torch graph."""
        return self.distribution.mode_tensor(self.model(obs))

    def forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        with torch.inference_mode():
            output = self._output(self.tensor(obs)).cpu().numpy()
        return self.actions.batch(self.distribution.mode(output))

    def get_train_sample(self, block: Batch) -> Batch:
        return real_samples(block, self.update.inputs)
