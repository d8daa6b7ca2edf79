"""An env with the method ``seed`` that DI-engine's envs have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    Wrapper = gymnasium.Wrapper[Any, Any, Any, Any]
else:
    Wrapper = gymnasium.Wrapper


class SeededEnv(Wrapper):
    """An env with DI-engine's method ``seed``."""

    _given: int | None = None  # seed of the next episode
    _repeats = False

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Sets the seed of the next episode; with ``dynamic_seed=False``, of every later one, too."""
        self._given, self._repeats = int(seed), not dynamic_seed

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode, with the given seed if none is passed."""
        used = self._given if seed is None else seed
        self._given = self._given if self._repeats else None
        return self.env.reset(seed=used, options=options)
