"""Random expert distillation: rows are paid by how well a network predicts random features of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from rlframe.data.timestep import Batch, FloatArray
from rlframe.policy.parts.optim import Optimizer
from rlframe.policy.parts.options import HIDDEN_SIZES
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.base import RewardModel, RewardModelConfig
from rlframe.reward_model.demonstrations import DATA, demonstrations
from rlframe.utils.field import option
from rlframe.utils.lazy import torch
from rlframe.utils.schema import FLAG, NETWORK, NUMBER, check_state
from rlframe.utils.seed import drawing_weights

AT_HOME = 0.1
"""Minus the logarithm of what a demonstration earns, on average, if no sigma is given."""


class REDConfig(RewardModelConfig):
    """Options of ``red``."""

    data: Any = option(DATA)
    normalize: bool = option(
        False, doc='whether what it pays is divided by its running standard deviation first', may_change=True
    )
    hidden_size_list: list[int] = option(HIDDEN_SIZES.having([128, 128]))
    size: int = option(128, range='[1, inf)', unit='numbers', doc='random features of a row')
    learning_rate: float = option(1e-3, range='(0, inf)', doc='of the predictor')
    batch_size: int = option(256, range='[1, inf)', unit='rows', doc='demonstrations of an update')
    updates: int = option(1000, range='[1, inf)', unit='updates', doc='updates, all before training')
    sigma: float | None = option(
        None,
        range='(0, inf)',
        doc='how fast what a row earns falls with the error of its prediction; None: a demonstration earns about 0.9',
    )


@REWARD_MODEL_REGISTRY.register('red')
class RED(RewardModel):
    """Random expert distillation.

    A network f' learns to predict a random one, f, on demonstrations, once, before training:

        r(s, a) = exp(-sigma |f'(s, a) - f(s, a)|^2)

    Source:
        Wang et al., Random Expert Distillation: Imitation Learning via Expert Policy Support Estimation (2019), algorithm 1.
    """

    _cfg: REDConfig
    replaces_reward = True

    def __init__(self, *args: Any, **options: Any) -> None:
        from rlframe.reward_model.reward_net import RewardNet, tensors

        super().__init__(*args, **options)
        cfg = self._cfg
        rows = demonstrations(cfg.data, self.spec)
        reads = 'obs', 'action'
        self._rows = rows
        self._is_trained = False
        self._read = partial(tensors, reads=reads, device=self.device)
        with drawing_weights(torch.Generator(), int(self.rng.integers(2**32))):
            target, predictor = (
                RewardNet(self.spec, rows, reads, cfg.hidden_size_list, cfg.size) for _ in range(2)
            )
        self.networks = torch.nn.ModuleDict({'target': target, 'predictor': predictor}).to(self.device)
        """The random network and the one that predicts its output."""
        self._sigma = cfg.sigma or 0.0

    def learn(self) -> dict[str, float]:
        """Trains the predictor, once."""
        cfg, rows = self._cfg, self._rows
        if self._is_trained:
            return {}
        optimizer = Optimizer(
            self.networks['predictor'], {'learning_rate': cfg.learning_rate, 'grad_clip_norm': None}
        )
        for _ in range(cfg.updates):
            batch = rows[self.rng.integers(len(rows), size=cfg.batch_size)]
            optimizer.step(self._squared(batch).mean())
        if cfg.sigma is None:
            self._sigma = AT_HOME / max(float(self.errors(rows).mean()), 1e-12)
        self._is_trained = True
        return {'sigma': self._sigma}

    def _squared(self, rows: Batch) -> torch.Tensor:
        """Returns the mean squared error of the prediction for each row, [B]."""
        columns = self._read(rows)
        with torch.no_grad():
            target = self.networks['target'](columns)
        error: torch.Tensor = (self.networks['predictor'](columns) - target).square().mean(1)
        return error

    def errors(self, rows: Batch) -> FloatArray:
        """Returns the error of the prediction for each row, float32 [M]."""
        with torch.inference_mode():
            return self._squared(rows).cpu().numpy()

    def reward(self, rows: Batch) -> FloatArray:
        paid: FloatArray = np.exp(-self._sigma * self.errors(rows))
        return paid

    def state_dict(self) -> dict[str, Any]:
        own = {'networks': self.networks.state_dict(), 'sigma': self._sigma, 'is_trained': self._is_trained}
        return super().state_dict() | own

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'networks': NETWORK, 'sigma': NUMBER, 'is_trained': FLAG})
        super().load_state_dict(state)
        self.networks.load_state_dict(state['networks'])
        self._sigma = state['sigma']
        self._is_trained = state['is_trained']
