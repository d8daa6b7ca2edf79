"""ParallelPipeline: a coordinator with a run folder, and the workers that it starts on this machine."""

from __future__ import annotations

import json
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rlframe.config import shared_fingerprint
from rlframe.config.schema import ExperimentConfig
from rlframe.data.faces import ACTING
from rlframe.errors import CheckpointMismatchError, ConfigError, RLFrameError, RunWarning, WorkerLostError
from rlframe.parallel import roles
from rlframe.parallel.coordinator import assembly
from rlframe.parallel.coordinator.assembly import CoordinatedRun, Version
from rlframe.parallel.coordinator.base_parallel_commander import BaseParallelCommander
from rlframe.parallel.coordinator.coordinator import STATE_NAME, Coordinator
from rlframe.parallel.roles import Crew
from rlframe.parallel.transport.messages import MAX_TEXT, Collected
from rlframe.pipeline import build, memory_needs
from rlframe.pipeline.build import LoopState, Part, TrainingRun
from rlframe.pipeline.checkpoints import Checkpoints, RunFacts
from rlframe.pipeline.hooks import LaterHooks, given_hooks
from rlframe.pipeline.reward_models import check_infos, make_reward_models
from rlframe.pipeline.run_output import RunOutput, decide_whether_over, nothing_left, write_counts
from rlframe.pipeline.training import run_shown, starting_point
from rlframe.registry import LAUNCHER_REGISTRY
from rlframe.reward_model.paid import check_reward_models
from rlframe.run.checkpoint_files import delete_folder
from rlframe.run.metrics import write_record
from rlframe.run.progress import Progress, spent_budgets
from rlframe.run.read_checkpoint import OpenCheckpoint
from rlframe.utils.every import Every
from rlframe.utils.files import whole_file
from rlframe.utils.seed import set_seed
from rlframe.worker.collector.episode_log import EpisodeLog, checked_sums
from rlframe.worker.evaluator.base_serial_evaluator import EvalResult
from rlframe.worker.evaluator.eval_metric import METRICS, evaluation_metrics

if TYPE_CHECKING:
    from rlframe.policy import Policy
    from rlframe.worker import IBuffer

LEAGUE = 'league.json'
"""File of a run folder with the payoff of the players of a league."""
logger = logging.getLogger('rlframe.evaluator')

PRINT_FREQ = 100
"""Train iterations between two records of the collectors, if the config has no ``collect_print_freq``."""
DISMISS_SECONDS = 5.0
"""Seconds that workers from elsewhere get to leave after an error."""
TICK = 0.05
"""Seconds between two looks at the workers."""
INEXACT = 'the workers of parallel mode run at their own pace'
"""Why two parallel runs with the same seed differ."""


def parallel_pipeline(
    input_cfg: str | Path | tuple[Mapping[str, Any], ...] | None,
    seed: int = 0,
    max_train_iter: int | None = None,
    max_env_step: int | None = None,
    overrides: Iterable[str] = (),
    resume_from: str | Path | None = None,
    progress: bool = False,
) -> Any:
    """Trains from a config of parallel mode in one call; the workers are started by this process.

    Args:
        input_cfg: Path of a config file, or main and create config, and DI-engine's system config if there is one;
            None: the config of the resumed run.
        seed: Seed of the experiment; a resumed run keeps its own.
        max_train_iter: Budget in train iterations.
        max_env_step: Budget in env steps.
        overrides: Options such as ``parallel.collector_num=4``.
        resume_from: A run folder or checkpoint to resume from.
        progress: Whether to show what the command line shows.

    Returns:
        The trained policy.

    Raises:
        WorkerLostError: If there is no collector or no learner for too long, or a worker dies again and again.
    """
    since = perf_counter()
    budgets: dict[str, Any] = dict(max_train_iter=max_train_iter, max_env_step=max_env_step)
    cfg, folder, saved = starting_point(
        input_cfg, resume_from, seed, parallel=True, overrides=list(overrides), **budgets
    )
    if cfg.get('parallel') is None:
        raise ConfigError(
            'this run is of serial mode', where=str(resume_from), remedy='serial_pipeline continues it.'
        )
    with ParallelPipeline(cfg, folder, saved) as pipeline:
        if progress:
            run_shown(pipeline, saved, since=since)
        elif pipeline.complete:
            warnings.warn(nothing_left(pipeline), RunWarning, stacklevel=2)
        else:
            pipeline.run()
        policy = build.make_policy(cfg, pipeline.factory.spec)
        if pipeline.policy_state is not None:
            policy.learn_mode.load_state_dict(pipeline.policy_state)
        return policy


