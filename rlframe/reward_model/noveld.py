"""NovelD: a step is worth how much newer its state is than the one before, at the first visit of an episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.timestep import Batch, FloatArray
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.network import NetworkConfig
from rlframe.reward_model.rnd import RND
from rlframe.reward_model.visits import EpisodeVisits, codes_of
from rlframe.utils.field import option
from rlframe.utils.lazy import torch
from rlframe.utils.schema import DICT, check_state


class NovelDConfig(NetworkConfig):
    """Options of ``noveld``."""

    scale: float = option(0.5, range='[0, inf)', doc='weight of the novelty of the state before')


@REWARD_MODEL_REGISTRY.register('noveld')
class NovelD(RND):
    """Pays for a step from a familiar to a novel state, the first time in an episode.

        r(s, s') = max(n(s') - c n(s), 0) if s' is visited for the first time in the episode, else 0

    n is the distance of RND's predictor from its target, and c is ``scale``.

    Source:
        Zhang et al., BeBold: Exploration Beyond the Boundary of Explored Regions (2020), eq. 3; NovelD: A Simple yet Effective
        Exploration Criterion (2021), section 3.
    """

    _cfg: NovelDConfig
    columns = 'obs', 'next_obs'
    is_stored = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._visits = EpisodeVisits()
        self._is_first = np.zeros(0, bool)  # of the rows that were just collected

    def novelty(self, obs: Any) -> torch.Tensor:
        """Returns the distance of the predictor from its target, float32 [B]."""
        wrong: torch.Tensor = self.network['predictor'](obs) - self.network['target'](obs)
        return wrong.square().sum(1).sqrt()

    def collected(self, rows: Batch) -> None:
        super().collected(rows)
        self._is_first = self._visits.count(codes_of([rows['next_obs']]), rows) == 1

    def reward(self, rows: Batch) -> FloatArray:
        scale = self._cfg.scale
        rise = self.by_pieces(rows, lambda c: self.novelty(c['next_obs']) - scale * self.novelty(c['obs']))
        return np.where(self._is_first, np.maximum(rise, 0.0), 0.0)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {'visits': self._visits.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'visits': DICT})
        super().load_state_dict(state)
        self._visits.load_state_dict(state['visits'])
