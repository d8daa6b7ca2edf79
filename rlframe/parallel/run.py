"""ParallelRun: what a coordinator tells its run is written here: metrics, the best policy, checkpoints."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.parallel.coordinator.assembly import CoordinatedRun, Version
from rlframe.parallel.held_weights import ACTING
from rlframe.parallel.transport.messages import Collected
from rlframe.pipeline.checkpoints import Checkpoints
from rlframe.pipeline.run_output import write_counts
from rlframe.run.checkpoint_files import replace_file
from rlframe.run.metric_writer import MetricWriter
from rlframe.run.metrics import write_record
from rlframe.run.progress import Progress, spent_budgets
from rlframe.worker.collector.episode_log import EpisodeLog, checked_sums
from rlframe.worker.evaluator.base_serial_evaluator import EvalResult
from rlframe.worker.evaluator.eval_metric import METRICS, evaluation_metrics

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.parallel.coordinator.coordinator import Coordinator
    from rlframe.worker import IBuffer

LEAGUE = 'league.json'
"""File of a run folder with the payoff of the players of a league."""
logger = logging.getLogger('rlframe.evaluator')

PRINT_FREQ = 100
"""Train iterations between two records of the collectors, if the config has no ``collect_print_freq``."""


class LearnedPolicy:
    """The last whole state of the learner's policy; the part ``policy`` of a checkpoint."""

    def __init__(self) -> None:
        self.state: Mapping[str, Any] | None = None
        """Weights, optimizer and whatever else the policy has; None before the first."""

    def state_dict(self) -> Mapping[str, Any]:
        """Returns the last state."""
        assert self.state is not None, 'no learner has sent its state'
        return self.state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes a state of a checkpoint."""
        self.state = state


class ParallelRun(CoordinatedRun):
    """Writes the metrics and checkpoints of a parallel run, and knows its budgets.

    Args:
        cfg: The config of the run.
        writer: The metrics of the run.
        folder: The run folder.
        buffer: The replay buffer, or None.
    """

    coordinator: Coordinator
    """The coordinator, which is set before the first worker joins."""
    checkpoints: Checkpoints
    """Saves all parts of the run; set likewise."""
    on_evaluated: Callable[[EvalResult], object]
    """Receives the result of each evaluation; set likewise."""

    def __init__(
        self, cfg: ExperimentConfig, writer: MetricWriter, folder: Path, buffer: IBuffer | None
    ) -> None:
        self._cfg, self._writer, self._folder, self._buffer = cfg, writer, folder, buffer
        self.policy = LearnedPolicy()
        """The last state of the learner's policy."""
        self.episodes = EpisodeLog(0)
        """Returns and lengths of the episodes of all collectors."""
        self.variables: Mapping[str, float] = {}
        """Training variables and metrics of the learner's last report."""
        self.evaluations = 0
        """Number of evaluations completed since this object was created."""
        self.saved_at = -1
        """Train iteration of the last checkpoint."""
        self._saved: tuple[int, ...] = ()  # the counts at the last checkpoint
        # for each part, train iterations between the weights that acted and the newest
        self._behind: list[int] = []
        self._print_freq = cfg.policy.collect.collector.get('collect_print_freq') or PRINT_FREQ
        self._printed_at = 0

    def is_spent(self, progress: Progress, updates_due: int) -> bool:
        """Returns whether a budget is spent, if the due updates are made, too."""
        after = Progress(progress.envstep, progress.train_iter + updates_due)
        return bool(spent_budgets(self._cfg, after))

    def collected(self, message: Collected, progress: Progress) -> None:
        """Counts the episodes that ended, and writes a record from time to time."""
        facts = message.facts
        columns = [facts.get(name, []) for name in ('returns', 'lengths', 'successes')]
        entries = np.array(
            [
                [math.nan if value is None else float(value) for value in row]
                for row in zip(*columns, strict=True)
            ]
        )
        self.episodes.add(entries.reshape(-1, 3), checked_sums(facts.get('infos')))
        self._behind.append(max(progress.train_iter - message.train_iter, 0))
        if progress.train_iter - self._printed_at >= self._print_freq and self.episodes.has_recent():
            self._printed_at = progress.train_iter
            values = {**self.episodes.summary(), 'parallel/staleness': self.take_staleness()}
            write_record(self._writer, values, progress.envstep, train_iter=progress.train_iter)

    def take_staleness(self) -> float:
        """Returns by how many train iterations collected data were late on average since the last call."""
        behind, self._behind = self._behind, []
        return float(np.mean(behind)) if behind else 0.0

    def learned(self, info: Mapping[str, float], progress: Progress) -> None:
        """Writes the metrics of a learner."""
        self.variables = {**self.variables, **info}
        tagged = {name: value for name, value in info.items() if '/' in name}
        if tagged:
            write_record(self._writer, tagged, progress.envstep, train_iter=progress.train_iter)

    def evaluated(self, facts: Mapping[str, Any], weights: Version | None, is_best: bool) -> None:
        """Writes the result of an evaluation, and saves the evaluated policy if it is the best."""
        self.evaluations += 1
        coordinator, score = self.coordinator, float(facts['score'])
        commander, progress = coordinator.commander, coordinator.progress
        train_iter = progress.train_iter if weights is None else weights.train_iter
        info = facts.get('episode_info', {})
        info = {**info, 'eval_episode_return': info.get('eval_episode_return') or [score]}
        options = self._cfg.policy.eval.evaluator
        values = evaluation_metrics(
            info,
            float(facts.get('duration', math.nan)),
            options.get('metrics', METRICS.default),
            options.get('info_metrics', 'all'),
        )
        values |= {'eval/mean_reward': score, **commander.metrics()}
        write_record(self._writer, values, progress.envstep, train_iter=train_iter)
        write_counts(self._writer, progress, self._buffer, commander.settings(coordinator.situation()))
        logger.info(
            'evaluation at envstep %d, train_iter %d: score %.2f', progress.envstep, train_iter, score
        )
        if table := commander.table():
            replace_file(self._folder / LEAGUE, json.dumps(table, indent=1).encode())
        self.on_evaluated(EvalResult(commander.stopped, info, train_iter, progress.envstep, score, is_best))
        if is_best and weights is not None:
            policy = {name: value for name, value in weights.weights.items() if name != ACTING}
            counters = {**progress.state_dict(), 'train_iter': train_iter}
            self.checkpoints.publish_best({'policy': policy, 'progress': counters}, score)

    def take_state(self, state: Any, train_iter: int) -> None:
        """Saves a checkpoint with the state of the learner."""
        self.policy.state = state['policy']
        self.saved_at = train_iter
        self.save_latest()

    def save_latest(self) -> None:
        """Saves a checkpoint, as data and scores may have come since the last one of the same train iteration."""
        self.checkpoints.save_again()
        self._saved = self._counts()

    @property
    def is_saved(self) -> bool:
        """Whether nothing has happened since the last checkpoint."""
        return self._saved == self._counts()

    def _counts(self) -> tuple[int, ...]:
        progress = self.coordinator.progress
        return progress.train_iter, progress.envstep, self.coordinator.received, self.evaluations
