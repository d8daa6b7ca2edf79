"""PG: REINFORCE, the policy gradient by the returns of whole episodes, without a critic."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rlframe.data.faces import Metrics
from rlframe.data.returns import gae
from rlframe.data.timestep import Batch
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import DISCOUNT_FACTOR, ImageModel, Schedule, grad_clip_norm, learning_rate
from rlframe.policy.parts.sections import CollectConfig, LearnConfig, PolicyConfig, StochasticEval
from rlframe.policy.parts.sequences import Rows, apart_rows, epochs_of, real_samples
from rlframe.policy.ppo import ActorPolicy, ActorUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class PGModel(ImageModel):
    """Section ``model`` of PG."""

    log_std_init: float = option(
        0.0,
        range='[-20, 2]',
        doc='logarithm of the first standard deviation of continuous actions, in units of [-1, 1]',
    )


class PGLearn(LearnConfig):
    """Section ``learn`` of PG."""

    batch_size: int | None = option(
        None,
        range='[1, inf)',
        unit='transitions',
        doc='size of the batch of one update; None: all of the round',
        may_change=True,
    )
    learning_rate: Schedule = option(learning_rate(3e-3))
    return_norm: bool = option(
        True,
        doc='whether the returns of a batch get mean 0 and standard deviation 1, in place of a baseline',
        may_change=True,
    )
    entropy_weight: float = option(0.01, range='[0, inf)', doc='weight of the entropy bonus', may_change=True)
    grad_clip_norm: float | None = option(grad_clip_norm(default=5.0))


class PGCollect(CollectConfig):
    """Section ``collect`` of PG."""

    discount_factor: float = option(DISCOUNT_FACTOR)


class PGConfig(PolicyConfig):
    """Options of PG."""

    model: PGModel
    learn: PGLearn
    collect: PGCollect
    eval: StochasticEval


class PGUpdate(ActorUpdate):
    """The log-probabilities of actions, weighted by the returns behind them, and a bonus for entropy."""

    inputs: tuple[str, ...] = 'obs', 'action', 'return_'
    logged = (*ActorUpdate.logged, 'policy_loss', 'entropy')

    def loss(self, rows: Rows) -> Loss:
        """Returns the loss of the actor less the entropy bonus."""
        learn = self.cfg.learn
        return_ = self.standardised(rows['return_']) if learn.return_norm else rows['return_']
        log_prob, entropy = self.distribution.evaluate(self.logit(rows['obs']), rows['action'])
        policy_loss, metrics = self.policy_loss(log_prob, return_, rows)
        entropy = entropy.mean()
        loss = policy_loss - learn.entropy_weight * entropy
        return Loss(loss, metrics, parts={'policy_loss': policy_loss, 'entropy': entropy})

    def policy_loss(
        self, log_prob: torch.Tensor, return_: torch.Tensor, rows: Rows
    ) -> tuple[torch.Tensor, Metrics]:
        """Returns the negative log-probabilities of actions, [B], weighted by returns, [B], and values to log."""
        return -(log_prob * return_).mean(), {}


@POLICY_REGISTRY.register('pg')
class PGPolicy(ActorPolicy):
    """REINFORCE: a policy gradient by the returns of whole episodes, with each row of a round once.

    The collector 'episode' (with ``collect.n_episode``) gives whole episodes. One that the end of a round of ``n_sample`` cuts
    counts with the rewards that it has so far, as one does that a time limit cuts.

    Source:
        Williams, Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning (1992), eq. 11;
        Sutton & Barto, Reinforcement Learning (2018), section 13.3.
    """

    _cfg: PGConfig
    config = dict(collect=dict(n_sample=2048))
    default_network = 'stochastic_actor'
    update_class = PGUpdate
    ding = DingNames(
        options={'deterministic_eval': 'eval.deterministic'},
        defaults={
            'model.encoder_hidden_size_list': [128, 128, 64],
            'learn.learning_rate': 1e-3,
            'learn.return_norm': False,
        },
    )
    toy = dict(learn=dict(batch_size=None, learning_rate=1e-2), collect=dict(n_sample=128))
    solves = 'CartPole-v1', 80_000

    def forward_learn(self, data: Batch) -> Iterator[Callable[[], Metrics]]:
        return epochs_of(self, self.columns(data), 1)

    def get_train_sample(self, block: Batch) -> Batch:
        # the discounted sum of the rewards of an episode from each step on
        none = np.zeros_like(block['reward'])
        return_ = gae(block['reward'], none, none, apart_rows(block), self._cfg.collect.discount_factor, 1.0)
        return real_samples(block, self.update.inputs, {'return_': return_})
