"""BaseSerialCommander: derives the settings of the next round from the progress so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from easydict import EasyDict

from rlframe.errors import ConfigError
from rlframe.option_names import named
from rlframe.registry import COMMANDER_REGISTRY
from rlframe.utils.field import Configurable


@COMMANDER_REGISTRY.register('base')
class BaseSerialCommander(Configurable):
    """Asks the policy for the settings of each round and leaves the size of a round to the config.

    A subclass overrides the methods for what it decides. It may change its state only in ``begin_round``: the other
    methods may be called any number of times in a round.

    Args:
        cfg: Options of the commander.
        learner: Learner whose ``learn_info`` is passed to the policy.
        collector: Its ``envstep`` is part of it, too.
        evaluator: The evaluator, for subclasses.
        replay_buffer: The replay buffer, for subclasses; None for an on-policy policy.
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
        self._evaluator, self._replay_buffer = evaluator, replay_buffer
        self.policy = policy
        """Command face of the policy."""

    def _info(self) -> dict[str, Any]:
        """Returns the inputs of the policy: ``learn_info`` of the learner, and ``envstep``."""
        return {**self._learner.learn_info, 'envstep': self._collector.envstep}

    def begin_round(self) -> None:
        """Called once before each round of collection and training, after an evaluation that is due."""

    def step(self) -> dict[str, Any]:
        """Returns the arguments of the collector's policy for the next round, such as ``eps``."""
        return dict(self.policy.get_setting_collect(self._info()))

    def collect_target(self) -> int | None:
        """Returns the amount to collect in the next round, at least 1, in the collector's unit.

        That is training samples (``n_sample``) or episodes (``n_episode``). None: as configured.
        """
        return None

    def learn_settings(self) -> dict[str, Any]:
        """Returns the arguments of the learner's policy for the next round."""
        return dict(self.policy.get_setting_learn(self._info()))

    def update_per_collect(self) -> int | None:
        """Returns the number of updates in the next round, at least 0; None uses the config's value.

        It is called after collection, for policies with a replay buffer; an on-policy policy learns from each round
        according to its own options.
        """
        return None

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that a subclass keeps from round to round, for checkpoints; empty if there is none."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``; not called if that was empty."""


def checked_answer(question: Callable[[], Any], least: int) -> int | None:
    """Returns a commander's answer to a question for a number, such as ``commander.collect_target``.

    Raises:
        ConfigError: If the result is neither a number of at least ``least`` nor None.
    """
    answer = question()
    if answer is None or (isinstance(answer, int | np.integer) and answer >= least):
        return cast('int | None', answer)
    raise ConfigError(
        f'{getattr(question, "__qualname__", question)} returns the size of a round',
        where='policy.other.commander',
        got=answer,
        expected=f'None or an int >= {least}',
    )


def create_commander(cfg: Mapping[str, Any] | str, *args: Any, **kwargs: Any) -> BaseSerialCommander:
    """Builds the commander named by ``cfg.type``, or by ``cfg``; further arguments go to its constructor.

    Raises:
        RegistryError: If no commander has that name; the closest one is named.
    """
    section, arguments = named(COMMANDER_REGISTRY, cfg, kwargs)
    return COMMANDER_REGISTRY.build({'type': 'base', **section}, section, *args, **arguments)
