"""SAC for continuous actions: an actor that is rewarded for entropy too; CrossQ, XQC, TQC, REDQ and DroQ are its switches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Array, Batch, IntArray
from rlframe.errors import ConfigError
from rlframe.policy.base_policy import StochasticEval
from rlframe.policy.c51 import ATOMS, check_atoms, project
from rlframe.policy.parts.optim import Optimizer
from rlframe.policy.parts.options import Schedule, learning_rate, refused
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac import (
    ContinuousCollect,
    ContinuousLearn,
    ContinuousModel,
    QACConfig,
    QACLearn,
    QACPolicy,
    critic_num,
)
from rlframe.policy.qrdqn import quantile_huber_loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch
from rlframe.utils.schema import check_state, tensor_like


def check_alpha(value: Any) -> str:
    """Returns a description of valid temperatures if a value is invalid, else an empty string."""
    is_fine = value == 'auto' if isinstance(value, str) else 0 <= value < math.inf
    return '' if is_fine else "'auto', or a number >= 0"


class SACLearn(QACLearn):
    """Section ``learn`` of SAC."""

    alpha: str | float = option(
        'auto',
        doc="weight of the entropy; 'auto': learned so that the entropy is target_entropy",
        check=check_alpha,
    )
    init_alpha: float = option(1.0, range='(0, inf)', doc='initial weight of the entropy if it is learned')
    target_entropy: float | None = option(
        None,
        unit='nats',
        doc='entropy of the actor to aim at; None: -A for A continuous, log(A) / 2 for A discrete actions; where a mask allows'
        ' n of A actions, log(n) / log(A) of it',
    )
    learning_rate_alpha: Schedule = option(learning_rate(3e-4, 'Adam for the weight of the entropy'))


class SACConfig(QACConfig):
    """Options of every SAC."""

    learn: SACLearn
    eval: StochasticEval


class ContinuousSACModel(ContinuousModel):
    """Section ``model`` of SAC for continuous actions."""

    num_quantiles: int = option(
        1, range='[1, inf)', unit='quantiles', doc='numbers that a critic describes a return by; 1: its mean'
    )
    n_atom: int | None = option(
        None,
        range='[2, inf)',
        unit='atoms',
        doc='returns that a categorical critic tells apart, by cross-entropy; None: critics are not categorical',
    )
    v_min: float = option(-10.0, unit='discounted return', doc='lowest atom of the return distribution')
    v_max: float = option(10.0, unit='discounted return', doc='highest atom of the return distribution')


class ContinuousSACLearn(SACLearn, ContinuousLearn):
    """Section ``learn`` of SAC for continuous actions."""

    target_follows: Literal['actor', 'critic'] = option(
        'actor', doc='whose updates the target networks follow', may_change=True
    )
    target_critics: int | None = option(
        None,
        range='[1, inf)',
        unit='critics',
        doc='critics, drawn anew in every update, that make the target; None: all',
    )
    dropped_quantiles: int = option(
        0,
        range='[0, inf)',
        unit='quantiles for each critic',
        doc='largest quantiles, of those of all critics together, that targets leave out',
        may_change=True,
    )
    actor_value: Literal['min', 'mean'] = option(
        'min', doc='value that the actor raises: the smallest of the critics, or their mean', may_change=True
    )


class ContinuousSACConfig(SACConfig):
    """Options of SAC for continuous actions."""

    model: ContinuousSACModel
    learn: ContinuousSACLearn
    collect: ContinuousCollect


class EntropyWeight:
    """The weight of an actor's entropy, alpha: a constant, or learned so that the entropy is near a target.

    Args:
        cfg: Section ``learn`` of the policy.
        target: Entropy to aim at, in nats, if the section sets none.
        device: Where the policy learns.

    Source:
        Haarnoja et al. (2018), eq. 18; it is learned by its logarithm, as the authors' code does.
    """

    def __init__(self, cfg: SACLearn, target: float, device: torch.device) -> None:
        self.is_learned = cfg.alpha == 'auto'
        alpha = cfg.init_alpha if self.is_learned else cfg.alpha
        self.value = torch.tensor(float(alpha), device=device)
        """Alpha, float32 []."""
        self.target = target if cfg.target_entropy is None else cfg.target_entropy
        """Entropy to aim at, in nats."""
        self._log = torch.nn.Parameter(self.value.log())
        options = {name: cfg[name] for name in ('learning_rate_alpha', 'nan_policy')}
        self.optimizer = Optimizer(
            torch.nn.ParameterDict({'log_alpha': self._log}),
            options | {'grad_clip_norm': None},
            'learning_rate_alpha',
        )

    def update(self, metrics: Metrics) -> None:
        """Moves alpha by the logged entropy of a batch, and logs the one it was."""
        metrics['alpha'] = self.value.clone()
        target = metrics.pop('target_entropy', self.target)
        if self.is_learned:
            self.optimizer.step(self._log * (metrics['entropy'] - target))
            self.value.copy_(self._log.detach().exp())

    def state_dict(self) -> dict[str, Any]:
        """Returns its logarithm, if it is learned."""
        return {'log_alpha': self._log.detach().clone()} if self.is_learned else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        if self.is_learned:
            check_state(state, {'log_alpha': tensor_like(self._log)})
            self._log.detach().copy_(state['log_alpha'])
            self.value.copy_(self._log.detach().exp())


@POLICY_REGISTRY.register('sac')
class SACPolicy(QACPolicy):
    """Soft actor-critic with a tanh-Gaussian actor; CrossQ, XQC, TQC, REDQ and DroQ are its switches.

    Source:
        Haarnoja et al., Soft Actor-Critic Algorithms and Applications (2018), algorithm 1, eq. 5, 7 and 18; the
        temperature is learned by its logarithm, as the authors' code does. Categorical critics (``n_atom``): Bellemare et
        al. (2017), algorithm 1, on the distribution of the critic whose mean is smallest, as the authors of XQC do.
    """

    _cfg: ContinuousSACConfig
    actor_kind = 'gaussian'
    network_arguments = QACPolicy.network_arguments | ATOMS | {'num_quantiles': 'quantiles'}

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        own: ContinuousSACConfig = cfg
        model, learn, errors = own.model, own.learn, [*super().check_config(cfg), *check_atoms(cfg.model)]
        count, quantiles = critic_num(model), model.num_quantiles
        if model.n_atom is not None and quantiles > 1:
            message = 'a critic describes a return by atoms or by quantiles'
            errors.append(refused(cfg, 'model.num_quantiles', message, '1, or model.n_atom=None'))
        if learn.target_critics is not None and learn.target_critics > count:
            message = 'there are fewer critics'
            errors.append(refused(cfg, 'learn.target_critics', message, f'at most {count}'))
        if learn.dropped_quantiles and learn.dropped_quantiles >= quantiles:
            message = 'a critic has no quantiles' if quantiles == 1 else 'no quantile would be left'
            expected = f'fewer than model.num_quantiles={quantiles}'
            errors.append(refused(cfg, 'learn.dropped_quantiles', message, expected))
        return errors

    def model_kwargs(self) -> dict[str, Any]:
        kwargs = super().model_kwargs()
        if kwargs['quantiles'] == 1:  # networks of users may know none
            del kwargs['quantiles']
        return kwargs

    def init_learn(self) -> None:
        from rlframe.model.qac import squashed_gaussian

        super().init_learn()
        model, learn, self._squashed = self._cfg.model, self._cfg.learn, squashed_gaussian
        self._count, self._quantiles = critic_num(model), model.num_quantiles
        self._subset, self._dropped = learn.target_critics, learn.dropped_quantiles
        self._raises_mean = learn.actor_value == 'mean'
        self._support: torch.Tensor | None = None
        if model.n_atom is not None:
            self._support = torch.linspace(model.v_min, model.v_max, model.n_atom, device=self.device)  # [M]
        self._follows_critic = learn.target_follows == 'critic'
        self._entropy = EntropyWeight(learn, -float(math.prod(self.spec.action_space.shape)), self.device)
        self._alpha = self._entropy.value
        self.learned.append(self._entropy)
        if self._entropy.is_learned:
            self.optimizers['alpha'] = self._entropy.optimizer

    def _noises(self) -> Sequence[str]:
        return ('next_noise', 'noise') if self._is_turn else ('next_noise',)

    def columns(self, data: Batch) -> Rows:
        rows = super().columns(data)
        if self._subset is not None:
            rows['critics'] = self.tensor(self.rng.permutation(self._count)[: self._subset])
        return rows

    def _draw(
        self, obs: torch.Tensor, noise: torch.Tensor, **mode: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns actions of the actor, [B, A], and their log densities, [B]; ``mode``: whether it is in training."""
        mean, log_std = self.model.actor(obs, **mode)
        return self._squashed(mean, log_std, noise)

    def critic_loss(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, Metrics]:
        with torch.no_grad():
            next_action, log_prob = self._draw(rows['next_obs'], rows['next_noise'])
        value, next_value = self._values(rows, next_action)
        with torch.no_grad():
            if self._subset is not None:
                next_value = next_value[rows['critics']]
            reward, discount, bonus = rows['reward'], self.targets.discount(rows), self._alpha * log_prob
            if self._support is not None:
                target = self._categorical_target(next_value, reward - discount * bonus, discount)  # [B, M]
            elif self._quantiles == 1:
                target = reward + discount * (next_value.amin(0) - bonus)  # [B]
            else:
                kept = truncated(next_value, self._dropped)  # [B, K]
                target = reward[:, None] + discount[:, None] * (kept - bonus[:, None])
        if self._support is not None:
            log_probability = value.log_softmax(2)  # [critics, B, M]
            losses = -(target * log_probability).sum(2)
            means = log_probability.detach().exp() @ self._support  # [critics, B]
            return self._critic_losses(losses, means, target @ self._support, rows)
        if self._quantiles == 1:
            return self._critic_losses((target - value).square(), value, target, rows)
        losses = torch.stack([quantile_huber_loss(quantiles, target) for quantiles in value])
        return self._critic_losses(losses, value.mean(2), target.mean(1), rows)

    def _categorical_target(
        self, logit: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor
    ) -> torch.Tensor:
        """Returns the distribution of the critic whose mean is smallest, moved by reward and discount, [B, M].

        Args:
            logit: Of each critic and atom in the next state, float32 [critics, B, M].
            reward: float32 [B].
            discount: Weight of the next state, float32 [B].
        """
        assert self._support is not None
        probability = logit.softmax(2)
        smallest = (probability @ self._support).argmin(0)[None, :, None]  # [1, B, 1]
        chosen = probability.gather(0, smallest.expand(1, -1, len(self._support)))[0]
        return project(chosen, reward, discount, self._support)

    def actor_loss(self, rows: Rows) -> tuple[torch.Tensor, Metrics]:
        action, log_prob = self._draw(rows['obs'], rows['noise'], **self._actor_mode)
        value = self.model.critic(rows['obs'], action, **self._judging)
        if self._support is not None:
            value = value.softmax(2) @ self._support
        elif self._quantiles > 1:
            value = value.mean(2)
        value = value.mean(0) if self._raises_mean else value.amin(0)
        return (self._alpha * log_prob - value).mean(), {'entropy': -log_prob.detach().mean()}

    def _after_actor(self, metrics: Metrics) -> None:
        self._entropy.update(metrics)

    def explore(self, obs: torch.Tensor, noise: torch.Tensor, **settings: Any) -> torch.Tensor:
        mean, log_std = self._actor(obs)
        return torch.addcmul(mean, log_std.exp(), noise).tanh_()

    def _best_of(self, output: Any) -> torch.Tensor:
        mean: torch.Tensor = output[0]
        return mean.tanh()

    def forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        if not self._draws_in_eval:
            return super().forward_eval(obs, env_id)
        self._remember(env_id, is_evaluation=True)
        size = len(env_id), math.prod(self._action_shape)
        noise = self.tensor(self._eval_rng.standard_normal(size, np.float32))
        with torch.inference_mode():
            return self._output(self.explore(self.tensor(obs), noise), {})

    def _monitor_vars(self) -> list[str]:
        return [*super()._monitor_vars(), 'entropy', 'alpha']


