"""PPO for discrete actions: generalised advantages, clipped ratios, several epochs over fresh data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.batch import Batch
from rlframe.data.returns import gae
from rlframe.data.timestep import Array, IntArray, TimeStep
from rlframe.policy.base_policy import Metrics, Policy
from rlframe.policy.guard import NAN_POLICY
from rlframe.policy.model_options import IMAGE_OPTIONS
from rlframe.policy.optim import Optimizer
from rlframe.policy.schedule import check_positive_schedule
from rlframe.policy.tensors import take
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import Field
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


@POLICY_REGISTRY.register('ppo')
class PPOPolicy(Policy):
    """Proximal policy optimisation with the clipped objective.

    Source:
        Schulman et al., Proximal Policy Optimization Algorithms (2017), eq. 7 and 9.
    """

    config = dict(
        on_policy=True,
        model=dict(
            encoder_hidden_size_list=Field(
                [64, 64], list, '', 'units', 'widths of the hidden layers of actor and critic'
            ),
            activation=Field('tanh', str, '', '', 'nonlinearity', choices=('relu', 'tanh', 'gelu', 'silu')),
            **IMAGE_OPTIONS,
        ),
        learn=dict(
            epoch_per_collect=Field(
                4, int, '[1, inf)', 'epochs', 'passes over the data of one round', may_change=True
            ),
            batch_size=Field(256, int, '[1, inf)', 'transitions', 'of one update', may_change=True),
            learning_rate=Field(
                3e-4,
                (float, dict),
                '',
                '',
                'of Adam; a schedule over env steps',
                check=check_positive_schedule,
                may_change=True,
            ),
            clip_ratio=Field(
                0.2, float, '(0, inf)', '', 'how far a probability ratio may move from 1', may_change=True
            ),
            value_weight=Field(0.5, float, '[0, inf)', '', 'weight of the value loss', may_change=True),
            entropy_weight=Field(0.01, float, '[0, inf)', '', 'weight of the entropy bonus', may_change=True),
            grad_clip_norm=Field(
                0.5,
                (float, type(None)),
                '(0, inf)',
                '',
                'largest norm of the gradient; None: unlimited',
                may_change=True,
            ),
            nan_policy=NAN_POLICY,
            adam_eps=Field(1e-5, float, '(0, inf)', '', "Adam's epsilon"),
        ),
        collect=dict(
            n_sample=1024,
            discount_factor=Field(0.99, float, '[0, 1]', 'per env step', 'weight of the next reward'),
            gae_lambda=Field(0.95, float, '[0, 1]', '', 'how far advantages look ahead'),
        ),
    )

    def default_model(self) -> str:
        return 'actor_critic'

    def _init_learn(self) -> None:
        self._optimizer = Optimizer(self._model, self._cfg.learn)
        self._clip_ratio = self._cfg.learn.clip_ratio

    def _forward_learn(self, data: Batch) -> Iterator[Callable[[], Metrics]]:
        columns = {
            name: self._tensor(data[name]) for name in ('obs', 'action', 'log_prob', 'advantage', 'return_')
        }
        for _ in range(self._cfg.learn.epoch_per_collect):
            order = torch.from_numpy(self._rng.permutation(len(data))).to(self._device)
            shuffled, size = take(columns, order), self._cfg.learn.batch_size
            for first in range(0, len(data), size):
                yield partial(self._update, take(shuffled, slice(first, first + size)))

    def _update(self, rows: dict[str, torch.Tensor]) -> Metrics:
        log_probs = torch.log_softmax(self._model.actor(rows['obs']), 1)  # [B, A]
        log_prob = log_probs.gather(1, rows['action'].unsqueeze(1)).squeeze(1)
        log_ratio = log_prob - rows['log_prob']
        ratio = log_ratio.exp()
        advantage = rows['advantage']
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        clipped = ratio.clamp(1 - self._clip_ratio, 1 + self._clip_ratio)
        policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
        value_loss = torch.nn.functional.mse_loss(self._model.critic(rows['obs']).squeeze(1), rows['return_'])
        entropy = -(log_probs.exp() * log_probs).sum(1).mean()
        cfg = self._cfg.learn
        loss = policy_loss + cfg.value_weight * value_loss - cfg.entropy_weight * entropy
        self._optimizer.step(loss, policy_loss=policy_loss, value_loss=value_loss, entropy=entropy)
        with torch.no_grad():
            return {
                **self._optimizer.metrics(),
                'total_loss': loss.detach(),
                'policy_loss': policy_loss.detach(),
                'value_loss': value_loss.detach(),
                'entropy': entropy.detach(),
                'approx_kl': (ratio - 1 - log_ratio).mean(),
                'clip_fraction': ((ratio - 1).abs() > self._clip_ratio).float().mean(),
            }

    def _forward_collect(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        with torch.inference_mode():
            logit = self._model.actor(self._tensor(obs)).cpu().numpy()  # [n, A]
        noise = np.log(self._rng.standard_exponential(logit.shape, np.float32))
        action = (logit - noise).argmax(1)  # the Gumbel-max trick: a draw from softmax(logit)
        return Batch.unchecked(
            {'action': action + self._spec.action_space.start, 'logit': logit}, len(action)
        )  # type: ignore[attr-defined]

    def _forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        with torch.inference_mode():
            action = self._model.actor(self._tensor(obs)).argmax(1).cpu().numpy()
        return Batch.unchecked({'action': action + self._spec.action_space.start}, len(action))  # type: ignore[attr-defined]

    def _process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        rows = super()._process_transition(obs, output, timestep)
        return rows | {'action': rows['action'] - self._spec.action_space.start, 'logit': output['logit']}  # type: ignore[attr-defined]

    def _get_train_sample(self, block: Batch) -> Batch:
        done = block['terminated'] | block['truncated']
        apart = done.copy()  # rows whose next obs is not the obs of the row below
        apart[-1] = True
        if 'mask' in block:
            apart[:-1] |= ~block['mask'][1:]
        value = self._values(block['obs'])
        next_value = np.concatenate([value[1:], value[-1:]])
        next_value[apart] = self._values(block['next_obs'][apart])
        next_value[block['terminated']] = 0.0
        cfg = self._cfg.collect
        advantage = gae(block['reward'], value, next_value, apart, cfg.discount_factor, cfg.gae_lambda)
        logit = block['logit'] - block['logit'].max(-1, keepdims=True)
        log_probs = logit - np.log(np.exp(logit).sum(-1, keepdims=True))
        log_prob = np.take_along_axis(log_probs, block['action'][..., None], -1)[..., 0]
        columns = {
            'obs': block['obs'],
            'action': block['action'],
            'log_prob': log_prob,
            'advantage': advantage,
            'return_': advantage + value,
            'collect_iter': block['collect_iter'],
        }
        real = block['mask'] if 'mask' in block else np.ones(done.shape, bool)
        return Batch({name: column[real] for name, column in columns.items()})

    def _values(self, obs: Array) -> Array:
        """Returns the value of observations [..., obs], float32 [...]."""
        leading = obs.shape[: obs.ndim - len(self._spec.observation_space.shape or ())]
        with torch.inference_mode():
            flat = self._tensor(obs.reshape(-1, *obs.shape[len(leading) :]))
            return self._model.critic(flat).cpu().numpy().reshape(leading).copy()

    def get_setting_learn(self, info: Mapping[str, Any]) -> dict[str, Any]:
        self._optimizer.set_envstep(info['envstep'])
        return {}

    def _monitor_vars(self) -> list[str]:
        return [
            *super()._monitor_vars(),
            'policy_loss',
            'value_loss',
            'entropy',
            'approx_kl',
            'clip_fraction',
        ]

    def _state_dict_learn(self) -> dict[str, Any]:
        return super()._state_dict_learn() | {'optimizer': self._optimizer.state_dict()}

    def _load_state_dict_learn(self, state: Mapping[str, Any]) -> None:
        super()._load_state_dict_learn(state)
        self._optimizer.load_state_dict(state['optimizer'])
