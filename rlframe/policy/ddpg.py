"""DDPG, and TD3 as DDPG with twin critics, a delayed actor and noise on the target's actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlframe.data.faces import Metrics
from rlframe.policy.parts.options import Schedule, check_schedule, value_at
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac import QACCollect, QACConfig, QACLearn, QACPolicy
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import Field
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


class DDPGLearn(QACLearn):
    """Section ``learn`` of DDPG."""

    target_noise: float
    target_noise_clip: float


class DDPGCollect(QACCollect):
    """Section ``collect`` of DDPG."""

    noise_sigma: Schedule


class DDPGConfig(QACConfig):
    """Options of DDPG."""

    learn: DDPGLearn
    collect: DDPGCollect


@POLICY_REGISTRY.register('ddpg')
class DDPGPolicy(QACPolicy):
    """Deep deterministic policy gradient.

    Source:
        Lillicrap et al., Continuous Control with Deep Reinforcement Learning (2016), algorithm 1.
    """

    _cfg: DDPGConfig
    config = dict(
        model=dict(twin_critic=False),
        learn=dict(
            learning_rate_actor=1e-3,
            learning_rate_critic=1e-3,
            target_noise=Field(
                0.0,
                range='[0, inf)',
                unit='half the range of an action',
                doc="standard deviation of noise on the target actor's actions",
                may_change=True,
            ),
            target_noise_clip=Field(
                0.5,
                range='(0, inf)',
                unit='half the range of an action',
                doc='largest such noise',
                may_change=True,
            ),
        ),
        collect=dict(
            noise_sigma=Field(
                0.1,
                type=(float, dict),
                range='[0, inf)',
                unit='half the range of an action',
                doc='standard deviation of exploration noise; a schedule over env steps',
                check=check_schedule,
                may_change=True,
            ),
        ),
    )
    target_parts = ('actor', 'critic')

    def model_kwargs(self) -> dict[str, Any]:
        return super().model_kwargs() | {'actor': 'deterministic'}

    def _init_learn(self) -> None:
        super()._init_learn()
        self._target_noise = self._cfg.learn.target_noise
        self._target_noise_clip = self._cfg.learn.target_noise_clip

    def _noises(self) -> Sequence[str]:
        return ('next_noise',) if self._target_noise else ()

    def _next_value(self, rows: Rows) -> torch.Tensor:
        next_obs, clip = rows['next_obs'], self._target_noise_clip
        action = self._target_model['actor'](next_obs)
        if self._target_noise:
            action = (action + (rows['next_noise'] * self._target_noise).clamp_(-clip, clip)).clamp_(-1, 1)
        return self._target_model['critic'](next_obs, action).amin(0)

    def _actor_loss(self, rows: Rows) -> tuple[torch.Tensor, Metrics]:
        obs = rows['obs']
        return -self._model.critic(obs, self._model.actor(obs), count=1).mean(), {}

    def _explore(
        self, obs: torch.Tensor, noise: torch.Tensor, noise_sigma: float = 0.0, **settings: Any
    ) -> torch.Tensor:
        return self._model.actor(obs).add_(noise, alpha=noise_sigma).clamp_(-1, 1)

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        return self._model.actor(obs)

    def get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {'noise_sigma': value_at(self._cfg.collect.noise_sigma, info['envstep'])}


@POLICY_REGISTRY.register('td3')
class TD3Policy(DDPGPolicy):
    """DDPG with twin critics, a delayed actor and noise on the target's actions.

    Source:
        Fujimoto et al., Addressing Function Approximation Error in Actor-Critic Methods (2018), algorithm 1.
    """

    config = dict(model=dict(twin_critic=True), learn=dict(actor_update_freq=2, target_noise=0.2))