def truncated(quantiles: torch.Tensor, dropped: int) -> torch.Tensor:
    """Returns the quantiles of all critics together, without the largest ones.

    Args:
        quantiles: float32 [critics, B, M].
        dropped: How many to leave out for each critic.

    Returns:
        float32 [B, critics * (M - dropped)], in no order.

    Source:
        Kuznetsov et al., Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional Quantile
        Critics (2020), section 3.
    """
    critics, _, count = quantiles.shape
    mixture = quantiles.transpose(0, 1).flatten(1)
    return mixture.topk(critics * (count - dropped), 1, largest=False, sorted=False).values


OFTEN: dict[str, Any] = dict(
    update_per_collect=160, actor_update_freq=20, target_follows='critic', actor_value='mean'
)
"""Section ``learn`` of SACs that do 20 updates of the critics for each env step, and one of the actor."""


@POLICY_REGISTRY.register('crossq')
class CrossQPolicy(SACPolicy):
    """SAC with batch norm and without target networks, which needs a fraction of the env steps.

    Source:
        Bhatt et al., CrossQ: Batch Normalization in Deep Reinforcement Learning for Greater Sample Efficiency and
        Simplicity (2024), section 4; the paper's critics have 2,048 units a layer.
    """

    config: dict[str, Any] = dict(
        model=dict(norm='batch'),
        learn=dict(
            target_network=False,
            actor_update_freq=3,
            adam_beta1=0.5,
            learning_rate_actor=1e-3,
            learning_rate_critic=1e-3,
            learning_rate_alpha=1e-3,
        ),
    )


