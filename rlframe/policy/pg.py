"""PG: REINFORCE, the policy gradient by the returns of whole episodes, without a critic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from rlframe.data.faces import Metrics
from rlframe.data.returns import gae
from rlframe.data.timestep import Batch, EnvSpec
from rlframe.policy.base_policy import CollectConfig, LearnConfig, PolicyConfig, StochasticEval
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import DISCOUNT_FACTOR, ImageModel, Schedule, grad_clip_norm, learning_rate
from rlframe.policy.parts.sequences import Rows, apart_rows, real_rows, shuffled_batches, standardised
from rlframe.policy.ppo import ActorPolicy
from rlframe.policy.update import Loss, Update
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


class PGUpdate(Update):
    """The log-probabilities of actions, weighted by the returns behind them, and a bonus for entropy."""

    inputs: tuple[str, ...] = 'obs', 'action', 'return_'

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        from rlframe.model.distributions import distribution_for

        self.distribution = distribution_for(spec.action_space)

    def loss(self, rows: Rows) -> Loss:
        """Returns the negative log-probabilities of actions, weighted by returns, less the entropy bonus."""
        learn = self.cfg.learn
        return_ = rows['return_']
        # returns
        if learn.return_norm:
            own = standardised if self.ranks is None else self.ranks.standardised
            return_ = own(return_, 0)
        # policy gradient
        logit = self.masked(self.model.logit(rows['obs']), rows['obs'])
        log_prob, entropy = self.distribution.evaluate(logit, rows['action'])
        policy_loss = -(log_prob * return_).mean()
        entropy = entropy.mean()
        loss = policy_loss - learn.entropy_weight * entropy
        return Loss(loss, parts={'policy_loss': policy_loss, 'entropy': entropy})


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

    def default_model(self) -> str:
        return 'stochastic_actor'

    def forward_learn(self, data: Batch) -> Iterator[Callable[[], Metrics]]:
        order = self.tensor(self.rng.permutation(len(data)))
        size = self._cfg.learn.batch_size
        for rows in shuffled_batches(self.columns(data), order, size or len(data)):
            yield partial(self.train_step, rows)

    def get_train_sample(self, block: Batch) -> Batch:
        # the discounted sum of the rewards of an episode from each step on
        none = np.zeros_like(block['reward'])
        return_ = gae(block['reward'], none, none, apart_rows(block), self._cfg.collect.discount_factor, 1.0)
        # rows that are no padding
        columns = {name: block[name] for name in (*self.update.inputs, 'collect_iter') if name in block}
        real = real_rows(block)
        return Batch({name: column[real] for name, column in (columns | {'return_': return_}).items()})

    def _monitor_vars(self) -> list[str]:
        return [*super()._monitor_vars(), 'policy_loss', 'entropy']
