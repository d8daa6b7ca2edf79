"""``-m parallel``, ``coordinator``, ``collector`` and ``learner``: the roles of parallel mode on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlframe.config.schema import ExperimentConfig
from rlframe.display.text import count_of, say
from rlframe.entry.arguments import Args
from rlframe.errors import ConfigError, CoordinatorLostError
from rlframe.run.exit_guard import StopSignal
from rlframe.utils.secrets import redacted, shown_address

if TYPE_CHECKING:
    from rlframe.parallel.pipeline import ParallelPipeline
    from rlframe.run.read_checkpoint import OpenCheckpoint

WORKERS = ('collector', 'learner')
"""Modes that start one worker, which joins a run."""
DEFAULT_PORT = 7235
"""Port of a coordinator to which workers come from elsewhere, the same as DI-engine's."""


def coordinated(
    cfg: ExperimentConfig, args: Args, folder: Path | Callable[[], Path] | None, saved: OpenCheckpoint | None
) -> ParallelPipeline:
    """Returns a run with its coordinator in this process; for the arguments see ``train._run``."""
    from rlframe.parallel.pipeline import ParallelPipeline

    launches = args.mode != 'coordinator'
    if not launches and cfg.parallel.coordinator.port is None:
        cfg.parallel.coordinator.port = DEFAULT_PORT
    return ParallelPipeline(cfg, folder, saved, launches)


def workers_text(pipeline: ParallelPipeline, args: Args) -> str:
    """Returns a line with the coordinator's address and its workers, and the commands by which others join if none starts."""
    parallel = pipeline.cfg.parallel
    commander = pipeline.cfg.policy.other.commander['type']
    address = f'{pipeline.coordinator.server.address} ({parallel.comm_collector.type}, {commander})'
    if pipeline.crew is None:
        return '\n'.join([f'coordinator at {address}; no worker yet', *_commands(pipeline, args)])
    collectors = count_of(parallel.collector_num, 'collector')
    learners = count_of(pipeline.cfg.policy.learn.get('num_learners', 1), 'learner')
    return f'coordinator at {address}; {collectors}, {learners}'


def _commands(pipeline: ParallelPipeline, args: Args) -> list[str]:
    """Returns the command that starts a worker of each role."""
    flags = {'-c': args.config, '--env': args.env, '--policy': args.policy, '--env-step': args.env_step}
    source = ' '.join(f'{flag} {shlex.quote(str(given))}' for flag, given in flags.items() if given)
    pairs = [word.partition('=')[::2] for word in args.overrides]
    words = [f'{key}={redacted({key: value})[key]}' for key, value in pairs]
    rest = ''.join(f' {shlex.quote(word)}' for word in words)
    return [
        f'{role}: python -m rlframe.entry -m {role} {source or "-c CONFIG"} --join {pipeline.coordinator.server.address}{rest}'
        for role in WORKERS
    ]


def work(cfg: ExperimentConfig, args: Args) -> int:
    """Works as a collector or a learner of a run elsewhere, and returns the exit code."""
    from rlframe.parallel.roles import make_worker

    worker: Any = make_worker(cfg, args.mode, args.name or '', args.join)
    with StopSignal(worker.stop, notice=b'') as stop:
        where = shown_address(args.join) if args.join else 'the coordinator of the config'
        say(f'{args.mode} of {cfg.policy.type}: joins {where}')
        try:
            worker.run()
        except CoordinatorLostError as error:
            error.remedy = error.remedy or 'Start it with -m coordinator, and check the address.'
            raise
        except ConfigError as error:
            if error.where == 'address':
                error.where = '--join'
            raise
    say(f'{args.mode}: left the run ({worker.why_ended})')
    return stop.exit_code
