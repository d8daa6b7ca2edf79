"""``rlframe train``: trains with a config, shows the progress, and prints the folder of the results."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rlframe import config
from rlframe.config import compile_config
from rlframe.config.reader import read_config
from rlframe.config.sections import ExperimentConfig
from rlframe.display.saying import say_warnings, short_path
from rlframe.errors import ConfigWarning
from rlframe.run.stop_signal import StopSignal

if TYPE_CHECKING:
    from rlframe.pipeline.resume import Pair, Resumption, Start

AUTO = 'auto'
"""Value of ``--resume`` for the newest run of the config."""


def train(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    given = dict(seed=args.seed, max_env_step=args.env_step, max_train_iter=args.train_iter)
    is_parallel = args.mode not in (None, 'serial')
    pair = config_of(args)
    if args.seeds is not None:
        assert pair is not None  # the parser requires it
        from rlframe.entry.seeds import train_all

        return train_all(pair, args)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always', ConfigWarning)
        if args.resume is None or args.resume == AUTO:
            assert pair is not None  # the parser requires it
            named: dict[str, Any] = dict(
                overrides=args.overrides, exp_name=args.exp_name, parallel=is_parallel
            )
            cfg = compile_config(pair[0], pair[1], **named, **given)
            found = _newest_run(cfg, pair, args, given) if args.resume == AUTO else None
            again = _again(cfg, args) if args.resume == AUTO and found is None else None
        else:
            found = _resume(args.resume, pair, args, given)
        config.warn_of_own_parts(cfg if found is None else found.cfg)
    say_warnings(warning.message for warning in caught)
    if found is not None:
        return go_on(found, args)
    if not is_parallel:
        return run(cfg, args.exp_name, again=again)
    from rlframe.entry import parallel

    if args.mode in parallel.WORKERS:
        return parallel.work(cfg, args)
    return parallel.run(cfg, args, args.exp_name, again=again)


def config_of(args: argparse.Namespace) -> Pair | None:
    """Returns the config that the command line names, or one for the env that it names; None if it names neither."""
    if args.env is None:
        return read_config(args.config) if args.config else None
    from rlframe.experiment.starting import env_options, starting_config

    given = config.parse_overrides(args.overrides)
    policy, budget = args.policy or given.get('policy.type'), args.env_step or given.get('max_env_step')
    return starting_config(args.env, policy, env_options(args.overrides), budget)


def _resume(
    path: str | Start, pair: Pair | None, args: argparse.Namespace, given: Mapping[str, Any]
) -> Resumption:
    from rlframe.pipeline.resume import resume

    return resume(path, pair, overrides=args.overrides, trust=args.trust, **given)


def _newest_run(
    cfg: ExperimentConfig, pair: Pair, args: argparse.Namespace, given: Mapping[str, Any]
) -> Resumption | None:
    """Finds the newest run of this config to resume; None if there is none, so that a new one begins."""
    from rlframe.pipeline.resume import newest_run

    start = newest_run(cfg, args.exp_name)
    return None if start is None else _resume(start, pair, args, given)


def _again(cfg: ExperimentConfig, args: argparse.Namespace) -> Path | None:
    """Returns the folder of a run of this config that ended before its first checkpoint, None if there is none."""
    from rlframe.pipeline.resume import unbegun_run

    folder = unbegun_run(cfg, args.exp_name)
    if folder is None:
        sys.stderr.write('rlframe: found no run of this config to resume; starting a new one\n')
    else:
        sys.stderr.write(
            f'rlframe: {short_path(folder)} ended before its first checkpoint; starting again in the same folder\n'
        )
    return folder


def go_on(found: Resumption, args: argparse.Namespace | None = None) -> int:
    """Goes on with a run, in its own mode, and returns the exit code."""
    say_warnings(found.notes)
    if args is not None and found.cfg.get('parallel') is not None and args.mode != 'serial':
        from rlframe.entry import parallel

        return parallel.run(found.cfg, args, resumption=found)
    return run(found.cfg, resumption=found)


def run(
    cfg: ExperimentConfig,
    folder_name: str | None = None,
    resumption: Resumption | None = None,
    again: Path | None = None,
) -> int:
    """Trains with a compiled config and returns the exit code.

    Args:
        cfg: The config.
        folder_name: Name of the new run folder, if the user set one.
        resumption: The state and config of a resumed run.
        again: Existing folder of a run that starts again.
    """
    from rlframe.pipeline.serial import SerialPipeline
    from rlframe.pipeline.shown import run_shown
    from rlframe.run.run_folder import chosen_folder

    since = perf_counter()
    folder = chosen_folder(resumption.folder if resumption else again, folder_name or None)
    saved = resumption.saved if resumption else None
    with StopSignal() as stop, SerialPipeline(cfg, folder, resume=saved) as pipeline:
        run_shown(pipeline, saved, lambda: stop.received is not None, since=since)
        return stop.exit_code
