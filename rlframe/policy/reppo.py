"""REPPO: an actor that climbs the gradient of a critic of fresh data, and stays near the one that collected them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rlframe.data.faces import Metrics
from rlframe.data.returns import gae
from rlframe.data.timestep import Array, Batch, EnvSpec
from rlframe.policy.base_policy import Policy
from rlframe.policy.c51 import N_ATOM, V_MAX, V_MIN, check_atoms, support_of
from rlframe.policy.parts.options import (
    BATCH_SIZE,
    DISCOUNT_FACTOR,
    EPOCH_PER_COLLECT,
    HIDDEN_SIZES,
    Activation,
    ImageModel,
    Schedule,
    grad_clip_norm,
    learning_rate,
)
from rlframe.policy.parts.outputs import Atoms, smoothed
from rlframe.policy.parts.sections import LearnConfig, PolicyConfig, StochasticEval
from rlframe.policy.parts.sequences import Rows, apart_rows, epochs_of, flat, real_samples, values_after
from rlframe.policy.parts.starting import Facts, Settings
from rlframe.policy.qac import ContinuousCollect, QACPolicy, QACUpdate
from rlframe.policy.update import Loss, Update
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class REPPOModel(ImageModel):
    """Section ``model`` of REPPO."""

    encoder_hidden_size_list: list[int] = option(HIDDEN_SIZES.having([128, 128]))
    activation: Activation = option('silu', doc='nonlinearity')
    n_atom: int = option(N_ATOM.having(151))
    v_min: float = option(V_MIN)
    v_max: float = option(V_MAX)
    init_alpha: float = option(0.01, range='(0, inf)', doc='initial weight of the entropy')
    init_kl_weight: float = option(0.01, range='(0, inf)', doc='initial weight of the divergence')


class REPPOLearn(LearnConfig):
    """Section ``learn`` of REPPO."""

    epoch_per_collect: int = option(EPOCH_PER_COLLECT)
    batch_size: int = option(BATCH_SIZE.having(256))
    learning_rate_actor: Schedule = option(learning_rate(3e-4, 'Adam for the actor'))
    learning_rate_critic: Schedule = option(learning_rate(3e-4, 'Adam for the critic'))
    grad_clip_norm: float | None = option(grad_clip_norm('the gradient of the actor, and of the critic', 0.5))
    target_entropy: float | None = option(
        None, unit='nats', doc='entropy of the actor to aim at; None: -A / 2 for A numbers of an action'
    )
    kl_limit: float = option(
        0.1,
        range='(0, inf)',
        unit='nats',
        doc='divergence from the actor that collected, above which a row only draws the actor back',
        may_change=True,
    )
    prediction_weight: float = option(
        1.0, range='[0, inf)', doc='weight of predicting the next features and the reward', may_change=True
    )


class REPPOCollect(ContinuousCollect):
    """Section ``collect`` of REPPO."""

    q_lambda: float = option(0.95, range='[0, 1]', doc='weight of later steps in a return')


class REPPOConfig(PolicyConfig):
    """Options of REPPO."""

    discount_factor: float = option(DISCOUNT_FACTOR)
    model: REPPOModel
    learn: REPPOLearn
    collect: REPPOCollect
    eval: StochasticEval


class REPPOUpdate(Update):
    """Regression to soft lambda-returns, and an actor that raises the value of its actions within a divergence."""

    losses = {'critic_loss': 'critic', 'actor_loss': 'actor'}
    inputs = 'obs', 'action', 'return_', 'outcome', 'terminated', 'mean', 'log_std'
    logged = (*QACUpdate.logged, 'entropy', 'alpha', 'kl', 'kl_weight', 'prediction_loss')

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        from rlframe.data.composite import unit_size

        self.support = support_of(cfg.model, self.device)
        self.action_size = unit_size(spec.action_space)
        """Numbers of an action."""
        target = cfg.learn.target_entropy
        self._target_entropy = -self.action_size / 2 if target is None else target

    @property
    def alpha(self) -> torch.Tensor:
        """The weight of the entropy, float32 []."""
        found: torch.Tensor = self.model.actor.log_alpha.detach().exp()
        return found

    def critic_loss(self, rows: Rows) -> Loss:
        """Returns the cross entropy of the return, and the error of the prediction of what followed."""
        critic = self.model.critic
        features = critic.features_of(rows['obs'], rows['action'])
        fit = Atoms(critic.head(features), self.support).fit(smoothed(rows['return_'], self.support))
        # nothing follows the last step of an episode
        error = (critic.prediction(features) - rows['outcome']).square().mean(1)
        error = torch.where(rows['terminated'], 0.0, error).mean()
        return Loss(
            fit.loss + self.cfg.learn.prediction_weight * error,
            {**fit.metrics(), 'prediction_loss': error.detach()},
        )

    def actor_loss(self, rows: Rows) -> Loss:
        """Returns minus the soft value of the actor's actions, or the divergence where it is too large, and two multipliers'."""
        from rlframe.model.qac import squashed_gaussian

        actor, limit = self.model.actor, self.cfg.learn.kl_limit
        alpha, weight = actor.log_alpha.exp(), actor.log_kl_weight.exp()
        mean, log_std = actor(rows['obs'])
        # actor
        action, log_prob = squashed_gaussian(mean, log_std, rows['noise'])
        value = Atoms(self.model.critic(rows['obs'], action), self.support).mean()
        kl = divergence(rows['mean'], rows['log_std'], mean, log_std)
        loss = torch.where(kl < limit, alpha.detach() * log_prob - value, weight.detach() * kl).mean()
        # multipliers
        entropy = -log_prob.detach().mean()
        apart = kl.detach().mean()
        loss = loss + alpha * (entropy - self._target_entropy) + weight * (limit - apart)
        return Loss(
            loss, {'entropy': entropy, 'kl': apart, 'alpha': alpha.detach(), 'kl_weight': weight.detach()}
        )


def divergence(
    mean: torch.Tensor, log_std: torch.Tensor, other_mean: torch.Tensor, other_log_std: torch.Tensor
) -> torch.Tensor:
    """Returns the Kullback-Leibler divergence of other Gaussians from Gaussians, [B, A] each: float32 [B].

    That of their hyperbolic tangents is the same, as these are invertible.
    """
    ratio = (2 * (log_std - other_log_std)).exp()
    distance = (mean - other_mean).square() * (-2 * other_log_std).exp()
    return 0.5 * (ratio + distance - 1).sum(1) + (other_log_std - log_std).sum(1)


@POLICY_REGISTRY.register('reppo')
class REPPOPolicy(QACPolicy):
    """Relative entropy pathwise policy optimisation: SAC's gradients from fresh data, without replay buffer and target network.

    Each action of a round is worth the reward and the discounted soft value of the action that followed, and of more steps by
    lambda. Rows whose actor has moved by more than ``kl_limit`` from the one that collected only draw it back.

    Source:
        Voelcker et al., Relative Entropy Pathwise Policy Optimization (2025), algorithm 1. The divergence is exact here, where the
        authors draw 16 actions; rewards are normalised, so that one range of returns fits every env.
    """

    _cfg: REPPOConfig
    actor_kind = 'gaussian'
    config: dict[str, Any] = dict(on_policy=True, normalize_reward=True, collect=dict(n_sample=1024))
    default_network = 'reppo'
    update_class = REPPOUpdate
    checks = (check_atoms,)
    toy: dict[str, Any] = dict(
        learn=dict(batch_size=64, learning_rate_actor=3e-3, learning_rate_critic=3e-3),
        collect=dict(n_sample=128),
        discount_factor=0.5,
    )
    solves = 'Pendulum-v1', 60_000
    search_space = QACPolicy.search_space.without(
        'learn.target_theta', source=f'{QACPolicy.search_space.source}; no target networks'
    )

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        return dict(
            normalize_obs=facts.has_numbers,
            model=facts.encoder([128, 128]),
            learn=dict(
                epoch_per_collect=8, batch_size=256, learning_rate_actor=1e-3, learning_rate_critic=1e-3
            ),
            collect=dict(n_sample=1024),
        )

    def model_kwargs(self) -> dict[str, Any]:
        return Policy.model_kwargs(self)  # its network has no number of critics, and one kind of actor

    def forward_learn(self, data: Batch) -> Iterator[Callable[[], Metrics]]:
        columns = self.columns(data)
        size = columns['mean'].shape
        for _ in range(self._cfg.learn.epoch_per_collect):
            noise = self.tensor(self.rng.standard_normal(size, np.float32))
            yield from epochs_of(self, columns | {'noise': noise}, 1)

    def get_train_sample(self, block: Batch) -> Batch:
        apart = apart_rows(block)
        seen = self._seen(flat(block['obs']), flat(block['action']))
        behind = self._seen(block['next_obs'][apart], None)
        # returns
        alpha = self.update.alpha.item()
        soft_value, soft_behind = (one['value'] - alpha * one['log_prob'] for one in (seen, behind))
        soft = values_after(soft_value, soft_behind, apart)[1]
        soft[block['terminated']] = 0.0
        cfg = self._cfg
        value = seen['value'].reshape(apart.shape)
        advantage = gae(block['reward'], value, soft, apart, cfg.discount_factor, cfg.collect.q_lambda)
        # what followed: features of the next step, and the reward
        features = seen['features'].reshape(*apart.shape, -1)
        after = np.concatenate([features[1:], features[-1:]])
        after[apart] = behind['features']
        columns = {name: seen[name].reshape(*apart.shape, -1) for name in ('mean', 'log_std')}
        columns['outcome'] = np.concatenate([after, block['reward'][..., None]], 2)
        return real_samples(block, self.update.inputs, columns | {'return_': advantage + value})

    def _seen(self, obs: Array, action: Array | None) -> dict[str, Array]:
        """Returns what the networks say of actions, or without any of drawn ones, in states [n, ...]."""
        from rlframe.model.qac import noise_behind, squashed_gaussian

        critic = self.update.model.critic
        with torch.inference_mode():
            state = self.tensor(obs)
            mean, log_std = self.model.actor(state)
            if action is None:
                noise = self.tensor(self.rng.standard_normal(tuple(mean.shape), np.float32))
            else:
                noise = noise_behind(mean, log_std, self.tensor(action))
            taken, log_prob = squashed_gaussian(mean, log_std, noise)
            features = critic.features_of(state, taken)
            value = Atoms(critic.head(features), self.update.support).mean()
            found = dict(mean=mean, log_std=log_std, log_prob=log_prob, features=features, value=value)
            return {name: tensor.cpu().numpy() for name, tensor in found.items()}
