"""REDQ and DroQ: SACs that do many updates for each env step."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.timestep import Array
from rlframe.errors import ConfigError
from rlframe.policy.parts.options import refused
from rlframe.policy.parts.outputs import Output, Values
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.parts.starting import Facts, Settings
from rlframe.policy.qac import ContinuousModel, QACPolicy, critic_num
from rlframe.policy.sac import ContinuousSACConfig, SACLearn, SACUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

OFTEN: dict[str, Any] = dict(update_per_collect=160, actor_update_freq=20)
"""Section ``learn`` of SACs that do 20 updates of the critics for each env step, and one of the actor."""


def often(settings: Settings, facts: Facts) -> Settings:
    """Returns the settings that a SAC starts from if it does so many updates: small networks, and large steps of the actor."""
    steps = dict(learning_rate_actor=3e-3, learning_rate_alpha=3e-3, target_theta=0.01)
    learn = settings['learn'] | OFTEN | steps
    return settings | dict(random_collect_size=500, model=facts.encoder([64, 64]), learn=learn)


def check_critics(cfg: Any) -> list[ConfigError]:
    """Refuses targets of more critics than there are."""
    count = critic_num(cfg.model)
    if cfg.learn.target_critics <= count:
        return []
    return [refused(cfg, 'learn.target_critics', 'there are fewer critics', f'at most {count}')]


class REDQLearn(SACLearn):
    """Section ``learn`` of REDQ."""

    target_critics: int = option(
        2, range='[1, inf)', unit='critics', doc='critics, drawn anew in every update, that make the target'
    )


class REDQConfig(ContinuousSACConfig):
    """Options of REDQ."""

    learn: REDQLearn


class REDQUpdate(SACUpdate):
    """SAC with an ensemble of critics, of which a few make the target."""

    follows_actor = False

    def draws(self, rng: np.random.Generator, count: int) -> dict[str, Array]:
        order = super().draws(rng, count)
        critics = rng.permutation(critic_num(self.cfg.model))
        return order | {'critics': critics[: self.cfg.learn.target_critics]}

    def next_returns(self, rows: Rows, action: torch.Tensor) -> Output:
        value = self.targets.network['critic'](rows['next_obs'], action)
        return Values(value[rows['critics']]).smallest()

    def value_of(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        return self.model.critic(obs, action).mean(0)


@POLICY_REGISTRY.register('redq')
class REDQPolicy(QACPolicy):
    """SAC with ten critics, of which two drawn ones make the target, and 20 updates for each env step.

    Source:
        Chen et al., Randomized Ensembled Double Q-Learning: Learning Fast Without a Model (2021), algorithm 1.
    """

    _cfg: REDQConfig
    actor_kind = 'gaussian'
    config: dict[str, Any] = dict(model=dict(n_critic=10), learn=OFTEN)
    update_class = REDQUpdate
    checks = (check_critics,)
    toy = QACPolicy.toy | dict(
        model=dict(n_critic=4),
        learn=QACPolicy.toy['learn'] | dict(learning_rate_alpha=1e-2, actor_update_freq=2),
    )
    solves = 'Pendulum-v1', 3_000

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        return often(super().starting(facts), facts)


class DroQModel(ContinuousModel):
    """Section ``model`` of DroQ."""

    dropout: float = option(
        0.01, range='[0, 1)', doc='probability of dropping a hidden unit of a critic in training'
    )


class DroQConfig(ContinuousSACConfig):
    """Options of DroQ."""

    model: DroQModel


class DroQUpdate(SACUpdate):
    """SAC whose critics, and their target networks, drop units."""

    follows_actor = False

    def critic_loss(self, rows: Rows) -> Loss:
        alpha = self.entropy.value
        critic = self.targets.network['critic']
        # critics
        value = Values(self.model.critic(rows['obs'], rows['action'], is_training=True))
        # target
        with torch.no_grad():
            next_action, log_prob = self.act(rows['next_obs'], rows['next_noise'])
            next_value = Values(critic(rows['next_obs'], next_action, is_training=True)).smallest()
            target = next_value.target(rows['reward'], self.targets.discount(rows), alpha * log_prob)
        return self.fitted(value, target, rows)

    def value_of(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        return self.model.critic(obs, action, is_training=True).mean(0)


@POLICY_REGISTRY.register('droq')
class DroQPolicy(QACPolicy):
    """SAC whose critics have dropout and layer norm, and 20 updates for each env step.

    Source:
        Hiraoka et al., Dropout Q-Functions for Doubly Efficient Reinforcement Learning (2022), algorithm 2.
    """

    _cfg: DroQConfig
    actor_kind = 'gaussian'
    config: dict[str, Any] = dict(model=dict(norm='layer'), learn=OFTEN)
    update_class = DroQUpdate
    toy = QACPolicy.toy | dict(
        learn=QACPolicy.toy['learn'] | dict(learning_rate_alpha=1e-2, actor_update_freq=2)
    )
    solves = 'Pendulum-v1', 3_000

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        return often(super().starting(facts), facts)
