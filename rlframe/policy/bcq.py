"""BCQ: an actor-critic from recorded data that chooses among actions which an autoencoder of the data makes."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.timestep import Array
from rlframe.policy.ddpg import DDPGConfig, DDPGLearn
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import Schedule, learning_rate, without_core
from rlframe.policy.parts.outputs import Values
from rlframe.policy.parts.recorded import FROM_DATA
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac import ContinuousModel, QACPolicy, QACUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


def _acts_by_critics(value: Any) -> str:
    """Says that critics cannot see more than the actor."""
    return 'None: bcq acts by its critics, so all that they read is there in evaluations'


class BCQModel(ContinuousModel):
    """Section ``model`` of BCQ."""

    critic_obs: str | None = option(None, doc='always None: it acts by its critics', check=_acts_by_critics)

    phi: float = option(
        0.05,
        range='[0, 2]',
        unit='half the range of an action',
        doc='largest change of an action of the autoencoder',
    )
    choices: int = option(
        100, range='[1, inf)', unit='actions', doc='actions that it takes the best of when it acts'
    )


class BCQLearn(DDPGLearn):
    """Section ``learn`` of BCQ."""

    learning_rate_vae: Schedule = option(learning_rate(1e-3, 'Adam for the autoencoder'))
    num_actions: int = option(
        10, range='[1, inf)', unit='actions', doc='actions that a target takes the best of'
    )
    least_weight: float = option(
        0.75,
        range='[0, 1]',
        doc='weight of the smaller value in a target; the larger one has the rest',
        may_change=True,
    )


class BCQConfig(DDPGConfig):
    """Options of BCQ."""

    model: BCQModel
    learn: BCQLearn


class BCQUpdate(QACUpdate):
    """An autoencoder of recorded actions, critics of the best of its actions, and an actor that changes them a little."""

    losses = {'vae_loss': 'vae', 'critic_loss': 'critic', 'actor_loss': 'actor'}
    target_parts = ('actor', 'critic')

    def is_due(self, name: str, turn: bool) -> bool:
        return turn or name != 'actor_loss'

    def draws(self, rng: np.random.Generator, count: int) -> dict[str, Array]:
        latent = 2 * self.action_size
        sizes = {
            'latent': (count,),
            'acted_latent': (count, 1),
            'next_latent': (count, self.cfg.learn.num_actions),
        }
        return {name: rng.standard_normal((*size, latent), np.float32) for name, size in sizes.items()}

    def vae_loss(self, rows: Rows) -> Loss:
        """Returns the distance of decoded to recorded actions, and that of the latent numbers to normal ones."""
        model = self.model
        distance, divergence = model.vae(model.features_of(rows['obs']), rows['action'], rows['latent'])
        return Loss(distance + 0.5 * divergence)

    def critic_loss(self, rows: Rows) -> Loss:
        """Returns the distance of the values of the actions taken to their target."""
        network = self.targets.network
        # target
        with torch.no_grad():
            action = self.model.made(network['actor'], rows['next_obs'], rows['next_latent'])
            value = network['critic'].values_of_several(rows['next_obs'], action)
            least = self.cfg.learn.least_weight
            mixed = least * value.amin(0) + (1 - least) * value.amax(0)
            target = Values(mixed.amax(1)).target(rows['reward'], self.targets.discount(rows))
        # critics
        value = self.model.critic(rows['obs'], rows['action'])
        return self.fitted(Values(value), target, rows)

    def actor_loss(self, rows: Rows) -> Loss:
        """Returns minus the value of changed actions."""
        action = self.model.made(self.model.actor, rows['obs'], rows['acted_latent'])[:, 0]
        return Loss(-self.model.critic(rows['obs'], action, count=1).mean())


@POLICY_REGISTRY.register('bcq')
class BCQPolicy(QACPolicy):
    """Batch-constrained deep Q-learning.

    An autoencoder makes actions that the data could hold, an actor changes each by at most ``model.phi``, and the policy takes
    the one of the highest value. The latent numbers that it acts by are drawn once.

    Source:
        Fujimoto et al., Off-Policy Deep Reinforcement Learning without Exploration (2019), algorithm 1.
    """

    _cfg: BCQConfig
    config: dict[str, Any] = dict(collect=FROM_DATA)
    default_network = 'bcq'
    update_class = BCQUpdate
    checks = (without_core('the autoencoder has no memory'),)
    ding = DingNames(
        options={'learn.lmbda': 'learn.least_weight'},
        defaults={
            'learn.batch_size': 100,
            'learn.learning_rate_actor': 3e-4,
            'learn.learning_rate_critic': 3e-4,
            'learn.learning_rate_vae': 3e-4,
        },
        unused={'learn.learning_rate_alpha': 'without effect in DI-engine as well'},
    )
    toy: dict[str, Any] = dict(
        discount_factor=0.5,
        model=dict(phi=0.2),
        learn=dict(
            batch_size=64, learning_rate_actor=3e-3, learning_rate_critic=3e-3, learning_rate_vae=3e-3
        ),
    )

    def acted(self, obs: torch.Tensor) -> Any:
        return self.model(obs)
