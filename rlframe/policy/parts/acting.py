"""What acting changes, beside the weights: generators, running statistics, and what policies keep of running episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.policy.parts.normalize import Normalizer
from rlframe.utils.lazy import torch
from rlframe.utils.schema import DICT, GENERATOR, TENSOR, check_state
from rlframe.utils.seed import restore_generator


class ActingState:
    """The state of acting, as a part of the state of a policy.

    Layers of the network draw from ``generator``; None: they do not draw.
    """

    def __init__(
        self, normalizer: Normalizer, rng: np.random.Generator, generator: torch.Generator | None
    ) -> None:
        self._normalizer, self._rng, self._generator = normalizer, rng, generator
        self.parts: dict[str, Any] = {}
        """What is kept of running episodes by name, with ``state_dict`` and ``load_state_dict``: recurrent states, noise."""

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of it."""
        state = {**self._normalizer.state_dict(running=True), 'rng': self._rng.bit_generator.state}
        if self._generator is not None:
            state['generator'] = self._generator.get_state()
        return state | {name: own.state_dict() for name, own in self.parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'rng': GENERATOR} | dict.fromkeys(self.parts, DICT))
        self._normalizer.load_state_dict(state)
        self._rng.bit_generator.state = state['rng']
        if self._generator is not None:
            check_state(state, {'generator': TENSOR})
            restore_generator(self._generator, state['generator'])
        for name, own in self.parts.items():
            own.load_state_dict(state[name])
