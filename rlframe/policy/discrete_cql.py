"""CQL for discrete actions: DQN from recorded data, which is to value actions less that are not in them."""

from __future__ import annotations

from typing import Any

from rlframe.policy.dqn import DQNConfig, DQNLearn, DQNUpdate, QPolicy
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.outputs import chosen
from rlframe.policy.parts.recorded import FROM_DATA
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class DiscreteCQLLearn(DQNLearn):
    """Section ``learn`` of CQL for discrete actions."""

    conservative_weight: float = option(
        1.0,
        range='[0, inf)',
        doc='weight of what other actions are worth more than recorded ones; 0: DQN',
        may_change=True,
    )


class DiscreteCQLConfig(DQNConfig):
    """Options of CQL for discrete actions."""

    learn: DiscreteCQLLearn


class DiscreteCQLUpdate(DQNUpdate):
    """DQN with a loss of what unseen actions promise."""

    def loss(self, rows: Rows) -> Loss:
        # DQN
        output = self.output(self.model, rows['obs'])
        with torch.no_grad():
            target = self.target(rows)
        self._check_agree(output, target)
        fit = output.gather(rows['action']).fit(target, self.targets.weight(rows))
        # what is not recorded should not promise more
        value = self.masked(output.mean(), rows['obs'])
        gap = self.targets.mean(value.logsumexp(1) - chosen(value, rows['action']), rows)
        loss = fit.loss + self.cfg.learn.conservative_weight * gap
        return Loss(loss, fit.metrics() | {'conservative_gap': gap.detach()}, fit.error)


@POLICY_REGISTRY.register('discrete_cql')
class DiscreteCQLPolicy(QPolicy):
    """Conservative Q-learning, CQL(H), for discrete actions.

    To the loss of DQN it adds alpha (log Σ_b exp Q(s, b) - Q(s, a)) for the recorded action a, over the actions that a mask allows.

    Source:
        Kumar et al., Conservative Q-Learning for Offline Reinforcement Learning (2020), eq. 4.
    """

    _cfg: DiscreteCQLConfig
    config: dict[str, Any] = dict(collect=FROM_DATA)
    update_class = DiscreteCQLUpdate
    ding = DingNames(
        options={'learn.min_q_weight': 'learn.conservative_weight'},
        unused={'model.num_quantiles': 'values are means; those of DI-engine are quantiles'},
    )
    search_space = QPolicy.search_space.without(
        'learn.update_per_collect', source=f'{QPolicy.search_space.source}; one update for each batch of data'
    )
    toy = dict(
        discount_factor=0.5,
        learn=dict(batch_size=64, learning_rate=3e-3, target_update_freq=50),
    )
