"""DQfD: DQN from demonstrations, whose actions are to have a margin over all others."""

from __future__ import annotations

from typing import Any

from rlframe.data.timestep import Array, Batch, TimeStep
from rlframe.policy.dqn import DoubleConfig, DQNLearn, DQNUpdate, QPolicy
from rlframe.policy.parts.demos import HALF, IS_DEMO, MARGIN, MARGIN_WEIGHT, large_margin
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

FIRST = ('reward', 'next_obs', 'terminated')
"""Columns that a window of several rewards replaces by those of its end; as ``first_...`` rows keep their own."""


class DQfDLearn(DQNLearn):
    """Section ``learn`` of DQfD."""

    margin: float = MARGIN
    margin_weight: float = MARGIN_WEIGHT
    nstep_weight: float = option(
        1.0, range='[0, inf)', doc='weight of the loss of returns over nstep', may_change=True
    )
    l2_weight: float = option(
        1e-5, range='[0, inf)', doc='weight of the sum of all squared weights', may_change=True
    )
    demo_priority: float = option(
        1.0, range='[0, inf)', doc='added to the priorities of demonstrations', may_change=True
    )


class DQfDConfig(DoubleConfig):
    """Options of DQfD."""

    learn: DQfDLearn


class DQfDUpdate(DQNUpdate):
    """DQN with returns over one and several steps, a margin of demonstrated actions, and small weights."""

    inputs = (*DQNUpdate.inputs, IS_DEMO, *(f'first_{name}' for name in FIRST))

    def loss(self, rows: Rows) -> Loss:
        """Returns J = J_DQ + lambda_1 J_n + lambda_2 J_E + lambda_3 J_L2."""
        learn = self.cfg.learn
        one_step = super().loss(self.first_step(rows))
        parts = {
            'one_step_loss': one_step.value,
            'margin_loss': learn.margin_weight * self.margin_loss(rows),
            'l2_loss': learn.l2_weight * sum(weight.square().sum() for weight in self.model.parameters()),
        }
        if 'first_reward' in rows:
            parts['nstep_loss'] = learn.nstep_weight * super().loss(rows).value
        error = one_step.error.abs() + learn.demo_priority * rows[IS_DEMO]  # type: ignore[union-attr]  # DQN has one
        return Loss(sum(parts.values()), one_step.metrics, error, parts)

    def first_step(self, rows: Rows) -> Rows:
        """Returns transitions over one step, of those over several."""
        if 'first_reward' not in rows:
            return rows
        rest = {name: column for name, column in rows.items() if name != 'value_gamma'}
        return rest | {name: rows[f'first_{name}'] for name in FIRST}

    def margin_loss(self, rows: Rows) -> torch.Tensor:
        """Returns the mean over the batch of how far demonstrations are from their margin; other rows count as 0."""
        value = self.masked(self.output(self.model, rows['obs']).mean(), rows['obs'])
        return self.targets.mean(
            large_margin(value, rows['action'], self.cfg.learn.margin) * rows[IS_DEMO], rows
        )


@POLICY_REGISTRY.register('dqfd')
class DQfDPolicy(QPolicy):
    """Deep Q-learning from demonstrations.

    A share of each batch is from demonstrations (``replay_buffer.init_from``, or an expert), which stay in the replay buffer.
    Within its share, a demonstration is drawn by its priority, with a bonus.

    Source:
        Hester et al., Deep Q-learning from Demonstrations (2018), eq. 1 to 3. Shares of a batch in place of a common
        priority: Paine et al., Making Efficient Use of Demonstrations to Solve Hard Exploration Problems (2019), section 3.
    """

    _cfg: DQfDConfig
    config: dict[str, Any] = dict(priority=True, priority_IS_weight=True, nstep=10, other=HALF)
    needs_data = True
    update_class = DQfDUpdate
    ding = DingNames(
        options={
            'learn.lambda1': 'learn.nstep_weight',
            'learn.lambda2': 'learn.margin_weight',
            'learn.lambda3': 'learn.l2_weight',
            'learn.margin_function': 'learn.margin',
            'collect.pho': 'other.replay_buffer.init_share',
        },
        defaults={'discount_factor': 0.99},
        unused={
            'learn.expert_replay_buffer_size': 'all demonstrations are kept',
            'learn.per_train_iter_k': 'an expert acts from the first env step on',
        },
    )
    toy = QPolicy.toy | dict(nstep=2, priority=False, priority_IS_weight=False)

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        rows = super().process_transition(obs, output, timestep)
        if self._nstep == 1:
            return rows
        return rows | {f'first_{name}': rows[name] for name in FIRST}
