"""ProfileHook: writes a profile of some rounds to the run folder."""

from __future__ import annotations

import cProfile
import logging
from collections.abc import Mapping
from typing import Any, Literal

from rlframe.errors import ConfigError
from rlframe.registry import HOOK_REGISTRY
from rlframe.utils.field import Field
from rlframe.utils.resolved_config import ResolvedConfig
from rlframe.utils.schema import COUNT, check_state
from rlframe.worker.hooks.run_hook import RunHook
from rlframe.worker.hooks.run_view import RunView

logger = logging.getLogger('rlframe.hooks')


class ProfileConfig(ResolvedConfig):
    """Options of ``ProfileHook``."""

    first: int
    last: int
    tool: Literal['torch', 'cprofile']


@HOOK_REGISTRY.register('profile')
class ProfileHook(RunHook):
    """Profiles the rounds ``first`` to ``last`` of a run: collection, updates, and the evaluations between them."""

    _cfg: ProfileConfig
    config = dict(
        first=Field(10, range='[1, inf)', unit='rounds', doc='the first that is profiled', may_change=True),
        last=Field(20, range='[1, inf)', unit='rounds', doc='the last that is profiled', may_change=True),
        tool=Field(
            'torch',
            doc="'torch': a trace of operators, for chrome://tracing or Perfetto; 'cprofile': Python functions, for pstats",
            choices=('torch', 'cprofile'),
            may_change=True,
        ),
    )
    in_parallel = False

    @classmethod
    def check_config(cls, cfg: ProfileConfig) -> list[ConfigError]:
        """Refuses a range of rounds that ends before it begins."""
        if cfg.first <= cfg.last:
            return []
        return [
            ConfigError(
                'no rounds to profile', where='last', got=cfg.last, expected=f'>= first ({cfg.first})'
            )
        ]

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(cfg)
        self._round = 0
        self._profiler: Any = None

    def before_collect(self, run: RunView) -> None:
        self._round += 1
        if self._profiler is None and self._cfg.first <= self._round <= self._cfg.last:
            self._profiler = self._make()
            self._profiler.__enter__()

    def after_round(self, run: RunView) -> None:
        if self._round >= self._cfg.last:
            self._finish(run)

    def after_run(self, run: RunView) -> None:
        self._finish(run)

    def on_exception(self, run: RunView) -> None:
        self._finish(run)

    def _make(self) -> Any:
        if self._cfg.tool == 'cprofile':
            return cProfile.Profile()
        from torch.cuda import is_available
        from torch.profiler import ProfilerActivity, profile

        devices = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_available() else [])]
        return profile(activities=devices)

    def _finish(self, run: RunView) -> None:
        """Writes the profile, if one is running."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        profiler.__exit__(None, None, None)
        stem = f'profile_rounds_{self._cfg.first}_{self._round}'
        if self._cfg.tool == 'cprofile':
            path = run.folder / f'{stem}.pstats'
            profiler.dump_stats(path)
        else:
            path = run.folder / f'{stem}.json'
            profiler.export_chrome_trace(str(path))
        logger.info('wrote %s', path)

    def state_dict(self) -> dict[str, Any]:
        return {'round': self._round}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'round': COUNT})
        self._round = state['round']
