"""``-m parallel``, ``coordinator``, ``collector`` and ``learner``: the roles of parallel mode on the command line."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rlframe.config.schema import ExperimentConfig
from rlframe.errors import ConfigError, CoordinatorLostError
from rlframe.pipeline.saying import count_of, say
from rlframe.run.exit_guard import StopSignal
from rlframe.utils.secrets import redacted, shown_address

if TYPE_CHECKING:
    from rlframe.parallel.pipeline import ParallelPipeline
    from rlframe.pipeline.resume import Resumption

WORKERS = ('collector', 'learner')
"""Modes that start one worker, which joins a run."""
DEFAULT_PORT = 7235
"""Port of a coordinator to which workers come from elsewhere, the same as DI-engine's."""


def run(
    cfg: ExperimentConfig,
    args: argparse.Namespace,
    folder_name: str | None = None,
    resumption: Resumption | None = None,
    again: Path | None = None,
) -> int:
    """Trains with a coordinator in this process and returns the exit code.

    Args:
        cfg: The config.
        args: The command line.
        folder_name: Name of the new run folder, if the user set one.
        resumption: The state and config of a resumed run.
        again: Existing folder of a run that starts again.
    """
    from rlframe.parallel.pipeline import ParallelPipeline
    from rlframe.pipeline.training import run_shown
    from rlframe.run.run_folder import chosen_folder

    launches = args.mode != 'coordinator'
    if not launches and cfg.parallel.coordinator.port is None:
        cfg.parallel.coordinator.port = DEFAULT_PORT
    since = perf_counter()
    folder = chosen_folder(resumption.folder if resumption else again, folder_name or None)
    saved = resumption.saved if resumption else None
    with StopSignal() as stop, ParallelPipeline(cfg, folder, saved, launches) as pipeline:
        workers = _workers(pipeline, args)
        run_shown(pipeline, saved, lambda: stop.received is not None, since=since, more=workers)
        return stop.exit_code


def _workers(pipeline: ParallelPipeline, args: argparse.Namespace) -> str:
    """Returns a line with the coordinator's address and its workers, and the commands by which others join if none starts."""
    parallel, commander = pipeline.cfg.parallel, pipeline.cfg.policy.other.commander['type']
    address = f'{pipeline.coordinator.server.address} ({parallel.comm_collector.type}, {commander})'
    if pipeline.crew is None:
        return '\n'.join([f'coordinator at {address}; no worker yet', *_commands(pipeline, args)])
    collectors = count_of(parallel.collector_num, 'collector')
    learners = count_of(parallel.learner_num, 'learner')
    return f'coordinator at {address}; {collectors}, {learners}'


def _commands(pipeline: ParallelPipeline, args: argparse.Namespace) -> list[str]:
    """Returns the command that starts a worker of each role."""
    from rlframe.parallel.roles import shared_folder

    cfg = pipeline.cfg
    config = shlex.quote(str(args.config)) if args.config else 'CONFIG'
    pairs = [word.partition('=')[::2] for word in args.overrides]
    words = [f'{key}={redacted({key: value})[key]}' for key, value in pairs]
    if 'path_data' in cfg.parallel.comm_collector and cfg.parallel.path_data is None:
        words.append(f'parallel.path_data={shared_folder(cfg, pipeline.folder)}')
    rest = ''.join(f' {shlex.quote(word)}' for word in words)
    servers = {role: pipeline.coordinator.server for role in WORKERS}
    if pipeline.team is not None:
        servers['learner'] = pipeline.team.server
    return [
        f'{role}: python -m rlframe.entry -m {role} -c {config} --join {server.address}{rest}'
        for role, server in servers.items()
    ]


def work(cfg: ExperimentConfig, args: argparse.Namespace) -> int:
    """Works as a collector or a learner of a run elsewhere, and returns the exit code."""
    from rlframe.parallel.roles import make_worker, shared_folder

    if 'path_data' in cfg.parallel[f'comm_{args.mode}'] and cfg.parallel.path_data is None:
        raise ConfigError(
            'a worker that joins has to know the shared folder of the run',
            where='parallel.path_data',
            remedy='Set it as in the command that the coordinator prints: parallel.path_data=FOLDER.',
        )
    if cfg.parallel.path_data is not None:
        cfg.parallel.path_data = shared_folder(cfg, Path(), args.mode)
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
