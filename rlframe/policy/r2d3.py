"""R2D3: R2D2 that draws a share of its sequences from demonstrations."""

from __future__ import annotations

from typing import Any

from rlframe.data.timestep import Batch
from rlframe.policy.parts.demos import IS_DEMO, MARGIN, MARGIN_WEIGHT, large_margin, marks_of
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.r2d2 import R2D2Config, R2D2Learn, R2D2Policy, R2D2Update
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.lazy import torch


class R2D3Learn(R2D2Learn):
    """Section ``learn`` of R2D3."""

    margin: float = MARGIN
    margin_weight: float = MARGIN_WEIGHT


class R2D3Config(R2D2Config):
    """Options of R2D3."""

    learn: R2D3Learn


class R2D3Update(R2D2Update):
    """R2D2 with a margin of demonstrated actions."""

    def loss(self, rows: Rows) -> Loss:
        loss = super().loss(rows)
        seen = rows['obs']
        if not self.cfg.learn.margin_weight:
            return loss
        value = self.masked(self.output(self.model, seen).mean(), seen.obs)[seen.row]
        gap = large_margin(value, rows['action'], self.cfg.learn.margin) * rows[IS_DEMO]
        margin: torch.Tensor = self.cfg.learn.margin_weight * self.targets.mean(gap, rows)
        parts = {'td_loss': loss.value, 'margin_loss': margin}
        return loss._replace(value=loss.value + margin, parts=parts)


@POLICY_REGISTRY.register('r2d3')
class R2D3Policy(R2D2Policy):
    """Recurrent replay distributed DQN from demonstrations: R2D2 with a demo ratio.

    A share of each batch, the demo ratio, are sequences of demonstrations, which are drawn by a priority of their own. Their
    recurrent states begin with zeros, so that ``burn_in`` matters. The margin is DQfD's; the paper has none
    (``margin_weight=0``).

    Source:
        Paine et al., Making Efficient Use of Demonstrations to Solve Hard Exploration Problems (2019), section 3.
    """

    _cfg: R2D3Config
    config: dict[str, Any] = dict(other=dict(replay_buffer=dict(init_share=0.25)))
    needs_data = True
    solves = None
    update_class = R2D3Update
    ding = DingNames(
        options=R2D2Policy.ding.options
        | {
            'learn.lambda2': 'learn.margin_weight',
            'learn.margin_function': 'learn.margin',
            'collect.pho': 'other.replay_buffer.init_share',
        },
        defaults=R2D2Policy.ding.defaults,
        unused=R2D2Policy.ding.unused
        | {
            'learn.per_train_iter_k': 'an expert acts from the first env step on',
            'learn.lambda1': 'returns over nstep are the only ones',
            'learn.lambda3': 'weights are not kept small',
            'learn.lambda_one_step_td': 'returns over nstep are the only ones',
        },
    )

    def columns(self, data: Batch) -> Rows:
        rows = super().columns(data)
        return rows | {IS_DEMO: self.tensor(marks_of(data))[rows['sequence']]}
