"""Primal Wasserstein imitation learning: each step is paid by its distance to the demonstrations that are still unused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.timestep import Batch, EnvSpec, FloatArray
from rlframe.errors import ConfigError
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.base import RewardModel, RewardModelConfig
from rlframe.reward_model.demonstrations import DATA, demonstrations
from rlframe.utils.field import option
from rlframe.utils.schema import DICT, array, check_state, part


class PWILConfig(RewardModelConfig):
    """Options of ``pwil``."""

    data: Any = option(DATA)
    normalize: bool = option(
        False, doc='whether what it pays is divided by its running standard deviation first', may_change=True
    )
    every: int = option(20, range='[1, inf)', unit='rows', doc='of so many demonstrations one is kept')
    horizon: int | None = option(
        None, range='[1, inf)', unit='env steps', doc="steps of an episode, T; None: the env's time limit"
    )
    scale: float = option(5.0, range='(0, inf)', doc='largest reward, alpha', may_change=True)
    sharpness: float = option(
        5.0, range='(0, inf)', doc='how fast it falls with the distance, beta', may_change=True
    )


def transport(distance: FloatArray, left: FloatArray, mass: float) -> float:
    """Moves mass to the nearest demonstrations that have room, and returns the cost.

    Args:
        distance: Distance to each demonstration, [D].
        left: Room that each has, [D]; it is changed.
        mass: Mass to move. What finds no room is not moved.

    Source:
        Dadashi et al., algorithm 1.
    """
    open_ = np.flatnonzero(left > 0)
    order = open_[np.argsort(distance[open_], kind='stable')]
    before = np.concatenate([[0.0], np.cumsum(left[order])[:-1]])
    moved = np.clip(mass - before, 0.0, left[order])
    left[order] -= moved
    return float(moved @ distance[order])


@REWARD_MODEL_REGISTRY.register('pwil')
class PWIL(RewardModel):
    """Primal Wasserstein imitation learning.

    In each episode, a step moves its mass, 1 / T, to the nearest demonstrations with room, each of which has 1 / D of it. By the
    cost c of that, the Euclidean distances of standardised observations and actions:

        r = alpha exp(-beta T c / sqrt(|S| + |A|))

    A step behind the T-th finds no room, and earns nothing.

    Source:
        Dadashi et al., Primal Wasserstein Imitation Learning (2021), algorithm 1.
    """

    _cfg: PWILConfig
    replaces_reward = True
    is_stored = True

    def __init__(self, *args: Any, **options: Any) -> None:
        from rlframe.reward_model.reward_net import Features

        super().__init__(*args, **options)
        rows = demonstrations(self._cfg.data, self.spec)
        self._features = Features(self.spec, rows)
        self._expert = self._features.vectors(rows[:: self._cfg.every])  # [D, size]
        self._horizon = self._cfg.horizon or self.spec.max_episode_steps or 1  # ``check_spec`` asks for one
        self._left: dict[int, FloatArray] = {}  # room in the running episode of each env, [D]
        self._paid: FloatArray = np.zeros(0)  # for the rows that were just collected

    @classmethod
    def check_spec(cls, cfg: Any, spec: EnvSpec) -> list[ConfigError]:
        if cfg.horizon is not None or spec.max_episode_steps is not None:
            return []
        message = f'{spec.name} has no time limit, by which a step of an episode is weighed'
        return [ConfigError(message, where='horizon', got=None, expected='steps of an episode')]

    def collected(self, rows: Batch) -> None:
        vectors = self._features.vectors(rows)
        self._paid = np.zeros(len(rows), np.float32)
        steps = zip(rows['env_id'].tolist(), rows['episode_step'].tolist(), strict=True)
        for row, (env, step) in enumerate(steps):
            if step == 0 or env not in self._left:
                self._left[env] = np.full(len(self._expert), 1 / len(self._expert))
            self._paid[row] = self._step(vectors[row], self._left[env])

    def _step(self, vector: FloatArray, left: FloatArray) -> float:
        """Returns the reward of a step, and takes the room that it fills."""
        cfg = self._cfg
        if left.sum() < 0.5 / self._horizon:
            return 0.0
        distance = np.linalg.norm(self._expert - vector, axis=1)
        cost = transport(distance, left, 1 / self._horizon)
        return float(cfg.scale * np.exp(-cfg.sharpness * self._horizon * cost / np.sqrt(len(vector))))

    def reward(self, rows: Batch) -> FloatArray:
        return self._paid

    def state_dict(self) -> dict[str, Any]:
        left = {str(env): room.copy() for env, room in self._left.items()}
        return super().state_dict() | {'left': left}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'left': DICT})
        super().load_state_dict(state)
        kind = array('f', (len(self._expert),))
        with part('left'):
            check_state(state['left'], dict.fromkeys(state['left'], kind))
        self._left = {int(env): room.copy() for env, room in state['left'].items()}
