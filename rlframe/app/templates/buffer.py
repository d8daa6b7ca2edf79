"""A custom replay buffer: the plain one, with a sampler that prefers fresh data.

    rlframe train -c cartpole_dqn "import_names=['new_buffer']" replay_buffer.type=new_buffer

The sampler decides which transitions are drawn; storing, saving and resuming are inherited.
"""

import numpy as np
from easydict import EasyDict

from rlframe.data import IntArray
from rlframe.registry import BUFFER_REGISTRY
from rlframe.utils.field import Field
from rlframe.worker.replay_buffer import NaiveReplayBuffer, Sampler, Storage


class FreshSampler(Sampler):
    """Draws transitions whose age is geometric with mean ``mean_age`` transitions."""

    def __init__(self, mean_age: float, rng: np.random.Generator) -> None:
        self._mean_age, self._rng = mean_age, rng

    def sample(self, size: int, storage: Storage) -> IntArray:
        age = self._rng.geometric(1 / self._mean_age, size) - 1  # [size], 0 is the newest
        return len(storage) - 1 - age % len(storage)  # [size], 0 is the oldest


@BUFFER_REGISTRY.register('new_buffer')
class NewBuffer(NaiveReplayBuffer):
    """Keeps the newest transitions and draws fresh ones more often."""

    # an option: replay_buffer.mean_age=2000
    config = dict(
        mean_age=Field(5000.0, range='[1, inf)', unit='transitions', doc='mean age of what is drawn')
    )

    def _build_sampler(self, cfg: EasyDict) -> Sampler:
        return FreshSampler(cfg['mean_age'], self._rng)
