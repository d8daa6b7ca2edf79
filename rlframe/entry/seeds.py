"""``rlframe train --seeds``: one run for each seed, shown in one table and averaged at the end."""

from __future__ import annotations

import argparse
import sys
import warnings
from time import perf_counter
from typing import TYPE_CHECKING

from rlframe.display.saying import say, say_warnings
from rlframe.display.seeds import SeedDisplay, last_lines
from rlframe.errors import ConfigWarning
from rlframe.experiment.seeds import parse_seeds, train_seeds
from rlframe.run.stop_signal import StopSignal

if TYPE_CHECKING:
    from rlframe.pipeline.resume import Pair


def train_all(pair: Pair, args: argparse.Namespace) -> int:
    """Runs the verb for several seeds and returns the exit code: 1 if a seed failed."""
    seeds, start = parse_seeds(args.seeds), perf_counter()
    named = dict(exp_name=args.exp_name, max_env_step=args.env_step, max_train_iter=args.train_iter)
    with StopSignal() as stop, SeedDisplay() as display, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always', ConfigWarning)
        runs = train_seeds(
            pair,
            seeds,
            jobs=args.jobs,
            overrides=args.overrides,
            resume=args.resume is not None,
            on_change=display.show,
            should_stop=lambda: stop.received is not None,
            **named,
        )
    say_warnings(warning.message for warning in caught)
    for line in last_lines(runs, perf_counter() - start):
        say(line)
    failed = [run for run in runs if run.state == 'failed']
    for run in failed:
        sys.stderr.write(f'rlframe: seed {run.seed} failed: {run.error}\n')
    return stop.exit_code or (1 if failed else 0)
