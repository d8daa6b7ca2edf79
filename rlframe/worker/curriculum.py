"""Curriculum: options of the training envs as functions of the progress (``env.schedule``)."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from rlframe.data.timestep import FloatArray
from rlframe.errors import ConfigError
from rlframe.registry import ENV_SCHEDULE_REGISTRY
from rlframe.utils.field import REQUIRED, Configurable, Section, option
from rlframe.utils.schema import COUNT, DICT, check_state

logger = logging.getLogger('rlframe.env')
KEPT = 100
"""Maximum number of recent episodes passed to a rule."""


class Seen(NamedTuple):
    """The progress of training, before a round of collection."""

    envstep: int = 0
    episodes: int = 0
    """Episodes that have ended."""
    env_num: int = 0
    """Number of training envs, over all collectors."""
    recent: FloatArray | None = None
    """Return, length and success (NaN if the env does not report it) of the last ended episodes, [at most KEPT, 3]."""


class ScheduleRule(Configurable, ABC):
    """Computes the value of one scheduled attribute or method of the envs."""

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        self._cfg: Any = self.resolve_config(cfg)

    @abstractmethod
    def value(self, seen: Seen) -> Any:
        """Returns the value for the episodes that begin from now on; called once a round."""

    def first(self) -> Any:
        """Returns the value before training."""
        return self.value(Seen())

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that the next value depends on, as plain values; empty if there is none."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""


class LinearConfig(Section):
    """Options of ``LinearRule``."""

    start: float = option(REQUIRED, range='(-inf, inf)', doc='value in the beginning')
    end: float = option(REQUIRED, range='(-inf, inf)', doc='last value')
    decay: float = option(REQUIRED, range='(0, inf)', unit='env steps', doc='from start to end')
    whole: bool = option(False, doc='whether values are rounded to whole numbers')


@ENV_SCHEDULE_REGISTRY.register('linear')
class LinearRule(ScheduleRule):
    """A straight line over env steps."""

    _cfg: LinearConfig

    def value(self, seen: Seen) -> Any:
        cfg = self._cfg
        number = cfg.start + (cfg.end - cfg.start) * min(seen.envstep / cfg.decay, 1.0)
        return round(number) if cfg.whole else float(number)


class StepsConfig(Section):
    """Options of ``StepsRule``."""

    stages: list[Any] = option(REQUIRED, doc='values, one after the other')
    at: list[Any] = option(REQUIRED, unit='env steps', doc='when each stage after the first begins')


@ENV_SCHEDULE_REGISTRY.register('steps')
class StepsRule(ScheduleRule):
    """One value after the other, at given env steps."""

    _cfg: StepsConfig

    @classmethod
    def check_config(cls, cfg: Any) -> list[ConfigError]:
        numbers = [0, *cfg.at]
        is_rising = all(isinstance(n, int | float) for n in numbers) and numbers == sorted(set(numbers))
        if len(cfg.stages) == len(numbers) and is_rising:
            return []
        expected = f'{max(len(cfg.stages) - 1, 0)} rising env steps above 0, one less than stages'
        return [ConfigError('bad beginnings of stages', where='at', got=cfg.at, expected=expected)]

    def value(self, seen: Seen) -> Any:
        return self._cfg.stages[sum(seen.envstep >= at for at in self._cfg.at)]


class SuccessConfig(Section):
    """Options of ``SuccessRule``."""

    stages: list[Any] = option(REQUIRED, doc='values, from the easiest on')
    goal: float = option(
        REQUIRED, range='(-inf, inf)', doc='mean of the last episodes at which the next stage begins'
    )
    episodes: int = option(20, range=f'[1, {KEPT}]', unit='episodes', doc='over which the mean is taken')
    of: Literal['return', 'success'] = option(
        'return', doc="which mean has to reach the goal: that of returns, or of info['is_success']"
    )


@ENV_SCHEDULE_REGISTRY.register('success')
class SuccessRule(ScheduleRule):
    """The next stage, once the last episodes are good enough; never an earlier one.

    After a change, the first ``env_num`` episodes that end are ignored: one may still run in each env from the stage before.
    """

    _cfg: SuccessConfig

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(cfg)
        self._index = self._since = 0  # of the stage; episodes up to which none counts for it

    @classmethod
    def check_config(cls, cfg: Any) -> list[ConfigError]:
        errors = []
        if cfg.of == 'success' and not 0 < cfg.goal <= 1:
            errors.append(
                ConfigError('the goal of a success rate', where='goal', got=cfg.goal, expected='(0, 1]')
            )
        if not cfg.stages:
            errors.append(ConfigError('no value', where='stages', got=[], expected='at least one value'))
        return errors

    def value(self, seen: Seen) -> Any:
        cfg, stages = self._cfg, self._cfg.stages
        known = 0 if seen.recent is None else len(seen.recent)
        if seen.recent is not None and min(known, seen.episodes - self._since) >= cfg.episodes:
            mean = seen.recent[-cfg.episodes :, 0 if cfg.of == 'return' else 2].mean()
            if math.isnan(mean):
                raise ConfigError(
                    'the envs do not tell the success of each episode',
                    where='of',
                    got='success',
                    expected="'return'",
                    remedy="Or give info['is_success'] in the last step of every episode.",
                )
            if mean >= cfg.goal and self._index < len(stages) - 1:
                self._index, self._since = self._index + 1, seen.episodes + seen.env_num
        return stages[self._index]

    def state_dict(self) -> dict[str, Any]:
        return {'index': self._index, 'since': self._since}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'index': COUNT, 'since': COUNT})
        self._index, self._since = state['index'], state['since']


class Curriculum:
    """The rules of a run, from the value of ``env.schedule``."""

    def __init__(self, schedule: Mapping[str, Any]) -> None:
        self.rules: dict[str, ScheduleRule] = {
            name: ENV_SCHEDULE_REGISTRY.build(rule, dict(rule)) for name, rule in schedule.items()
        }
        """The rules by option; none without a curriculum."""
        self.values: dict[str, Any] = {}
        """The newest value of each option."""

    def follow(self, seen: Seen) -> dict[str, Any]:
        """Returns the values for the episodes that begin from now on."""
        before = self.values
        self.values = {}
        for name, rule in self.rules.items():
            try:
                self.values[name] = rule.value(seen)
            except ConfigError as error:
                error.where = f'env.schedule.{name}.{error.where}'
                raise
            if not isinstance(rule, LinearRule) and repr(self.values[name]) != repr(before.get(name)):
                logger.info('env.schedule.%s: %r from env step %d on', name, self.values[name], seen.envstep)
        return self.values

    def status(self) -> str:
        """Returns the values for the progress line."""
        return ' | '.join(f'{name} {_short(value)}' for name, value in self.values.items())

    def metrics(self) -> dict[str, float]:
        """Returns the values that are numbers, by tag."""
        numbers = {
            name: value for name, value in self.values.items() if isinstance(value, int | float | np.number)
        }
        return {f'env/{name}': float(value) for name, value in numbers.items()}

    def state_dict(self) -> dict[str, Any]:
        """Returns the states of the rules, by option."""
        return {name: rule.state_dict() for name, rule in self.rules.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {name: DICT for name in self.rules})
        for name, rule in self.rules.items():
            rule.load_state_dict(state[name])


def _short(value: Any) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)
