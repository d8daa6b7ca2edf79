"""TD3: DDPG with twin critics, a delayed actor and noise on the target's actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.timestep import Array, EnvSpec
from rlframe.policy.ddpg import DDPGConfig, DDPGLearn, DDPGPolicy, DDPGUpdate
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac import QACPolicy
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class TD3Learn(DDPGLearn):
    """Section ``learn`` of TD3."""

    target_noise: float = option(
        0.2,
        range='[0, inf)',
        unit='half the range of an action',
        doc="standard deviation of noise on the target actor's actions",
        may_change=True,
    )
    target_noise_clip: float = option(
        0.5, range='(0, inf)', unit='half the range of an action', doc='largest such noise', may_change=True
    )


class TD3Config(DDPGConfig):
    """Options of TD3."""

    learn: TD3Learn


class TD3Update(DDPGUpdate):
    """DDPG whose target is the value of actions nearby."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        # read here: a compiled loss that is the first to read an option is compiled twice
        self._sigma = cfg.learn.target_noise
        self._clip = cfg.learn.target_noise_clip

    def draws(self, rng: np.random.Generator, count: int) -> dict[str, Array]:
        return {'next_noise': self.noise(rng, count)}

    def next_action(self, rows: Rows) -> torch.Tensor:
        noise = (rows['next_noise'] * self._sigma).clamp_(-self._clip, self._clip)
        return (super().next_action(rows) + noise).clamp_(-1, 1)


@POLICY_REGISTRY.register('td3')
class TD3Policy(QACPolicy):
    """DDPG with twin critics, a delayed actor and noise on the target's actions.

    Source:
        Fujimoto et al., Addressing Function Approximation Error in Actor-Critic Methods (2018), algorithm 1.
    """

    _cfg: TD3Config
    config = dict(learn=dict(actor_update_freq=2))
    supported_actions = 'Box, Hybrid'
    supports_action_mask = True
    update_class = TD3Update
    ding = DingNames(
        defaults={
            'learn.update_per_collect': 1,
            'other.replay_buffer.replay_buffer_size': 100_000,
            'random_collect_size': 25_000,
            'eval.evaluator.eval_freq': 5000,
        }
    )
    solves = 'Pendulum-v1', 8_000
    search_space = DDPGPolicy.search_space