class ParallelPipeline(TrainingRun, CoordinatedRun):
    """Trains a policy by a coordinator in this process, and by collectors and a learner in others.

    The coordinator tells it what happens; it writes the metrics and the checkpoints.

    Args:
        cfg: A compiled config of parallel mode.
        folder: Existing run folder, or a function that creates one; by default, a new one in the working directory.
        resume: A checkpoint to resume from, which may be open already.
        launches: Whether it starts workers itself; else they join from elsewhere.
        hooks: Hooks of the run beside those of the config: objects of ``RunHook``, or functions.
    """

    def __init__(
        self,
        cfg: ExperimentConfig,
        folder: Path | Callable[[], Path] | None = None,
        resume: Path | OpenCheckpoint | None = None,
        launches: bool = True,
        hooks: Any = (),
    ) -> None:
        super().__init__()
        self._given_hooks = given_hooks(hooks, True, 'local')
        self.cfg = cfg
        self.loop = LoopState()
        """Whether training has ended, in the terms of every run."""
        self.policy_state: Mapping[str, Any] | None = None
        """The last whole state of the learner's policy; None before the first."""
        self.episodes = EpisodeLog(0)
        """Returns and lengths of the episodes of all collectors."""
        self.variables: Mapping[str, float] = {}
        """Training variables and metrics of the learner's last report."""
        self.evaluations = 0
        """Number of evaluations completed since this object was created."""
        self._saved_at = -1  # train iteration of the last checkpoint
        self._saved: tuple[int, ...] = ()  # its counts
        # for each part, train iterations between the weights that acted and the newest
        self._behind: list[int] = []
        self._printed_at = 0
        self._output = RunOutput(cfg, folder, resume)
        self._closers.callback(self._output.close)
        try:
            self._setup(launches)
        except BaseException:
            self.cleanup()
            if not isinstance(folder, Path) and hasattr(self, 'folder'):  # this object created it
                delete_folder(self.folder)
            raise

    def _setup(self, launches: bool) -> None:
        cfg, saved = self.cfg, self._output.saved
        state = None if saved is None else saved.state()
        set_seed(cfg.seed)
        build.set_threads(cfg)
        self.factory = build.make_factory(cfg)
        policy = build.make_policy(cfg, self.factory.spec)
        commander = assembly.make_commander(cfg, self.factory.spec, policy.command_mode)
        check_reward_models(cfg, self.factory.spec)
        check_infos(cfg, self.factory)
        self.evaluator = commander
        """Knows the scores."""
        facts = RunFacts(cfg, self.factory.spec, lambda: self.evaluator.latest)
        if saved is not None and state is not None:
            _check_parallel(state, saved)
            facts.check_same(saved.manifest, saved.path)
            build.load_network(policy, state, saved.manifest, cfg, str(saved.path))
        memory_needs.check_memory(cfg, self.factory.spec)
        self._output.open(None if saved is None else saved.manifest.get('logs'))
        self.folder, self.writer = self._output.folder, self._output.writer
        """The run folder and the writer of metrics."""
        self.reward_models = make_reward_models(cfg, policy, self.factory)
        """What pays for rows beside the env, or in its place; None if the config names none."""
        self._assemble(commander, facts, policy)
        if not launches:
            self.coordinator.server.check_joinable()
        if saved is not None and state is not None:
            self._restore(state, saved)
        self._closers.callback(self.coordinator.close)
        self.coordinator.start()
        self.crew = self._make_crew() if launches else None
        """The workers that this object started; None if it starts none."""
        if not self.complete:
            self._output.begin(self.progress)

    def _assemble(self, commander: BaseParallelCommander, facts: RunFacts, policy: Policy) -> None:
        """Creates the coordinator and the parts that it needs in this process."""
        cfg = self.cfg
        data = assembly.make_data(cfg, tb_logger=self.writer, exp_name=str(self.folder))
        self.replay_buffer = cast('IBuffer | None', data.buffer)
        """Past transitions; None for an on-policy policy."""
        if self.replay_buffer is not None:
            build.give_goals(self.replay_buffer, self.factory)
        data.pay_by(self.reward_models, policy)
        self.coordinator = Coordinator(
            cfg, commander=commander, data=data, run=self, fingerprint=shared_fingerprint(cfg)
        )
        """Brings the workers together."""
        self.progress = self.coordinator.progress
        """Counters of the experiment."""
        self._later = LaterHooks(self, self._given_hooks)
        self.hooks = self._later.hooks
        """Hooks of the run."""
        self._inexact.reasons.append(INEXACT)
        self.checkpoints = self._make_checkpoints(facts)
        """Saves and restores all parts of the run."""
        self.checkpoints.on_saved = self._later.saved.append

    def _make_checkpoints(self, facts: RunFacts) -> Checkpoints:
        return Checkpoints(
            {  # in the order in which they are restored
                'policy': Part(lambda: self.policy_state or {}, partial(setattr, self, 'policy_state')),
                'progress': self.progress,
                'replay_buffer?': self.replay_buffer,
                'reward_models?': self.reward_models,
                'episodes': self.episodes,
                'coordinator': self.coordinator,
                'round': self.loop,
                'hooks?': self._later,
            },
            facts,
            folder=self.folder,
            writer=self.writer,
            options=self.cfg.checkpoint,
            inexact=self._inexact,
            settle=self._settle,
        )

    def _make_crew(self) -> Crew:
        parallel, coordinator = self.cfg.parallel, self.coordinator
        kind = LAUNCHER_REGISTRY.get(parallel.comm_collector.type)
        server, count = coordinator.server, parallel.collector_num
        names = ['collector'] if count == 1 else [f'collector-{i}' for i in range(count)]
        seats = [('learner', 'learner'), *(('collector', name) for name in names)]
        launcher = kind(roles.worker_config(self.cfg, server), server, seats)
        grace = parallel.coordinator.worker_deadline
        crew = Crew(launcher, coordinator, parallel.max_restarts, parallel.restart_window, grace)
        self._closers.callback(crew.end)
        return crew

    # what the coordinator tells

    def is_spent(self, progress: Progress, updates_due: int) -> bool:
        after = Progress(progress.envstep, progress.train_iter + updates_due)
        return bool(spent_budgets(self.cfg, after))

    def collected(self, message: Collected, progress: Progress) -> None:
        """Counts the episodes that ended, and writes a record every ``collect_print_freq``."""
        facts = message.facts
        episodes = np.array(facts.get('episodes', []), np.float64)
        self.episodes.add(episodes.reshape(-1, 3), checked_sums(facts.get('infos')))
        self._behind.append(max(progress.train_iter - message.train_iter, 0))
        every = Every.of(self.cfg.policy.collect.collector.get('collect_print_freq') or PRINT_FREQ)
        now = every.now(progress.train_iter, progress.envstep)
        if every.has_passed(self._printed_at, now) and self.episodes.has_recent():
            self._printed_at = now
            behind = float(np.mean(self._behind))
            self._behind = []
            values = {**self.episodes.summary(), 'parallel/staleness': behind}
            values['parallel/stale'] = float(self.coordinator.data.stale)
            write_record(self.writer, values, progress.envstep, train_iter=progress.train_iter)

    def learned(self, info: Mapping[str, float], progress: Progress) -> None:
        """Writes the metrics of a learner."""
        self.variables = {**self.variables, **info}
        tagged = {name: value for name, value in info.items() if '/' in name}
        if tagged:
            write_record(self.writer, tagged, progress.envstep, train_iter=progress.train_iter)

    def evaluated(self, facts: Mapping[str, Any], weights: Version | None, is_best: bool) -> None:
        """Writes the result of an evaluation, and saves the evaluated policy if it is the best."""
        self.evaluations += 1
        score = float(facts['score'])
        progress = self.progress
        commander = self.coordinator.commander
        train_iter = progress.train_iter if weights is None else weights.train_iter
        info = facts.get('episode_info', {})
        info = {**info, 'eval_episode_return': info.get('eval_episode_return') or [score]}
        options = self.cfg.policy.eval.evaluator
        duration = float(facts.get('duration', math.nan))
        metrics = options.get('metrics', METRICS.default)
        values = evaluation_metrics(info, duration, metrics, options.get('info_metrics', 'all'))
        values |= {'eval/mean_reward': score, **commander.metrics()}
        write_record(self.writer, values, progress.envstep, train_iter=train_iter)
        settings = commander.settings(self.coordinator.situation())
        more = {} if self.reward_models is None else self.reward_models.metrics()
        write_counts(self.writer, progress, self.replay_buffer, settings, more)
        at = progress.envstep, train_iter
        logger.info('evaluation at envstep %d, train_iter %d: score %.2f', *at, score)
        if table := commander.table():
            with whole_file(self.folder / LEAGUE) as draft:
                draft.write_text(json.dumps(table, indent=1), encoding='ascii')
        result = EvalResult(commander.stopped, info, train_iter, progress.envstep, score, is_best)
        self._later.results.append(result)
        if is_best and weights is not None:
            policy = {name: value for name, value in weights.weights.items() if name != ACTING}
            counters = {**progress.state_dict(), 'train_iter': train_iter}
            self.checkpoints.publish_best({'policy': policy, 'progress': counters}, score)

    def take_state(self, state: Any, train_iter: int) -> None:
        """Saves a checkpoint with the state of the learner."""
        self.policy_state = state['policy']
        self._saved_at = train_iter
        self._save()

    def _counts(self) -> tuple[int, ...]:
        """Returns what changes between two checkpoints; data and scores come without an update, too."""
        progress = self.progress
        return progress.train_iter, progress.envstep, self.coordinator.received, self.evaluations

    # state

    def _settle(self, name: str) -> None:
        """Brings the counters up to date before a checkpoint is saved."""
        self.progress.wall_time = self.coordinator.situation().seconds
        self.loop.stopped = self.coordinator.commander.stopped

    def _restore(self, state: Mapping[str, Any], saved: OpenCheckpoint) -> None:
        self.checkpoints.restore(state, saved.manifest, saved.path)
        at = self.progress.train_iter
        whole = {'policy': self.policy_state, 'progress': self.progress.state_dict()}
        self.coordinator.keep_state(whole, at)
        if 'config' in saved.manifest:
            decide_whether_over(self, saved.manifest['config']['main_config'])
            commander = self.coordinator.commander
            commander.stopped = self.loop.stopped
            if self.loop.past_goal:
                commander.stop_value = None

    @property
    def title(self) -> str:
        """The policy and its env, in words."""
        return f'{self.cfg.policy.type} on {self.factory.spec.name} in parallel'

    @property
    def finished(self) -> bool:
        """Whether training is complete."""
        return self.stopped or bool(self.hooks.stop_reason) or self.is_spent(self.progress, 0)

    @property
    def complete(self) -> bool:
        """Whether nothing remains to be done, the last evaluation included."""
        return self.coordinator.commander.is_complete(self.coordinator.situation())

    # running

    def run(self, after_tick: Callable[[ParallelPipeline], bool] | None = None) -> None:
        """Trains until an evaluation reaches the stop value or a budget is spent, and lets the workers leave.

        Args:
            after_tick: Called several times a second; training stops early if it returns True.

        Raises:
            WorkerLostError: If there is no collector or no learner for too long, or a worker dies again and again.
        """
        self._output.take_log()
        try:
            self.hooks.call('before_run')
            if self.crew is not None:
                self.crew.start()
            self._watch(after_tick)
            self._leave(after_tick)
        except BaseException as error:
            self._give_up(error)
            self.hooks.fail(error)
            raise
        finally:
            self.loop.stopped = self.coordinator.commander.stopped
            self.writer.flush()

    def _watch(self, after_tick: Callable[[ParallelPipeline], bool] | None) -> None:
        while not self.coordinator.system_shutdown_flag:
            if self.crew is not None:
                self.crew.look()
            self.coordinator.check()
            self.progress.wall_time = self.coordinator.situation().seconds
            self._later.call()
            if self.hooks.stop_reason:
                self.coordinator.shut_down(f'a hook ended training: {self.hooks.stop_reason}'[:MAX_TEXT])
            if after_tick is not None and after_tick(self):
                self.coordinator.shut_down('the run was interrupted')
            time.sleep(TICK)

    def _leave(self, after_tick: Callable[[ParallelPipeline], bool] | None) -> None:
        """Waits until the workers have left, as their last data and states still arrive; then saves."""
        self._wait(self.cfg.parallel.close_timeout, after_tick)
        self._end()
        self.coordinator.raise_failure()
        self.loop.stopped = self.coordinator.commander.stopped
        self._later.call()
        self.hooks.end(self.solved, self.finished)
        self.save_latest()

    def _wait(self, seconds: float, after_tick: Callable[[ParallelPipeline], bool] | None = None) -> None:
        """Waits until all workers have left, for so many seconds at most."""
        end = monotonic() + seconds
        while monotonic() < end and self.coordinator.workers.by_id:
            if after_tick is not None:
                after_tick(self)
            time.sleep(TICK)

    def _end(self) -> None:
        if self.crew is not None:
            self.crew.end()
        self.coordinator.close()

    def _give_up(self, error: BaseException) -> None:
        """Ends all workers after an error, and saves an emergency checkpoint if there is a state to save."""
        lost = error.message if isinstance(error, WorkerLostError) else ''
        try:
            if lost and self.crew is None:  # workers from elsewhere are told
                self.coordinator.shut_down(lost[:MAX_TEXT])
                self._wait(min(self.cfg.parallel.close_timeout, DISMISS_SECONDS))
            self._end()
            if lost:  # no request was half handled, so this is a state to resume from
                self.save_latest()
        except RLFrameError as second:
            error.add_note(f'and then: {second}')
        if self._has_state():
            self.checkpoints.leave_after(error)

    def _has_state(self) -> bool:
        """Takes the state that the learner last sent for its successor unless a newer one was saved.

        Returns:
            Whether there is a state at all.
        """
        spare = self.coordinator.weights.get(STATE_NAME)
        if spare is not None and spare.train_iter >= self._saved_at:
            self.policy_state = spare.weights['policy']
        return self.policy_state is not None

    def save_latest(self) -> None:
        """Saves a checkpoint unless the last one is of the present state; call it when all workers have left."""
        if self._has_state() and self._saved != self._counts():
            self._save()

    def _save(self) -> None:
        self.checkpoints.save_latest(again=True)
        self._saved = self._counts()


def _check_parallel(state: Mapping[str, Any], saved: OpenCheckpoint) -> None:
    if 'coordinator' not in state:
        raise CheckpointMismatchError(
            'this checkpoint is of a serial run',
            where=str(saved.path),
            remedy='Resume it without -m, or begin with its weights: policy.init_from.',
        )
