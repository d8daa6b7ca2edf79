"""DoctorHook: the training doctor, which looks for diseases of training at each evaluation."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from rlframe.registry import HOOK_REGISTRY
from rlframe.utils.field import Field
from rlframe.utils.resolved_config import ResolvedConfig
from rlframe.utils.schema import COUNT, DICT, NUMBER, check_state, dict_of, list_of, part
from rlframe.worker.hooks.checks import Check, DeadUnits, EntropyCollapse, ExplodingQ, LargeKL
from rlframe.worker.hooks.data_checks import (
    AllTruncated,
    BelowRandom,
    ReplayRatio,
    RewardScale,
    Saturation,
    StaleWeights,
)
from rlframe.worker.hooks.exam import HISTORY, Exam, Recent
from rlframe.worker.hooks.run_hook import RunHook
from rlframe.worker.hooks.run_view import RunView

logger = logging.getLogger('rlframe.doctor')
CHECKS: tuple[type[Check], ...] = (
    EntropyCollapse,
    ExplodingQ,
    LargeKL,
    DeadUnits,
    RewardScale,
    AllTruncated,
    Saturation,
    ReplayRatio,
    StaleWeights,
    BelowRandom,
)
"""All checks, in the order of their warnings."""
STATE = {
    'scores': list_of(NUMBER),
    'evaluations': COUNT,
    'told': dict_of(COUNT),
    'found': dict_of(COUNT),
    'checks': dict_of(DICT),
    'recent?': DICT,
}


class DoctorConfig(ResolvedConfig):
    """Options of ``DoctorHook``."""

    repeat_every: int


@HOOK_REGISTRY.register('doctor')
class DoctorHook(RunHook):
    """Warns of collapsed, exploding or idle training, in one line that says what to change.

    Each finding is counted as the metric ``doctor/NAME``. The option of a check is its threshold; ``None`` switches the
    check off.
    """

    _cfg: DoctorConfig
    config = dict(
        repeat_every=Field(
            50,
            range='[1, inf)',
            unit='evaluations',
            doc='between two warnings of the same check',
            may_change=True,
        ),
        **{check.name: check.field for check in CHECKS},
    )

    in_parallel = True

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(cfg)
        limits = {check: self._cfg[check.name] for check in CHECKS}
        self._checks = [check(limit) for check, limit in limits.items() if limit is not None]
        self._recent = Recent()
        self._scores: list[float] = []
        self._evaluations = 0
        self._told: dict[str, int] = {}  # evaluation of the last warning of each check
        self._found: dict[str, int] = {}  # findings of each check

    def after_collect(self, run: RunView) -> None:
        self._recent.add(run.collected, run.progress.train_iter)

    def after_eval(self, run: RunView) -> None:
        if run.is_extra:
            return
        self._evaluations += 1
        self._scores = [*self._scores, float(run.evaluation.score)][-HISTORY:]
        exam = Exam(run, self._scores, self._recent)
        for check in self._checks:
            if line := check.look(exam):
                self._tell(run, check.name, line)

    def _tell(self, run: RunView, name: str, line: str) -> None:
        self._found[name] = self._found.get(name, 0) + 1
        run.log(f'doctor/{name}', self._found[name])
        if self._evaluations - self._told.get(name, -self._cfg.repeat_every) >= self._cfg.repeat_every:
            self._told[name] = self._evaluations
            logger.warning('doctor: %s', line)

    def state_dict(self) -> dict[str, Any]:
        return {
            'scores': list(self._scores),
            'evaluations': self._evaluations,
            'told': dict(self._told),
            'found': dict(self._found),
            'checks': {check.name: check.state_dict() for check in self._checks},
            'recent': self._recent.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, STATE)
        self._scores, self._evaluations = list(state['scores']), state['evaluations']
        self._told, self._found = dict(state['told']), dict(state['found'])
        for check in self._checks:
            if own := state['checks'].get(check.name):
                with part(f'checks.{check.name}'):
                    check.load_state_dict(own)
        if 'recent' in state:
            with part('recent'):
                self._recent.load_state_dict(state['recent'])
