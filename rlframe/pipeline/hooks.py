"""The hooks of a pipeline: creates them from the config and gives them a view of the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from rlframe.config.schema import ExperimentConfig
from rlframe.registry import HOOK_REGISTRY
from rlframe.utils.field import raw_items
from rlframe.worker.hooks.run_hook import HookList, RunView

if TYPE_CHECKING:
    from rlframe.parallel.pipeline import ParallelPipeline
    from rlframe.pipeline.checkpoints import Checkpoints
    from rlframe.pipeline.serial import SerialPipeline

ROUND_SECONDS = 1.0
"""Seconds between two calls of ``after_round`` in parallel mode."""


class PipelineHooks(HookList):
    """The hooks of a run, with a method for each moment at which its pipeline calls them."""

    @classmethod
    def of(cls, cfg: ExperimentConfig, run: RunView) -> PipelineHooks:
        """Creates the hooks of a config; ``False`` in place of a section is no hook."""
        sections = [(name, section) for name, section in raw_items(cfg.hooks) if isinstance(section, Mapping)]
        return cls({name: HOOK_REGISTRY.build(section, section) for name, section in sections}, run)

    @classmethod
    def of_serial(cls, pipeline: SerialPipeline) -> PipelineHooks:
        """Creates the hooks of a serial pipeline, whose workers exist."""
        parts = (
            'folder',
            'progress',
            'evaluator',
            'writer',
            'policy',
            'collector',
            'learner',
            'replay_buffer',
            'secrets',
        )
        shown = {name: getattr(pipeline, name) for name in parts}
        return cls.of(pipeline.cfg, RunView(pipeline.cfg, spec=pipeline.factory.spec, **shown))

    @classmethod
    def of_parallel(cls, pipeline: ParallelPipeline) -> PipelineHooks:
        """Creates the hooks of a parallel pipeline, whose policy and workers are in other processes."""
        parts = ('folder', 'progress', 'evaluator', 'writer', 'replay_buffer', 'secrets')
        shown = {name: getattr(pipeline, name) for name in parts}
        return cls.of(pipeline.cfg, RunView(pipeline.cfg, spec=pipeline.factory.spec, **shown))

    @property
    def stop_reason(self) -> str:
        """Why a hook ends training; empty if none does."""
        return self.run.stop_reason

    def on_step(self, beat: Callable[[], None]) -> Callable[[], None]:
        """Returns what a collector calls after each step of its envs.

        Args:
            beat: Tells the stall detector of progress.
        """

        def after_env_step() -> None:
            beat()
            self.call('after_env_step')

        return after_env_step if 'after_env_step' in self else beat

    def collected(self, data: Any) -> None:
        """Calls the hooks after a collection; nobody else keeps the data."""
        if 'after_collect' in self:
            self.run.collected = data
            self.call('after_collect')

    def evaluated(self, result: Any) -> None:
        """Calls the hooks after an evaluation."""
        due = getattr(self.run.evaluator, 'last_eval_iter', result.train_iter)
        self.run.evaluation, self.run.is_extra = result, result.train_iter > due
        self.call('after_eval')

    def saved(self, path: Path) -> None:
        """Calls the hooks after a checkpoint."""
        self.run.checkpoint = path
        self.call('after_checkpoint')

    def failed(self, error: BaseException, checkpoints: Checkpoints) -> None:
        """Leaves a crash report about an error, and calls the hooks."""
        checkpoints.leave_crash_report(error)
        self.fail(error)

    def end(self, solved: bool, finished: bool) -> None:
        """Calls the hooks at the end of training.

        Args:
            solved: Whether an evaluation reached the goal.
            finished: Whether training is complete; if not, it was interrupted.
        """
        outcome = (
            'solved' if solved else 'stopped' if self.stop_reason else 'done' if finished else 'interrupted'
        )
        self.run.outcome = outcome
        self.call('after_run')


class LaterHooks:
    """Calls the hooks of a parallel run from its main thread: evaluations and checkpoints come from threads that must not wait.

    As a part of checkpoints, it has the state of the hooks after their last call.

    Args:
        hooks: The hooks.
    """

    def __init__(self, hooks: PipelineHooks) -> None:
        self._hooks, self._state = hooks, hooks.state_dict()
        self.results: deque[Any] = deque()
        """Results of evaluations."""
        self.saved: deque[Path] = deque()
        """Paths of checkpoints."""
        self._last_round = monotonic()

    def call(self) -> None:
        """Calls the hooks for all that happened since the last call."""
        while self.results:
            self._hooks.evaluated(self.results.popleft())
        while self.saved:
            self._hooks.saved(self.saved.popleft())
        if monotonic() - self._last_round >= ROUND_SECONDS:
            self._last_round = monotonic()
            self._hooks.call('after_round')
        self._state = self._hooks.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the hooks after their last call."""
        return self._state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the hooks."""
        self._hooks.load_state_dict(state)
        self._state = self._hooks.state_dict()
