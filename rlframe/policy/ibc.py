"""IBC: implicit behaviour cloning, by an energy whose minimum over actions is what the data show."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.timestep import Array, Batch, IntArray
from rlframe.policy.base_policy import Policy
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import (
    BATCH_SIZE,
    HIDDEN_SIZES,
    ImageModel,
    Schedule,
    grad_clip_norm,
    learning_rate,
)
from rlframe.policy.parts.recorded import FROM_DATA
from rlframe.policy.parts.sections import LearnConfig, PolicyConfig
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.update import Loss, Update
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class IBCModel(ImageModel):
    """Section ``model`` of implicit behaviour cloning."""

    encoder_hidden_size_list: list[int] = option(HIDDEN_SIZES.having([256, 256]))
    samples: int = option(
        256, range='[1, inf)', unit='actions', doc='actions that are compared in an env step'
    )
    rounds: int = option(
        3, range='[1, inf)', unit='rounds', doc='rounds of comparison, each among actions that are closer'
    )
    spread: float = option(
        0.33,
        range='(0, inf)',
        unit='half the range of an action',
        doc='standard deviation of noise on the actions of the second round; half of it in each later one',
    )


class IBCLearn(LearnConfig):
    """Section ``learn`` of implicit behaviour cloning."""

    batch_size: int = option(BATCH_SIZE.having(256))
    learning_rate: Schedule = option(learning_rate(1e-3, 'Adam', over='env steps that were read'))
    grad_clip_norm: float | None = option(grad_clip_norm())
    negatives: int = option(
        64, range='[1, inf)', unit='actions', doc='drawn actions beside each recorded one'
    )


class IBCConfig(PolicyConfig):
    """Options of implicit behaviour cloning."""

    model: IBCModel
    learn: IBCLearn


class IBCUpdate(Update):
    """The likelihood of the recorded action among drawn ones."""

    inputs = 'obs', 'action'
    logged = (*Update.logged, 'accuracy')

    def draws(self, rng: np.random.Generator, count: int) -> dict[str, Array]:
        from rlframe.data.composite import unit_size

        size = count, self.cfg.learn.negatives, unit_size(self.spec.action_space)
        return {'drawn': rng.random(size, np.float32) * 2 - 1}

    def loss(self, rows: Rows) -> Loss:
        """Returns the cross entropy of the recorded action, by its energy and those of uniform ones."""
        actions = torch.cat([rows['action'][:, None], rows['drawn']], 1)
        logit = -self.model.energy(rows['obs'], actions)
        loss = (logit.logsumexp(1) - logit[:, 0]).mean()
        is_best = (logit[:, 0] >= logit.amax(1)).float()
        return Loss(loss, {'accuracy': is_best.mean()})


@POLICY_REGISTRY.register('ibc')
class IBCPolicy(Policy):
    """Implicit behaviour cloning.

    A network E(s, a) learns to be least for the recorded action among drawn ones. The policy searches its minimum without
    derivatives: from uniform actions it takes those of low energy more often, moves them by noise, and repeats this with less
    noise. The numbers that it searches by are drawn once.

    Source:
        Florence et al., Implicit Behavioral Cloning (2021), eq. 2, appendix B.1, algorithm 1.
    """

    _cfg: IBCConfig
    config: dict[str, Any] = dict(collect=FROM_DATA)
    supported_actions = 'Box'
    default_network = 'energy'
    update_class = IBCUpdate
    ding = DingNames(
        options={'learn.optim.learning_rate': 'learn.learning_rate'},
        unused={
            'model.stochastic_optim': 'the search is without derivatives',
            'learn.optim': "Adam's defaults",
            'continuous': 'read from the spaces of the env',
        },
    )
    toy: dict[str, Any] = dict(learn=dict(batch_size=64, learning_rate=3e-3))

    def columns(self, data: Batch) -> Rows:
        return super().columns(data.replace(action=self.actions.from_env(np.asarray(data['action']))))

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the action of the least energy that is found, float32 [B, A]."""
        best: torch.Tensor = self.model(obs)
        return best

    def forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        with torch.inference_mode():
            return self.actions.batch(self.best_action(self.tensor(obs)).cpu().numpy())
