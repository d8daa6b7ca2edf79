"""D-REX: episodes are ranked by the noise that is put into a clone of the demonstrator."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.faces import CollectMode
from rlframe.data.timestep import Array, Batch, IntArray
from rlframe.registry import POLICY_REGISTRY, REWARD_MODEL_REGISTRY
from rlframe.reward_model.demonstrations import recorded_rows
from rlframe.reward_model.trex import TREX, TREXConfig
from rlframe.utils.field import ABSENT, option

CLONING: dict[str, Any] = dict(cuda=False, learn=dict(learning_rate=1e-3))
"""Options of the clone."""
BATCH = 256
"""Demonstrations of an update of the clone."""


def check_noise(value: Any) -> str:
    """Says which shares are valid if these are not; else returns an empty string."""
    fine = len(set(value)) > 1 and all(isinstance(share, int | float) and 0 <= share <= 1 for share in value)
    return '' if fine else 'at least two different numbers in [0, 1]'


class DREXConfig(TREXConfig):
    """Options of ``drex``."""

    noise: list[float] = option(
        [1.0, 0.75, 0.5, 0.25, 0.0],
        doc='shares of random actions: the more there are, the worse an episode',
        check=check_noise,
    )
    episodes_per_noise: int = option(5, range='[1, inf)', unit='episodes', doc='episodes of each share')
    clone_updates: int = option(
        1000,
        range='[1, inf)',
        unit='updates',
        doc=f'updates that clone the demonstrator, of {BATCH} rows each',
    )


def noisy(mode: CollectMode, drawn: CollectMode, share: float, rng: np.random.Generator) -> CollectMode:
    """Returns a collect face that takes an action of ``drawn`` with the probability ``share``, else one of ``mode``."""

    def forward(obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        action = np.array(mode.forward(obs, env_id)['action'])
        is_random = rng.random(len(env_id)) < share
        action[is_random] = drawn.forward(obs, env_id)['action'][is_random]
        return Batch.unchecked({'action': action}, len(action))

    return mode._replace(forward=forward)


@REWARD_MODEL_REGISTRY.register('drex')
class DREX(TREX):
    """Disturbance-based reward extrapolation: T-REX whose ranking is made of demonstrations alone.

    Once, before training, it clones the demonstrator, plays episodes of the clone with more and more random actions in the
    envs of the run, and ranks them by the share of those.

    Source:
        Brown et al., Better-than-Demonstrator Imitation Learning via Automatically-Ranked Demonstrations (2019), algorithm 1.
    """

    _cfg: DREXConfig
    config = dict(ranked_by=ABSENT)
    needs_episodes = True

    def read(self) -> Batch:
        self._rows = recorded_rows(self._cfg.data, self.spec)
        return self._rows

    def ranked(self) -> list[list[Batch]]:
        assert self.play is not None  # RewardModels gives it to models that need it
        cfg = self._cfg
        # clone
        seed = int(self.rng.integers(2**32))
        clone = POLICY_REGISTRY.get('bc')(CLONING, self.spec, seed=seed)
        for _ in range(cfg.clone_updates):
            clone.learn_mode.forward(self._rows[self.rng.integers(len(self._rows), size=BATCH)])
        # play
        drawn = clone.random_collect_mode(self.rng)
        shares = sorted(set(cfg.noise), reverse=True)
        modes = [noisy(clone.collect_mode, drawn, share, self.rng) for share in shares]
        return [self.play(mode, cfg.episodes_per_noise) for mode in modes]
