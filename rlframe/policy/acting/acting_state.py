"""The state that acting changes in a policy, so that a copy, such as one in another process, can act for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlframe.policy.learning.normalize import Normalizer
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import GENERATOR, check_state

torch = LazyModule('torch')


class Acting(NamedTuple):
    """State that acting changes, excluding the weights: sent to a copy that acts, and back."""

    state: Callable[[], dict[str, Any]]
    load_state: Callable[[Mapping[str, Any]], None]
    statistics: Callable[[], dict[str, Any]]
    """Running statistics, which copies gather apart."""
    absorb: Callable[[Mapping[str, Any], Mapping[str, Any]], None]
    """Adds the statistics that a copy gathered between two calls of ``statistics``."""


class ActingState:
    """The part of a policy that acting changes: its generator, recurrent states, running statistics."""

    _cfg: Any
    _rng: np.random.Generator
    _normalizer: Normalizer

    def _acting_state(self) -> dict[str, Any]:
        """Returns the acting state, as part of the policy's state."""
        return {**self._normalizer.state_dict(running=True), 'rng': self._rng.bit_generator.state}

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        """Continues from ``_acting_state()``."""
        check_state(state, {'rng': GENERATOR})
        self._normalizer.load_state_dict(state)
        self._rng.bit_generator.state = state['rng']

    def _get_acting(self) -> Acting:
        normalizer = self._normalizer
        return Acting(self._shared_state, self._load_shared_state, normalizer.state_dict, normalizer.absorb)

    def _shared_state(self) -> dict[str, Any]:
        state = self._acting_state()
        if self._cfg.model.get('noisy'):  # noise in the weights comes from torch's global generator
            state['torch'] = torch.get_rng_state()
        return state

    def _load_shared_state(self, state: Mapping[str, Any]) -> None:
        self._load_acting_state(state)
        if 'torch' in state:
            torch.set_rng_state(state['torch'])
