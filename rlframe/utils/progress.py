"""Progress: the one place where an experiment counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass
class Progress:
    """Counters of an experiment, shared by its workers; they only grow, and are saved in every checkpoint."""

    envstep: int = 0
    """Env steps taken for training, over all envs, warm-up included."""
    train_iter: int = 0
    """Gradient steps."""
    episodes: int = 0
    """Training episodes that ended."""
    wall_time: float = 0.0
    """Seconds of training in all runs that led here."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the counters."""
        return dict(vars(self))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, state[field.name])
