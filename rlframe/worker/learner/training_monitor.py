"""The training variables of the last iterations, for means."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from rlframe.utils.schema import Kind, check_state, dict_of

MONITOR_WINDOW = 1000
"""Most iterations that a mean of training variables is taken over."""


def _is_series(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(item, int | float) for item in value)
    return getattr(value, 'ndim', 0) == 1


STATE = dict_of(Kind('a list of numbers, or a tensor of them', _is_series))


class Monitor:
    """Keeps the training variables of the iterations since they were last shown; tensors are read only when asked."""

    def __init__(self) -> None:
        self._values: dict[str, deque[Any]] = {}

    def add(self, variables: Mapping[str, Any]) -> None:
        """Notes the variables of one iteration."""
        for name, value in variables.items():
            if name not in self._values:
                self._values[name] = deque(maxlen=MONITOR_WINDOW)
            self._values[name].append(value)

    def replace_last(self, variables: Mapping[str, Any]) -> None:
        """Corrects the last noted values."""
        for name, value in variables.items():
            self._values[name][-1] = value

    def means(self) -> dict[str, float]:
        """Returns the mean of each variable since the last ``take_means``."""
        import torch

        means = {}
        for name, values in self._values.items():
            if values and isinstance(values[0], torch.Tensor):
                means[name] = float(torch.stack(list(values)).double().mean())
            elif values:
                means[name] = sum(values) / len(values)
        return means

    def state_dict(self) -> dict[str, Any]:
        """Returns the values noted since the last ``take_means``."""
        import torch

        return {
            name: torch.stack(list(values)) if isinstance(values[0], torch.Tensor) else list(values)
            for name, values in self._values.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, STATE)
        self._values = {name: deque(values, maxlen=MONITOR_WINDOW) for name, values in state.items()}

    def take_means(self) -> dict[str, float]:
        """Returns the means and begins anew."""
        means = self.means()
        self._values = {}
        return means
