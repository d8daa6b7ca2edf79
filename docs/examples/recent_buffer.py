"""A custom replay buffer: the plain one, with a sampler that prefers fresh data."""

from __future__ import annotations

import numpy as np
from easydict import EasyDict

from rlframe.data import IntArray
from rlframe.registry import BUFFER_REGISTRY
from rlframe.utils.field import option
from rlframe.worker.replay_buffer import NaiveReplayBuffer, Sampler, Storage
from rlframe.worker.replay_buffer.options import BufferConfig


class GeometricAgeSampler(Sampler):
    """Draws transitions whose age is geometric with mean ``mean_age`` transitions."""

    def __init__(self, mean_age: float, rng: np.random.Generator) -> None:
        self._mean_age, self._rng = mean_age, rng

    def sample(self, size: int, storage: Storage) -> IntArray:
        age = self._rng.geometric(1 / self._mean_age, size) - 1
        return len(storage) - 1 - age % len(storage)  # [size], 0 is the oldest


class RecentConfig(BufferConfig):
    """Options of ``RecentReplayBuffer``."""

    mean_age: int = option(5000, range='[1, inf)', unit='transitions', doc='mean age of drawn transitions')


@BUFFER_REGISTRY.register('recent')
class RecentReplayBuffer(NaiveReplayBuffer):
    """Prefers fresh data: the age of a drawn transition is geometric with mean ``mean_age`` transitions."""

    _cfg: RecentConfig

    def _build_sampler(self, cfg: EasyDict) -> Sampler:
        return GeometricAgeSampler(self._cfg.mean_age, self._rng)
