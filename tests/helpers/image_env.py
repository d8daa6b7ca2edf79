"""An env of small grey images, whose frames can be stacked."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

SIZE = 12


class Dot(gymnasium.Env[Any, Any]):
    """A dot that falls, and is moved left or right; the reward is 1 while it is in the left half.

    Args:
        dtype: Type of the images.
    """

    def __init__(self, dtype: str = 'uint8', **_: Any) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE), np.dtype(dtype).type)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._column, self._row = int(self.np_random.integers(SIZE)), 0
        return self._image(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._row += 1
        self._column = (self._column + 2 * int(action) - 1) % SIZE
        is_over = self._row == SIZE - 1
        return self._image(), float(self._column < SIZE // 2), is_over and self._column % 2 == 0, is_over, {}

    def _image(self) -> Any:
        image = np.zeros((SIZE, SIZE), self.observation_space.dtype)
        image[self._row, self._column] = 255
        return image
