"""SerialPipeline: the only training loop. It creates the workers of a config and calls them in turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rlframe.config.rules import check_serial
from rlframe.config.schema import ExperimentConfig
from rlframe.display.text import count_of
from rlframe.pipeline import build, memory_needs
from rlframe.pipeline.build import LoopState, Part, TrainingRun, collector_part
from rlframe.pipeline.checkpoints import Checkpoints, RunFacts
from rlframe.pipeline.given_data import GivenData
from rlframe.pipeline.hooks import given_hooks
from rlframe.pipeline.learner_aggregator import make_learners
from rlframe.pipeline.recording import Record, check_record
from rlframe.pipeline.reward_models import check_infos, make_reward_models
from rlframe.pipeline.run_output import RunOutput, decide_whether_over, unused, write_counts
from rlframe.reward_model.paid import check_reward_models
from rlframe.run.child_process import StallDetector
from rlframe.run.exit_guard import exits_as_errors
from rlframe.run.progress import COLLECT, EVALUATE, LEARN, ONLINE, Progress, TimeSplit, spent_budgets
from rlframe.run.read_checkpoint import OpenCheckpoint, open_checkpoint
from rlframe.utils.seed import global_rng_state, set_global_rng_state, set_seed
from rlframe.worker.collector.base_serial_collector import SCHEDULE
from rlframe.worker.commander import checked_answer
from rlframe.worker.curriculum import Curriculum, Seen
from rlframe.worker.hooks.run_hook import HookList

if TYPE_CHECKING:
    from rlframe.worker import IBuffer

logger = logging.getLogger('rlframe.pipeline')

MAX_IDLE_ROUNDS = 10_000
"""Rounds of collection in a row without enough data for an update, after which training stops with an error."""


class _EvaluationGivenUp(Exception):  # noqa: N818  a signal to the loop, which no user sees
    """Aborts an evaluation because the run is to stop."""


class SerialPipeline(TrainingRun):
    """Trains a policy in this process, one round at a time.

    Config errors are raised before the run folder is created.

    Args:
        cfg: A compiled config.
        folder: Existing run folder; None: a new one is created last, so a config that fails leaves nothing behind.
        model: A network that replaces the one named in the config.
        resume: A checkpoint to resume from, which may be open already; metrics of later rounds in the folder are removed.
        clone_key: If the run that saved the checkpoint continues too: a number from which this run derives different
            random generators.
        hooks: Hooks of the run beside those of the config: objects of ``RunHook``, or functions.
    """

    def __init__(
        self,
        cfg: ExperimentConfig,
        folder: Path | Callable[[], Path] | None = None,
        model: Any = None,
        resume: Path | OpenCheckpoint | None = None,
        clone_key: int | None = None,
        hooks: Any = (),
    ) -> None:
        super().__init__()
        self._model = model
        self._given_hooks = given_hooks(hooks, False, cfg.policy.collect.collector.get('backend', 'local'))
        try:
            self._set_up(cfg, folder, resume, clone_key)
        except BaseException:
            self.cleanup()
            raise

    def _set_up(
        self,
        cfg: ExperimentConfig,
        folder: Path | Callable[[], Path] | None,
        resume: Path | OpenCheckpoint | None,
        clone_key: int | None,
    ) -> None:
        """Creates all workers."""
        check_serial(cfg)
        check_record(cfg, resume is None)
        # state of the loop
        self.cfg = cfg
        self.progress = Progress()
        """Counters of the experiment."""
        self.times = TimeSplit()
        """Time spent collecting, learning and evaluating."""
        self.loop = LoopState()
        """State of the loop itself."""
        self.evaluations = 0
        """Number of evaluations completed in this process."""
        self._begun = False
        self._beat: Callable[[], None] | None = None  # while it runs: tells the stall detector of progress
        # checkpoint to resume from
        output = RunOutput(cfg, folder, resume)
        self._closers.callback(output.close)
        saved = output.saved
        state = None if saved is None else saved.state()
        # envs, replay buffer and policy: what fails here leaves no run folder
        build.set_threads(cfg)
        set_seed(cfg.seed)
        self.factory = build.make_factory(cfg)
        self.collection = build.collector_backend(cfg, self.factory)
        """Backend of the collector."""
        self._closers.callback(self.collection.close)
        self.replay = build.buffer_backend(cfg, self.factory)
        """Backend of the replay buffer."""
        self._closers.callback(self.replay.close)
        self._given = GivenData(cfg, self.factory.spec)
        self._facts = RunFacts(cfg, self.factory.spec, lambda: self.evaluator.score, self.times.seconds)
        if saved is not None:
            self._facts.check_same(saved.manifest, saved.path)
        check_reward_models(cfg, self.factory.spec)
        check_infos(cfg, self.factory)
        self.policy = build.make_policy(cfg, self.factory.spec, self._model)
        """The policy that is being trained."""
        if saved is not None and state is not None:  # fails before the run folder is touched
            build.load_network(self.policy, state, saved.manifest, cfg, str(saved.path))
        self.evaluation = build.evaluator_backend(cfg, self.factory)
        """Backend of the evaluator."""
        self._closers.callback(self.evaluation.close)
        memory_needs.check_memory(cfg, self.factory.spec, self.policy)
        self.reward_models = make_reward_models(cfg, self.policy, self.factory)
        """What the run pays for beside the env's reward; None if nothing."""
        # run folder, workers and their saved state
        output.open(None if saved is None else saved.manifest.get('logs'))
        self._take_log = output.take_log
        self.folder, self.writer = output.folder, output.writer
        """The run folder and the writer of metrics."""
        self._make_workers()
        if saved is not None and state is not None:
            self._restore(state, saved, clone_key)
        elif self.replay_buffer is not None:
            self._given.push(self.replay_buffer, self.policy)
        if not self.complete:
            output.begin(self.progress)

    def _make_workers(self) -> None:
        cfg = self.cfg
        common = {'tb_logger': self.writer, 'exp_name': str(self.folder)}
        self.replay_buffer = self._given.beside(self.replay.make_buffer(cfg, **common))
        """Past transitions; None for an on-policy policy."""
        if self.replay_buffer is not None:
            learn = cfg.policy.learn
            self._batch_size, self._update_per_collect = learn.batch_size, learn.update_per_collect
        if (group := make_learners(cfg, self.policy)) is not None:
            self._closers.callback(group.close)
        self.learner = build.make_learner(cfg, self.policy, group, progress=self.progress, **common)
        self.collector = self.collection.make_collector(cfg, self.policy, progress=self.progress, **common)
        self.evaluator = build.make_evaluator(cfg, self.evaluation, self.policy, self.factory.spec, **common)
        self.commander = build.make_commander(self)
        self.curriculum = Curriculum(cfg.env.get('schedule') or {})
        """Values of ``env.schedule``."""
        self.hooks = HookList.of(self, self._given_hooks, 'policy', 'collector', 'learner')
        """Hooks of the run."""
        self.record: Record | None = None
        """What the run records beside training."""
        if cfg.policy.collect.get('record') is not None:
            self.record = Record(cfg, self.factory.spec, self.folder)
            self.collector.episode_recorder = self.record.recorder  # type: ignore[attr-defined]  # rules.py checks it
            self._closers.callback(self._finish_record)
        self._inexact.note(self.collector.why_inexact)
        self.checkpoints = self._make_checkpoints()
        """Saves and restores all of these."""
        self.learner.checkpoint_fn, self.checkpoints.on_saved = self.checkpoints.request, self.hooks.saved

    def _make_checkpoints(self) -> Checkpoints:
        return Checkpoints(
            {  # in the order in which they are restored
                'policy': self.policy.learn_mode,
                'progress': self.progress,
                'monitor': Part(  # a learner gets a new monitor with another policy
                    lambda: self.learner.monitor.state_dict(),
                    lambda state: self.learner.monitor.load_state_dict(state),
                ),
                'collector': collector_part(self.collector, self._inexact.note),
                'record?': None if self.record is None else self.record.recorder,
                'replay_buffer?': self.replay_buffer,
                'reward_models?': self.reward_models,
                'evaluator': self.evaluator,
                'rng': Part(global_rng_state, set_global_rng_state),
                'round': self.loop,
                'learner_hooks?': Part(self.learner.hook_state, self.learner.load_hook_state),
                'commander?': self.commander,
                'curriculum?': self.curriculum,
                'hooks?': self.hooks,
            },
            self._facts,
            folder=self.folder,
            writer=self.writer,
            options=self.cfg.checkpoint,
            inexact=self._inexact,
            settle=self._settle,
        )

    @property
    def title(self) -> str:
        """The policy and where its training samples come from, in words."""
        return f'{self.cfg.policy.type} on {self.collection.summary(self.cfg)}'

    @property
    def finished(self) -> bool:
        """Whether training is complete."""
        return self.stopped or bool(self.hooks.stop_reason or spent_budgets(self.cfg, self.progress))

    @property
    def complete(self) -> bool:
        """Whether a finished run has all its evaluations, i.e. was not interrupted during the last ones."""
        evaluated = self.stopped or self.loop.evaluated_at == self.progress.train_iter
        return self.finished and evaluated and not self.evaluator.pending

    @property
    def is_offline(self) -> bool:
        """Whether it learns from given data alone, before the first env step."""
        return self.progress.train_iter < self._given.updates

    @property
    def _goes_online(self) -> bool:
        """Whether the next round is the first that collects, after updates from given data."""
        return not self.loop.warm and 0 < self._given.updates == self.progress.train_iter

    def step(self) -> dict[str, Any]:
        """Runs one round: evaluates if it is due, collects, trains; without collecting as long as it is offline.

        Returns:
            Counters and the latest scores, always under the same keys.
        """
        start = perf_counter()
        self._take_log()
        self.times.start()
        self._given_up = False
        if self._goes_online:
            self._evaluate()
        if not (self.loop.warm or self.is_offline or self._given_up or self.loop.stopped):
            self.loop.warm = True
            build.fill_at_random(self)
            self.times.lap(COLLECT)

        # evaluate
        if not self._given_up:
            self._evaluate()

        if not (self.loop.stopped or self._given_up or self.hooks.run.stop_reason):
            self._learn(None if self.is_offline else self._collect())

        # log and save
        self.progress.wall_time += perf_counter() - start
        if self.hooks.methods['after_round']:
            self.hooks.call('after_round')
        if self.checkpoints.requested:
            self.checkpoints.finish_round()
        return self.result()

    def _collect(self) -> Any:
        """Collects, and returns the data for the replay buffer or, on-policy, for the learner."""
        self.commander.begin_round()
        if self.hooks.methods['before_collect']:
            self.hooks.call('before_collect')
        collected = self.collector.collect(
            checked_answer(self.commander.collect_target, least=1),
            train_iter=self.progress.train_iter,
            policy_kwargs=self._settings(),
        )
        self.progress.envstep = self.collector.envstep
        if self.hooks.methods['after_collect']:
            self.hooks.run.collected = collected  # nobody else keeps it
            self.hooks.call('after_collect')
        data = self.collector.training_data(collected)
        self.times.lap(COLLECT)
        return data

    def _learn(self, data: Any) -> None:
        """Pushes new data, and trains on batches of the replay buffer; an on-policy policy learns from the new data.

        ``data`` are None as long as the run is offline.
        """
        if self.reward_models is not None and data is not None:
            data = self.reward_models.pay(data)
        batches: Iterable[Any] = (data,)
        if self.replay_buffer is not None:
            if data is not None:
                self.replay_buffer.push(data, self.progress.envstep)
            batches = self._sampled(self.replay_buffer)
        learn_settings = self.commander.learn_settings()
        for batch in batches:
            if self.reward_models is not None and self.replay_buffer is not None:
                batch = self.reward_models.pay_sampled(batch)
            self.learner.train(batch, self.progress.envstep, learn_settings)
            if self.replay_buffer is not None and self.learner.priority_info:
                self.replay_buffer.update(self.learner.priority_info)
            if self._beat is not None:
                self._beat()
        self.times.lap(LEARN)

    def _settings(self) -> dict[str, Any]:
        """Returns the settings of the next collection: the commander's, and the values of the curriculum if there is one."""
        settings = self.commander.step()
        if not self.curriculum.rules:
            return settings
        progress, section = self.progress, self.cfg.policy.collect.collector
        env_num = self.cfg.env.collector_env_num * section.get('num_collectors', 1)
        seen = Seen(progress.envstep, progress.episodes, env_num, self.collector.last_episodes())
        return settings | {SCHEDULE: self.curriculum.follow(seen)}

    def _sampled(self, replay_buffer: IBuffer) -> Iterable[Any]:
        """Returns the batches of a round from the replay buffer; none until it contains enough."""
        have = replay_buffer.count()
        size = self._batch_size
        if have < size:
            self.loop.idle(have, size, MAX_IDLE_ROUNDS)
            return ()
        self.loop.idle_rounds = 0
        count = checked_answer(self.commander.update_per_collect, least=0)
        count = self._update_per_collect if count is None else count
        if self.is_offline:
            count = min(max(count, 1), self._given.updates - self.progress.train_iter)
        return replay_buffer.batches(count, size, self.progress.train_iter)

    def _evaluate(self, at_the_end: bool = False) -> None:
        progress = self.progress
        before = (self.evaluator.last_due, self.loop.evaluated_at)
        is_due = self.evaluator.should_eval(progress.train_iter, progress.envstep)
        if is_due or ((at_the_end or self._goes_online) and self.loop.evaluated_at != progress.train_iter):
            self.loop.evaluated_at = progress.train_iter
            try:
                self._submit()
            except _EvaluationGivenUp:  # a resumed run repeats it
                self.evaluator.last_due, self.loop.evaluated_at = before
                self._given_up = True
                return
            self.times.lap(EVALUATE)
            settings = self.commander.step()
            more = self.times.metrics() | self.curriculum.metrics()
            if self._goes_online:
                more |= {ONLINE: float(progress.train_iter)}
            if self.reward_models is not None:
                more |= self.reward_models.metrics()
            write_counts(self.writer, self.progress, self.replay_buffer, settings, more)
        self._take_evaluations()

    def _submit(self) -> None:
        """Requests an evaluation; if its result comes later, the current policy is copied."""
        progress, later = self.progress, self.evaluator.answers_later
        self.evaluator.submit(
            None if later else self.checkpoints.save_best, progress.train_iter, progress.envstep
        )
        if later:
            self.checkpoints.keep_until_scored()

    def _take_evaluations(self) -> None:
        for result in self.evaluator.poll():
            self.evaluations += 1
            self.loop.stopped = self.stopped or (result.stop and not self.past_goal)
            self.hooks.evaluated(result)
            if self.evaluator.answers_later:
                self.checkpoints.save_if_best(result.score, result.is_best)

    def _finish_evaluations(self) -> None:
        """Waits for the results of pending evaluations; aborted ones are saved in the checkpoint."""
        try:
            self.evaluator.wait()
        except _EvaluationGivenUp:
            self._given_up = True
        self._take_evaluations()

    def run(
        self,
        after_step: Callable[[SerialPipeline], bool] | None = None,
        interrupted: Callable[[], bool] | None = None,
        supervised: bool = False,
    ) -> None:
        """Trains until an evaluation reaches the stop value or a budget is spent.

        Args:
            after_step: Called after each round; training stops early if it returns True.
            interrupted: Called during evaluations, which are aborted if it returns True: a resumed run repeats them.
            supervised: Whether training that stopped early continues in a later call, and a lack of progress is an
                error.
        """
        # watch over progress
        stall = StallDetector(self.cfg.stall_timeout, raises=supervised)

        def on_eval_step() -> None:
            stall.beat()
            if interrupted is not None and interrupted():
                raise _EvaluationGivenUp

        self._take_log()
        self._beat = stall.beat
        self.evaluator.on_step = on_eval_step
        self.collector.on_step = self.hooks.on_step(stall.beat)
        # train
        try:
            with exits_as_errors():
                if not self._begun:
                    self._begun = True
                    self.learner.call_hook('before_run')
                    self.hooks.call('before_run')
                while not self.finished:
                    self.step()
                    stall.beat()
                    if after_step is not None and after_step(self):
                        break
                self._end(supervised)
        except BaseException as error:
            self.checkpoints.leave_after(error)
            self.hooks.fail(error)
            raise
        finally:
            stall.close()
            self._beat = self.evaluator.on_step = self.collector.on_step = None
            self.writer.flush()
        for text in unused(self, supervised):
            logger.warning(text)

    def _end(self, may_go_on: bool) -> None:
        """Finishes a run: last evaluation, hooks, requested checkpoints."""
        if self.finished and not self.stopped:
            self.times.start()
            self._evaluate(at_the_end=True)
        if self.finished:
            self._finish_evaluations()
        if self.finished or not may_go_on:
            self.learner.call_hook('after_run')
            self.hooks.end(self.solved, self.finished)
            if self.hooks.stop_reason:
                self.checkpoints.save_latest()
            else:
                self.checkpoints.finish_round()

    def result(self) -> dict[str, Any]:
        """Returns counters and the latest scores."""
        return {
            **self.progress.state_dict(),
            'rollout/ep_rew_mean': self.collector.mean_return(),
            **self.evaluator.summary(),
            'stopped': self.loop.stopped,
        }

    # checkpoints

    def save_checkpoint(self, path: Path) -> Path:
        """Saves everything that the next round depends on."""
        return self.checkpoints.save(Path(path))

    def load_checkpoint(self, path: Path) -> None:
        """Resumes from a checkpoint of ``save_checkpoint``.

        Raises:
            CheckpointError: If it is missing or damaged, or was made by another policy or for another env.
        """
        saved = open_checkpoint(path)
        self._restore(saved.state(), saved)

    def _restore(self, state: Mapping[str, Any], saved: OpenCheckpoint, clone_key: int | None = None) -> None:
        self.checkpoints.restore(state, saved.manifest, saved.path, clone_key)
        if not self.evaluator.answers_later and (count := self.checkpoints.forget_unscored()):
            self.loop.evaluated_at = -1  # perhaps the last one of the run
            self._inexact.note(
                f'the run leaves out {count_of(count, "evaluation")} that had begun in an actor'
            )
        self.learner.ckpt_name = saved.path.name
        self.times.resume(saved.manifest.get('seconds', {}))
        if 'config' in saved.manifest:
            decide_whether_over(self, saved.manifest['config']['main_config'])

    def _settle(self, name: str) -> None:
        """Brings the workers to a state that a run can resume from; ``name`` is the checkpoint's."""
        self.learner.ckpt_name = name
        self.collector.settle()

    def _finish_record(self) -> None:
        assert self.record is not None
        self.record.finish(self.complete)
