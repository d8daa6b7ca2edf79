"""Run: a run in Python, to train step by step or at once, evaluate, plot, act and resume."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from rlframe import config
from rlframe.app.run_files import MetricColumns, SavedRun, read_columns
from rlframe.app.scoring import Request, Score, score
from rlframe.config.schema import ExperimentConfig
from rlframe.display.text import short_path
from rlframe.errors import ConfigError
from rlframe.pipeline import build
from rlframe.pipeline.resume import resume as find_resumption
from rlframe.pipeline.serial import SerialPipeline
from rlframe.pipeline.training import run_shown, run_until
from rlframe.run.exit_guard import Interrupt
from rlframe.run.manifest import read_manifest
from rlframe.run.progress import Progress, evaluation_of
from rlframe.run.read_checkpoint import CKPT, OpenCheckpoint, emergencies, open_checkpoint
from rlframe.scores import number_text
from rlframe.utils.seed import preserved_rng

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rlframe.export.loaded import LoadedPolicy
    from rlframe.parallel.pipeline import ParallelPipeline


class Iteration(NamedTuple):
    """The counters and scores after one iteration: collecting, and the updates that follow."""

    envstep: int
    """Env steps so far."""
    train_iter: int
    """Updates so far."""
    episodes: int
    """Training episodes so far."""
    mean_return: float
    """Mean return of the last training episodes; NaN before the first."""
    score: float
    """Score of the last evaluation; NaN before the first."""
    best: float
    """Score of the best evaluation; NaN before the first."""


class Run:
    """A run: its folder, and the training in it. ``rlframe.train``, ``start`` and ``open_run`` return one.

    Args:
        cfg: The compiled config.
        folder: The run folder; a function creates it when training starts.
        model: A network that replaces the one named in the config.
        trust: Whether the config of a foreign run may import code, open files and start programs.
        hooks: Hooks of the run beside those of the config: objects of ``RunHook``, or functions.
        failed: An emergency checkpoint in the folder, to resume from it in place of the newest checkpoint.
    """

    def __init__(
        self,
        cfg: ExperimentConfig,
        folder: Path | Callable[[], Path] | None,
        *,
        model: Any = None,
        trust: bool = False,
        hooks: Any = (),
        failed: Path | None = None,
    ) -> None:
        self.config = cfg
        """The compiled config."""
        self._model, self._trust, self._hooks, self._failed = model, trust, hooks, failed
        self.progress_shown = True
        """Whether ``train`` and ``resume`` show the progress by default."""
        self._pipeline: SerialPipeline | ParallelPipeline | None = None
        self._saved: OpenCheckpoint | None = None
        self.solved = False
        """Whether an evaluation reached the goal."""
        self.best = math.nan
        """Score of the best evaluation; NaN if there was none."""
        self.env_name = build.env_name(cfg.env)
        """Name of the env."""
        self.progress = Progress()
        """Counters: env steps, updates, episodes and seconds."""
        if isinstance(folder, Path):
            self.folder = folder
            """The run folder."""
            self._read_facts()
        else:
            self._open(cfg, folder)

    # training

    def train(self, progress: bool | None = None) -> Self:
        """Trains to the end, and shows the progress.

        Args:
            progress: Whether to show it; None: as ``start`` was told.

        Raises:
            KeyboardInterrupt: After Ctrl-C, when everything is saved: ``resume()`` continues.
        """
        since = perf_counter()
        pipeline = self._opened()
        with Interrupt() as stop:
            try:
                if self.progress_shown if progress is None else progress:
                    shown: dict[str, Any] = dict(since=since, commands=self._commands)
                    run_shown(pipeline, self._saved, lambda: stop.received is not None, **shown)
                elif not pipeline.complete:
                    run_until(pipeline, lambda: stop.received is not None)
            finally:
                self._release()
        if stop.received is not None:
            raise KeyboardInterrupt
        return self

    def step(self) -> Iteration:
        """Trains for one iteration: collects, updates, and evaluates if it is due.

        Raises:
            ConfigError: If the run is finished, or uses parallel mode.
            KeyboardInterrupt: After Ctrl-C, when everything is saved.
        """
        pipeline = self._opened()
        if not isinstance(pipeline, SerialPipeline):
            raise ConfigError(
                'the workers of parallel mode do not wait for each other: train() runs them all',
                where='parallel',
            )
        if pipeline.complete:
            raise ConfigError(
                'the run is finished',
                where=str(self.folder),
                remedy='resume(max_env_step=...) trains further.',
            )
        # train
        with Interrupt() as stop:
            try:
                pipeline.run(lambda _: True, lambda: stop.received is not None, supervised=True)
            except BaseException:
                self._release()
                raise
        # report
        self._take_facts()
        if stop.received is not None:
            self.close()
            raise KeyboardInterrupt
        counts = self.progress
        return Iteration(
            counts.envstep,
            counts.train_iter,
            counts.episodes,
            float(pipeline.collector.mean_return()),
            pipeline.evaluator.score,
            self.best,
        )

    def iterations(self) -> Iterator[Iteration]:
        """Yields after every iteration until the run is finished; leaving the loop saves and closes it."""
        try:
            while not self._opened().complete:
                yield self.step()
        finally:
            self.close()

    def resume(
        self, *, progress: bool | None = None, overrides: Mapping[str, Any] | None = None, **options: Any
    ) -> Self:
        """Trains further, from the newest checkpoint.

        Args:
            progress: Whether to show the progress; None: as ``start`` was told.
            overrides: Options by their dotted keys.
            options: Options by their short names, such as ``max_env_step`` or ``learning_rate``.

        Raises:
            ConfigError: If an option is unknown, or cannot change in a resumed run.
        """
        self.close()
        self._reopen({**options, **(overrides or {})})
        return self.train(progress)

    def close(self) -> None:
        """Saves the run, and closes it if it is open; ``step`` and ``resume`` open it again."""
        pipeline = self._pipeline
        if pipeline is None:
            return
        try:
            if isinstance(pipeline, SerialPipeline) and not pipeline.complete:
                pipeline.learner.call_hook('after_run')
                pipeline.checkpoints.save_latest()
        finally:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # results

    def evaluate(
        self,
        episodes: int = 100,
        seed: int = 0,
        which: Literal['best', 'latest'] = 'best',
        video: str | None = None,
    ) -> Score:
        """Scores a checkpoint on episodes that training never sees.

        Args:
            episodes: Number of episodes.
            seed: Seed of the episodes.
            which: ``'best'``: the checkpoint with the best evaluation, or the latest if there is none; ``'latest'``.
            video: Folder for films of the worst, the median and the best episode.
        """
        own: dict[str, Any] = dict(trust=self._trust, model=self._model, env=self._own_env)
        with preserved_rng():
            return score(self._checkpoint(which), Request(episodes, seed, video, **own))

    @property
    def policy(self) -> LoadedPolicy:
        """The policy, to act with: ``run.policy.act(obs)``; the current one while the run is open, else the best."""
        from rlframe.export.artifact import open_source
        from rlframe.export.loaded import LoadedPolicy, describe

        with preserved_rng():
            path = self._checkpoint('best' if self._pipeline is None else 'latest')
            source = open_source(path, self._trust, model=self._model, env=self._own_env)
        description = describe(source)
        frames = source.frame_stack
        return LoadedPolicy(source.policy, source.spec, description, source.opened.path, frames)

    def metrics(self) -> MetricColumns:
        """Returns all logged metrics: a column for each, NaN in records without it."""
        if self._pipeline is not None:
            self._pipeline.writer.flush()
        return read_columns(self.folder)

    def plot(self, *metrics: str, smooth: int = 1) -> Figure:
        """Draws curves over env steps, a panel for each metric.

        Args:
            metrics: Names of metrics; by default the return of evaluations.
            smooth: Number of values that each point is the mean of.

        Raises:
            ConfigError: If the run has no metric of that name.
            MissingDependencyError: If matplotlib is not installed.
        """
        from rlframe.app.figure import figure_of

        if self._pipeline is not None:
            self._pipeline.writer.flush()
        return figure_of([SavedRun(self.folder)], metrics, smooth=smooth)

    # state

    @property
    def finished(self) -> bool:
        """Whether nothing is left to train within the budgets; a closed run is opened for the answer, and closed again."""
        was_closed = self._pipeline is None
        complete = self._opened().complete
        if was_closed:
            self._release()
        return complete

    @property
    def _own_env(self) -> Any:
        """The env, if it is an object of this program."""
        env = self.config.env['env_id']
        return None if isinstance(env, str) else env

    def _checkpoint(self, which: str) -> Path:
        if which not in ('best', 'latest'):
            raise ConfigError('bad value', where='which', got=which, expected="'best' or 'latest'")
        best, latest = (self.folder / CKPT / name for name in ('best', 'latest'))
        if which == 'best' and best.exists():
            return best
        if isinstance(self._pipeline, SerialPipeline):
            self._pipeline.checkpoints.save_latest()
        return self._emergency() or latest

    def _emergency(self) -> Path | None:
        """Returns the checkpoint of an error that the run resumes from: the user named it, or there is no other."""
        has_other = self._pipeline is not None or (self.folder / CKPT / 'latest').exists()
        if self._failed is not None or has_other:
            return self._failed
        return next(iter(emergencies(self.folder)), None)

    def _opened(self) -> SerialPipeline | ParallelPipeline:
        """Returns the pipeline; a run that was closed continues from its newest checkpoint."""
        if self._pipeline is None:
            self._reopen({})
        assert self._pipeline is not None
        return self._pipeline

    def _reopen(self, changes: Mapping[str, Any]) -> None:
        start = self._emergency() or self.folder
        found = find_resumption(start, config.split_config(self.config), overrides=changes)
        self._open(found.cfg, found.folder, found.saved)
        self._failed = None

    def _open(
        self,
        cfg: ExperimentConfig,
        folder: Path | Callable[[], Path] | None,
        saved: OpenCheckpoint | None = None,
    ) -> None:
        if cfg.get('parallel') is None:
            self._pipeline = SerialPipeline(cfg, folder, self._model, saved, hooks=self._hooks)
        else:
            from rlframe.parallel.pipeline import ParallelPipeline

            self._pipeline = ParallelPipeline(cfg, folder, saved, hooks=self._hooks)
        self.config = cfg
        self.folder = self._pipeline.folder
        self._saved = saved
        self.env_name = self._pipeline.factory.spec.name
        self._take_facts()

    def _take_facts(self) -> None:
        pipeline = self._pipeline
        assert pipeline is not None
        self.progress = copy.copy(pipeline.progress)
        self.solved = pipeline.solved
        best = pipeline.evaluator.best
        if not isinstance(best, int | float):  # a metric's result
            self.best = self._best_saved()
        elif math.isfinite(best):
            self.best = float(best)

    def _release(self) -> None:
        """Closes envs and files."""
        if self._pipeline is not None:
            self._take_facts()
            self._pipeline.cleanup()
            self._pipeline = None

    def _read_facts(self) -> None:
        """Reads the progress of the run in an existing folder."""
        opened = open_checkpoint(self._checkpoint('latest'))
        state = opened.state(buffer=False)
        self.env_name = str(opened.manifest.get('env', self.env_name))
        self.progress.load_state_dict(state['progress'])
        loop = state.get('round', {})
        self.solved = bool(loop.get('stopped') or loop.get('past_goal'))
        self.best = self._best_saved()

    def _best_saved(self) -> float:
        best = self.folder / CKPT / 'best'
        score = read_manifest(best).get('score') if best.exists() else None
        return math.nan if score is None else float(score)

    def _commands(self, pipeline: object, interrupted: bool) -> Sequence[str]:
        """Returns a line with the next steps in Python."""
        own = ', env=...' if self._own_env is not None else ''
        own += ', model=...' if self._model is not None else ''
        if interrupted:
            return [f"resume: rlframe.open_run('{short_path(self.folder)}'{own}).resume()"]
        return [
            'next, with the returned run: .evaluate(), .plot(), .policy.act(obs), .resume(max_env_step=...)'
        ]

    def __repr__(self) -> str:
        found = None if math.isnan(self.best) else evaluation_of(self.folder, self.best)
        interval = '' if found is None or found.interval is None else f' (95 % interval {found.interval})'
        best = '' if math.isnan(self.best) else f', best evaluation {number_text(self.best)}{interval}'
        return (
            f'Run({short_path(self.folder)!r}: {self.config.policy.type} on {self.env_name},'
            f' {self.progress.envstep:,} env steps{best}{", solved" if self.solved else ""})'
        )