@POLICY_REGISTRY.register('xqc')
class XQCPolicy(SACPolicy):
    """CrossQ with weights of length 1, categorical critics, and target networks.

    The paper's critics have four layers of 512 units and its actor four of 256, its learning rates fall to a tenth, and
    its target entropy is half of SAC's (``learn.target_entropy``).

    Source:
        Palenicek et al., XQC: Well-conditioned Optimization Accelerates Deep Reinforcement Learning (2026), section 4.
        Which weights have length 1 (all of actor and critics, outputs included), that target critics see both states,
        and the initial temperature, are those of the authors' code; its batch norm has no renormalisation.
    """

    config: dict[str, Any] = dict(
        normalize_reward=True,
        model=dict(norm='batch', weight_norm=True, n_atom=101, v_min=-5.0, v_max=5.0),
        learn=dict(update_per_collect=16, actor_update_freq=3, target_follows='critic', init_alpha=0.01),
    )


@POLICY_REGISTRY.register('tqc')
class TQCPolicy(SACPolicy):
    """SAC whose critics learn quantiles of the return, and whose targets leave out the largest ones.

    Source:
        Kuznetsov et al., Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional Quantile
        Critics (2020), algorithm 1; the paper has five critics.
    """

    config: dict[str, Any] = dict(
        model=dict(num_quantiles=25), learn=dict(dropped_quantiles=2, actor_value='mean')
    )


@POLICY_REGISTRY.register('redq')
class REDQPolicy(SACPolicy):
    """SAC with ten critics, of which two drawn ones make the target, and 20 updates for each env step.

    Source:
        Chen et al., Randomized Ensembled Double Q-Learning: Learning Fast Without a Model (2021), algorithm 1.
    """

    config: dict[str, Any] = dict(model=dict(n_critic=10), learn=OFTEN | dict(target_critics=2))


@POLICY_REGISTRY.register('droq')
class DroQPolicy(SACPolicy):
    """SAC whose critics have dropout and layer norm, and 20 updates for each env step.

    Source:
        Hiraoka et al., Dropout Q-Functions for Doubly Efficient Reinforcement Learning (2022), algorithm 2.
    """

    config: dict[str, Any] = dict(model=dict(norm='layer', dropout=0.01), learn=OFTEN)
