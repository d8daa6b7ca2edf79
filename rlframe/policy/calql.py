"""Cal-QL: CQL whose values do not fall below the returns of the data, to go on in the env."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlframe.data.timestep import Batch
from rlframe.policy.cql import RETURN, CQLPolicy
from rlframe.policy.parts.demos import HALF
from rlframe.policy.parts.ding_names import DingNames
from rlframe.registry import POLICY_REGISTRY


@POLICY_REGISTRY.register('calql')
class CalQLPolicy(CQLPolicy):
    """Calibrated Q-learning: offline with CQL, then online with half of each batch from the data.

    CQL lowers the values of drawn actions, also below those of the behaviour that the data are from, which is unlearned first
    when it goes online. Here it lowers max(Q, V), where V are the Monte-Carlo returns of the rows. It collects whole episodes,
    whose returns are known; the return of an episode that was cut off ends there.

    Source:
        Nakamoto et al., Cal-QL: Calibrated Offline RL Pre-Training for Efficient Online Fine-Tuning (2023), eq. 5.1 and
        algorithm 1.
    """

    config: dict[str, Any] = dict(
        random_collect_size=0,
        collect=dict(
            n_sample=None,
            n_episode=1,
            collector=dict(type='episode', get_train_sample=True, reward_shaping=True),
        ),
        learn=dict(update_per_collect=200),
        other=HALF,
    )
    needs_data = True
    ding = DingNames()

    def _get_reward_shaping(self) -> Callable[[Batch], Batch]:
        """Returns what gives an episode the column of its returns."""
        return self._with_returns

    def _with_returns(self, episode: Batch) -> Batch:
        discount = self._cfg.discount_factor
        total = 0.0
        returns = np.zeros(len(episode), np.float32)
        for step in reversed(range(len(episode))):
            total = float(episode['reward'][step]) + discount * total
            returns[step] = total
        return episode.replace(**{RETURN: returns})
