"""SAC: an actor-critic whose actor is rewarded for entropy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Array
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.entropy import EntropyWeight
from rlframe.policy.parts.options import Schedule, learning_rate
from rlframe.policy.parts.outputs import Output
from rlframe.policy.parts.sections import StochasticEval
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac import ContinuousCollect, ContinuousModel, QACConfig, QACLearn, QACPolicy, QACUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


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


class ContinuousSACConfig(SACConfig):
    """Options of SAC for continuous actions."""

    model: ContinuousModel
    collect: ContinuousCollect


class SACUpdate(QACUpdate):
    """Soft actor-critic with a tanh-Gaussian actor."""

    logged = (*QACUpdate.logged, 'entropy', 'alpha')
    entropy: EntropyWeight
    """The weight of the entropy, alpha."""
    mode: Mapping[str, bool] = {}
    """How the actor reads the observations of its loss; see ``QAC``."""

    def init_learn(self) -> None:
        super().init_learn()
        self.entropy = EntropyWeight(self.cfg.learn, self.target_entropy(), self.device)
        if self.entropy.is_learned:
            self.optimizers['alpha'] = self.entropy.optimizer

    def target_entropy(self) -> float:
        """Returns the entropy to aim at, in nats, if no option says it."""
        return -float(math.prod(self.spec.action_space.shape or ()))

    def draws(self, rng: np.random.Generator, count: int) -> dict[str, Array]:
        names = ('next_noise', 'noise') if self.turn else ('next_noise',)
        return {name: self.noise(rng, count) for name in names}

    def act(self, obs: Any, noise: torch.Tensor, **mode: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns actions of the actor, [B, A], and their log densities, [B]; ``mode``: see ``QAC``."""
        from rlframe.model.qac import squashed_gaussian

        mean, log_std = self.model.actor(obs, **mode)
        return squashed_gaussian(mean, log_std, noise)

    def log_prob(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        """Returns the log densities of actions in [-1, 1], [B, A]: float32 [B]."""
        from rlframe.model.qac import noise_behind, squashed_gaussian

        mean, log_std = self.model.actor(obs)
        return squashed_gaussian(mean, log_std, noise_behind(mean, log_std, action))[1]

    def next_returns(self, rows: Rows, action: torch.Tensor) -> Output:
        """Returns what a target makes of actions in the next states, by the target critics."""
        return self.returns(self.targets.network['critic'](rows['next_obs'], action)).smallest()

    def value_of(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        """Returns the value that the actor is to raise, float32 [B], by the critics."""
        return self.returns(self.model.critic(obs, action)).mean().amin(0)

    def critic_loss(self, rows: Rows) -> Loss:
        """Returns the distance of the values of the actions taken to their target."""
        # target
        with torch.no_grad():
            next_action, log_prob = self.act(rows['next_obs'], rows['next_noise'])
            next_value = self.next_returns(rows, next_action)
            cost = self.entropy.value * log_prob
            target = next_value.target(rows['reward'], self.targets.discount(rows), cost)
        # critics
        value = self.returns(self.model.critic(rows['obs'], rows['action']))
        return self.fitted(value, target, rows)

    def actor_loss(self, rows: Rows) -> Loss:
        """Returns minus the value of the actor's actions, and of their entropy."""
        action, log_prob = self.act(rows['obs'], rows['noise'], **self.mode)
        value = self.value_of(rows['obs'], action)
        loss = (self.entropy.value * log_prob - value).mean()
        return Loss(loss, {'entropy': -log_prob.detach().mean()})

    def after(self, name: str, loss: Loss) -> Metrics:
        # temperature
        return self.entropy.update(loss.metrics) if name == 'actor_loss' else {}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | self.entropy.state_dict()

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.entropy.load_state_dict(state)


@POLICY_REGISTRY.register('sac')
class SACPolicy(QACPolicy):
    """Soft actor-critic with a tanh-Gaussian actor.

    Source:
        Haarnoja et al., Soft Actor-Critic Algorithms and Applications (2018), algorithm 1, eq. 5, 7 and 18; the
        temperature is learned by its logarithm, as the authors' code does.
    """

    _cfg: ContinuousSACConfig
    actor_kind = 'gaussian'
    update_class = SACUpdate
    ding = DingNames(
        defaults={
            'learn.update_per_collect': 1,
            'other.replay_buffer.replay_buffer_size': 1_000_000,
            'random_collect_size': 10_000,
            'collect.n_sample': 1,
        }
    )
    toy = QACPolicy.toy | dict(learn=QACPolicy.toy['learn'] | dict(learning_rate_alpha=1e-2))
    solves: tuple[str, int] | None = ('Pendulum-v1', 8_000)
