"""WallClockHook: ends training after a number of seconds."""

from __future__ import annotations

from rlframe.registry import HOOK_REGISTRY
from rlframe.utils.field import REQUIRED, Field
from rlframe.utils.resolved_config import ResolvedConfig
from rlframe.worker.hooks.run_hook import RunHook
from rlframe.worker.hooks.run_view import RunView


class WallClockConfig(ResolvedConfig):
    """Options of ``WallClockHook``."""

    seconds: float


@HOOK_REGISTRY.register('wall_clock')
class WallClockHook(RunHook):
    """Ends training when a budget of wall-clock time is spent, counted over all resumes."""

    _cfg: WallClockConfig
    config = dict(
        seconds=Field(
            REQUIRED,
            type=float,
            range='(0, inf)',
            unit='seconds',
            doc='of training, evaluations included, after which it ends',
            may_change=True,
        )
    )

    def before_run(self, run: RunView) -> None:
        self.after_round(run)

    def after_round(self, run: RunView) -> None:
        seconds = run.progress.wall_time
        if seconds >= self._cfg.seconds:
            run.stop(f'the budget of {self._cfg.seconds:g} s is spent (hooks.{self.name}.seconds)')
