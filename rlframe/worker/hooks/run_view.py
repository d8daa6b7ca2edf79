"""RunView: what a hook sees of a run, and what it may do to it."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlframe.run.metrics import CHANGED, write_record
from rlframe.run.progress import Progress
from rlframe.safety.secrets import Secrets

if TYPE_CHECKING:
    from rlframe.data.timestep import EnvSpec

logger = logging.getLogger('rlframe.hooks')
TIMES = 'time/'
"""Start of the tags that differ in each run, even with the same seed."""
OF_THE_MACHINE = (TIMES, 'ray/', CHANGED)
"""Start of the tags that tell of where a run runs, or how it was resumed."""


@dataclasses.dataclass
class RunView:
    """A run, as its hooks see it. In parallel mode, policy, collector and learner are None: they are in other processes."""

    cfg: Any
    """The compiled config."""
    folder: Path
    """The run folder."""
    progress: Progress
    """Counters: ``envstep``, ``train_iter``, ``episodes``, ``wall_time`` (seconds, over all resumes)."""
    evaluator: Any
    """The evaluator; in parallel mode, the scores: ``best``, ``latest`` and ``stop_value``."""
    spec: EnvSpec
    """Spaces, name, time limit and reward threshold of the env."""
    writer: Any
    """Writer of the metrics."""
    policy: Any = None
    """The policy that is being trained."""
    collector: Any = None
    """The collector."""
    learner: Any = None
    """The learner; ``learner.monitor.means()`` are the training variables since they were last logged."""
    replay_buffer: Any = None
    """The replay buffer; None for an on-policy policy."""
    secrets: Secrets = dataclasses.field(default_factory=Secrets)
    """Secrets of the config, which must not be written to files: ``secrets.scrub(text)``."""
    evaluation: Any = None
    """The last evaluation: ``score``, ``is_best``, ``info`` (a list per name with one value per episode), ``train_iter``,
    ``envstep``; None before the first."""
    is_extra: bool = False
    """Whether the last evaluation was not due, but made because training ended: a run with a larger budget does not have it."""
    collected: Any = None
    """The data of the last collection, usually a ``Batch``; only set if a hook has ``after_collect``."""
    checkpoint: Path | None = None
    """The last checkpoint; None before the first."""
    error: BaseException | None = None
    """The exception that ends the run, for ``on_exception``."""
    outcome: str = ''
    """How the run ended: ``solved``, ``done`` (budget spent), ``stopped`` (by a hook), ``interrupted`` or ``failed``."""
    stop_reason: str = ''
    """Why a hook ends training; empty if none does."""

    def metrics(self) -> dict[str, float]:
        """Returns the last value of each metric by tag; training variables that were not logged yet as their mean."""
        found: dict[str, float] = dict(getattr(self.writer, 'latest', {}))
        if self.learner is not None:
            names = {'cur_lr': 'learning_rate'}
            means = self.learner.monitor.means()
            found |= {f'train/{names.get(name, name)}': value for name, value in means.items()}
        return {tag: value for tag, value in found.items() if not tag.startswith(TIMES)}

    def log(self, name: str, value: float) -> None:
        """Writes a metric at the current env step."""
        progress = self.progress
        write_record(self.writer, {name: float(value)}, progress.envstep, train_iter=progress.train_iter)

    def log_histogram(self, name: str, values: Any) -> None:
        """Writes a histogram of an array at the current env step, to loggers that have histograms."""
        if hasattr(self.writer, 'add_histogram'):
            self.writer.add_histogram(name, values, self.progress.envstep)

    def stop(self, reason: str) -> None:
        """Ends training in order after this round: it is evaluated, saved, and the reason is shown.

        The first reason counts. A later run can resume; hooks decide again in ``before_run``.
        """
        if not self.stop_reason:
            self.stop_reason = reason
            logger.info('training ends: %s', reason)

    def state_dict(self) -> Mapping[str, float]:
        """Returns the last metrics of training, which are the only part of the view that nobody else saves."""
        found = dict(getattr(self.writer, 'latest', {}))  # a copy, as other threads may write
        return {tag: value for tag, value in found.items() if not tag.startswith(OF_THE_MACHINE)}
