"""BaseSerialCommander: turns what has happened into the settings of the next round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from rlframe.utils.field import Configurable


class BaseSerialCommander(Configurable):
    """Asks the policy for the settings of the next round.

    Args:
        cfg: Options; there are none.
        learner: Its ``learn_info`` is part of what the policy is told.
        collector: Its ``envstep`` is.
        evaluator: Unused; part of the interface.
        replay_buffer: Unused; part of the interface.
        policy: Command face of the policy.
    """

    config: dict[str, Any] = {}

    def __init__(
        self,
        cfg: EasyDict | Mapping[str, Any] | None,
        learner: Any,
        collector: Any,
        evaluator: Any,
        replay_buffer: Any,
        policy: Any = None,
    ) -> None:
        self._cfg = self.resolve_config(cfg)
        self._learner, self._collector = learner, collector
        self.policy = policy
        """Command face of the policy."""

    def _info(self) -> dict[str, Any]:
        return {**self._learner.learn_info, 'envstep': self._collector.envstep}

    def step(self) -> dict[str, Any]:
        """Returns the arguments of the collector's policy for the next round, such as ``eps``."""
        return dict(self.policy.get_setting_collect(self._info()))

    def learn_settings(self) -> dict[str, Any]:
        """Returns the arguments of the learner's policy for the next round."""
        return dict(self.policy.get_setting_learn(self._info()))
