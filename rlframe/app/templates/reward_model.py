"""A custom reward model: it pays for states that differ from the one before.

    rlframe train -c cartpole_ppo "import_names=['new_reward_model']" "reward_model=dict(type='new_reward_model', weight=0.1)"

A reward model sees rows in the order of time of each env. Other methods that it may define: collected (takes new rows), learn (one
training on them), state_dict and load_state_dict (what its next calls depend on), check_spec (which envs it can pay for).
"""

from typing import Any

import numpy as np

from rlframe.data import Batch
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.base import RewardModel
from rlframe.utils.field import Field


@REWARD_MODEL_REGISTRY.register('new_reward_model')
class NewRewardModel(RewardModel):
    """Pays the distance between two observations of numbers, up to ``most``."""

    _cfg: Any
    # an option: reward_model.new_reward_model.most=2.0
    config = dict(most=Field(1.0, range='(0, inf)', doc='largest distance that is paid'))

    def reward(self, rows: Batch) -> Any:
        """Returns what it pays for rows, [M]."""
        moved = np.abs(rows['next_obs'] - rows['obs']).reshape(len(rows), -1).sum(1)
        return np.minimum(moved, self._cfg.most)
