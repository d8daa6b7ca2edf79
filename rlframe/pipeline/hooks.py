"""LaterHooks: the hooks of a parallel run, called from its main thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from rlframe.worker.hooks.run_hook import HookList

ROUND_SECONDS = 1.0
"""Seconds between two calls of ``after_round``."""


class LaterHooks:
    """Calls the hooks of a parallel run from its main thread: evaluations and checkpoints come from threads that must not wait.

    As a part of checkpoints, it has the state of the hooks after their last call.

    Args:
        pipeline: The run, whose parts exist.
    """

    def __init__(self, pipeline: Any) -> None:
        self.hooks = HookList.of(pipeline)
        """The hooks."""
        self._state = self.hooks.state_dict()
        self.results: deque[Any] = deque()
        """Results of evaluations."""
        self.saved: deque[Path] = deque()
        """Paths of checkpoints."""
        self._last_round = monotonic()

    def call(self) -> None:
        """Calls the hooks for all that happened since the last call."""
        while self.results:
            self.hooks.evaluated(self.results.popleft())
        while self.saved:
            self.hooks.saved(self.saved.popleft())
        if monotonic() - self._last_round >= ROUND_SECONDS:
            self._last_round = monotonic()
            self.hooks.call('after_round')
        self._state = self.hooks.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the hooks after their last call."""
        return self._state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the hooks."""
        self.hooks.load_state_dict(state)
        self._state = self.hooks.state_dict()
