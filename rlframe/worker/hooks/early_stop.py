"""EarlyStopHook: ends training when evaluations no longer improve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlframe.registry import HOOK_REGISTRY
from rlframe.utils.field import Field
from rlframe.utils.resolved_config import ResolvedConfig
from rlframe.utils.schema import COUNT, NUMBER, check_state, maybe
from rlframe.worker.hooks.run_hook import RunHook
from rlframe.worker.hooks.run_view import RunView


class EarlyStopConfig(ResolvedConfig):
    """Options of ``EarlyStopHook``."""

    patience: int
    min_delta: float


@HOOK_REGISTRY.register('early_stop')
class EarlyStopHook(RunHook):
    """Ends training when the score has not improved for ``patience`` evaluations."""

    _cfg: EarlyStopConfig
    config = dict(
        patience=Field(
            10,
            range='[1, inf)',
            unit='evaluations',
            doc='without a better score, after which training ends',
            may_change=True,
        ),
        min_delta=Field(
            0.0,
            range='[0, inf)',
            unit='of the score',
            doc='by which a score must exceed the best one to count as better',
            may_change=True,
        ),
    )

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(cfg)
        self._best: float | None = None
        self._worse = 0  # evaluations since the best

    def before_run(self, run: RunView) -> None:
        self._judge(run)

    def after_eval(self, run: RunView) -> None:
        if run.is_extra:
            return
        score = float(run.evaluation.score)
        is_first = self._best is None and not math.isnan(score)
        if is_first or (self._best is not None and score > self._best + self._cfg.min_delta):
            self._best, self._worse = score, 0
        else:
            self._worse += 1
        self._judge(run)

    def _judge(self, run: RunView) -> None:
        if self._worse >= self._cfg.patience:
            run.stop(f'no better evaluation in {self._worse} (hooks.{self.name}.patience)')

    def state_dict(self) -> dict[str, Any]:
        return {'best': self._best, 'worse': self._worse}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'best': maybe(NUMBER), 'worse': COUNT})
        self._best, self._worse = state['best'], state['worse']
