"""P-DQN: DQN over a choice whose continuous parameters an actor proposes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from easydict import EasyDict

from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray
from rlframe.policy.dqn import DoubleConfig, QCollect, QLearn, QModel, QPolicy, QUpdate
from rlframe.policy.parts.actions import HybridActions, mask_of
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import NOISE_SIGMA, Schedule, learning_rate, schedule_of
from rlframe.policy.parts.outputs import Values
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class PDQNModel(QModel):
    """Section ``model`` of P-DQN."""

    multi_pass: bool = option(
        False, doc='whether each choice is valued in a pass of its own, by its parameters alone'
    )
    action_mask: list[Any] | None = option(
        None,
        unit='[[0 or 1 for each parameter] for each choice]',
        doc='which parameters belong to which choice, for multi_pass; None: those of the i-th part of a Tuple to choice i',
    )


class PDQNLearn(QLearn):
    """Section ``learn`` of P-DQN."""

    learning_rate_actor: Schedule = option(learning_rate(1e-4, 'Adam for the parameters'))


class PDQNCollect(QCollect):
    """Section ``collect`` of P-DQN."""

    noise_sigma: Schedule = option(NOISE_SIGMA)


class PDQNConfig(DoubleConfig):
    """Options of P-DQN."""

    model: PDQNModel
    learn: PDQNLearn
    collect: PDQNCollect


class PDQNUpdate(QUpdate):
    """The values of choices with the parameters taken, and an actor that raises the values of all choices."""

    losses = {'loss': 'model', 'actor_loss': 'actor'}

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self.hybrid = HybridActions(spec.action_space)

    def loss(self, rows: Rows) -> Loss:
        """Returns the mean squared distance of the values of the actions taken to their targets."""
        # target, with the parameters that the networks propose in the next state
        with torch.no_grad():
            target = self.target(rows)
        # values of the choices taken, with the parameters taken
        choice, parameters = self.hybrid.split(rows['action'])
        value = Values(self.model.critic(rows['obs'], parameters)).gather(choice)
        fit = value.fit(target, self.targets.weight(rows))
        return Loss(fit.loss, fit.metrics(), fit.error)

    def actor_loss(self, rows: Rows) -> Loss:
        """Returns minus the sum of the values of all allowed choices, with the parameters that the actor proposes."""
        value = self.model(rows['obs'])
        mask = mask_of(rows['obs'])
        value = value if mask is None else value * mask
        return Loss(-value.sum(1).mean())


@POLICY_REGISTRY.register('pdqn')
class PDQNPolicy(QPolicy):
    """DQN for hybrid actions: an actor proposes the parameters x_k of each choice k, and Q(s, k, x) values the choices.

    The target is the reward plus the discounted max_k Q'(s', k, x'(s')), and the actor raises the sum of all Q(s, k, x(s)). It
    collects, with probability ``eps``, random choices and parameters, else the best choice, with noise on the parameters. With
    ``multi_pass``, Q(s, k, x) depends on x_k alone.

    Source:
        Xiong et al., Parametrized Deep Q-Networks Learning (2018), algorithm 1; here, with target networks of both. Multi-pass:
        Bester et al., Multi-Pass Q-Networks for Deep Reinforcement Learning with Parameterised Action Spaces (2019).
    """

    _cfg: PDQNConfig
    config = dict(learn=dict(target_update_freq=None, target_theta=0.005))
    supported_actions = 'Hybrid'
    default_network = 'parametrized_q_net'
    update_class = PDQNUpdate
    ding = DingNames(
        options={
            'learn.learning_rate_dis': 'learn.learning_rate',
            'learn.learning_rate_cont': 'learn.learning_rate_actor',
        },
        defaults=QPolicy.ding.defaults,
        unused={'learn.update_circle': 'every update minimises both losses, where DI-engine takes turns'},
    )
    toy = QPolicy.toy | dict(
        collect=dict(n_sample=32),
        learn=dict(
            batch_size=64,
            learning_rate=3e-3,
            learning_rate_actor=1e-3,
            target_theta=0.05,
            update_per_collect=8,
        ),
    )

    @classmethod
    def check_spec(cls, spec: EnvSpec, cfg: EasyDict) -> None:
        super().check_spec(spec, cfg)
        if cfg.model.get('multi_pass'):
            from rlframe.data.composite import parameters_by_choice

            parameters_by_choice(spec.action_space, cfg.model.action_mask)

    def init_collect(self) -> None:
        self._action_dtype = np.dtype(np.float32)

    def _acting_output(self, obs: Any) -> tuple[torch.Tensor, int]:
        return self.model(obs), self.update.hybrid.choices

    def best_action(self, obs: Any) -> torch.Tensor:
        """Returns the best allowed choice, counted from 0, and the parameters of all, in [-1, 1], float32 [B, K]."""
        parameters = self.model.actor(obs)
        choice = self.masked(self.model.critic(obs, parameters), obs).argmax(1)
        action: torch.Tensor = self.update.hybrid.join(choice, parameters)
        return action

    def _best(self, obs: Array) -> Array:
        with torch.inference_mode():
            best: Array = self.best_action(self.tensor(obs)).cpu().numpy()
        return best

    def forward_collect(
        self, obs: Array, env_id: IntArray, eps: float = 0.0, noise_sigma: float = 0.0, **settings: Any
    ) -> Batch:
        action = self._best(obs)
        hybrid = self.update.hybrid
        # noise on the parameters
        noise = self.rng.standard_normal(action.shape, np.float32)
        noisy = np.clip(action + noise_sigma * noise, -1, 1)
        noisy[:, hybrid.column] = action[:, hybrid.column]
        # random actions
        mask = mask_of(obs) if self._has_mask else np.ones((len(action), hybrid.choices), np.bool_)
        is_random = self.rng.random((len(action), 1)) < eps
        return self.actions.batch(np.where(is_random, hybrid.drawn(self.rng, mask), noisy))

    def get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        sigma = schedule_of(self._cfg.collect.noise_sigma)(info['envstep'])
        return super().get_setting_collect(info) | {'noise_sigma': sigma}
