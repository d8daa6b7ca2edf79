"""FQF: IQN that also learns the fractions at which its quantiles describe the return."""

from __future__ import annotations

from typing import Any

from rlframe.policy.dqn import QPolicy
from rlframe.policy.iqn import FRACTIONS, STARTING, IQNModel
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import Schedule, learning_rate
from rlframe.policy.parts.outputs import Output, Quantiles, chosen
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.parts.starting import Facts, Settings
from rlframe.policy.qrdqn import QRDQNConfig, QRDQNLearn, QRDQNPolicy, QRDQNUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class FQFModel(IQNModel):
    """Section ``model`` of FQF."""

    num_quantiles: int = option(
        32,
        range='[2, inf)',
        unit='quantiles',
        doc='number of fractions that a network proposes for each state',
    )


class FQFLearn(QRDQNLearn):
    """Section ``learn`` of FQF."""

    learning_rate_fractions: Schedule = option(learning_rate(1e-7, 'Adam for the proposal of fractions'))
    entropy_weight: float = option(
        0.0,
        range='[0, inf)',
        doc='weight of the entropy of the proposed widths, which keeps fractions apart',
        may_change=True,
    )


class FQFConfig(QRDQNConfig):
    """Options of FQF."""

    model: FQFModel
    learn: FQFLearn


class FQFUpdate(QRDQNUpdate):
    """Quantiles in the middle between proposed fractions, and the loss of these fractions."""

    losses = {'quantile_loss': 'model', 'fraction_loss': 'fractions'}

    def output(self, network: Any, obs: Any, tau: torch.Tensor | None = None) -> Output:
        features = network.encoder(obs)
        _, middle, width = network.propose(features.detach())
        middle, width = middle.detach(), width.detach()  # quantiles do not move fractions
        return Quantiles(network.quantiles(features, middle), middle, width, self._kappa)

    def quantile_loss(self, rows: Rows) -> Loss:
        return self.loss(rows)

    def fraction_loss(self, rows: Rows) -> Loss:
        # fractions, by features that they do not train
        with torch.no_grad():
            features = self.model.encoder(rows['obs'])
        edge, middle, width = self.model.propose(features)  # [B, N - 1], [B, N], [B, N]
        width = width.clamp(min=1e-8)  # whose logarithm has a gradient
        # the derivative of the Wasserstein distance to the true distribution by each of them
        with torch.no_grad():
            on_edge = chosen(self.model.quantiles(features, edge), rows['action'])
            between = chosen(self.model.quantiles(features, middle), rows['action'])
            slope = 2 * on_edge - between[:, 1:] - between[:, :-1]
        distance = (slope * edge).sum(1)
        # entropy of the widths
        entropy = -(width * width.log()).sum(1)
        loss = self.targets.mean(distance - self.cfg.learn.entropy_weight * entropy, rows)
        return Loss(loss, {'fraction_entropy': entropy.detach().mean()})


@POLICY_REGISTRY.register('fqf')
class FQFPolicy(QPolicy):
    """IQN whose fractions are proposed for each state by a linear layer, so that they lie where they describe the return best.

    Actions are compared by the mean of the quantiles, each with the width of its fraction as its weight.

    Source:
        Yang et al., Fully Parameterized Quantile Function for Distributional Reinforcement Learning (2019), algorithm 1,
        eq. 5 and 8. Fractions are even in the beginning, and learned by Adam, there by RMSProp.
    """

    _cfg: FQFConfig
    network_arguments = FRACTIONS
    default_network = 'fraction_q_net'
    update_class = FQFUpdate
    ding = DingNames(
        options={
            'learn.learning_rate_quantile': 'learn.learning_rate',
            'learn.learning_rate_fraction': 'learn.learning_rate_fractions',
            'learn.ent_coef': 'learn.entropy_weight',
        },
        defaults={
            'other.replay_buffer.replay_buffer_size': 10_000,
            'model.dueling': False,
            'model.quantile_embedding_size': 128,
            'learn.learning_rate': 5e-5,
            'learn.learning_rate_fractions': 2.5e-9,
        },
        unused={'kappa': 'without effect in DI-engine as well; policy.learn.kappa is the option'},
    )
    toy = QPolicy.toy | dict(
        model=dict(num_quantiles=8, quantile_embedding_size=16),
        learn=QPolicy.toy['learn'] | dict(learning_rate_fractions=1e-3),
    )
    search_space = QRDQNPolicy.search_space
    solves = 'CartPole-v1', 60_000

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        found = super().starting(facts)
        return found | dict(model=found['model'] | STARTING)
