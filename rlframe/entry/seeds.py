"""``rlframe train --seeds``: one run for each seed, shown in one table and averaged at the end."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

from rlframe.display.saying import count_of, say, short_path
from rlframe.entry.verb_table import VERBS
from rlframe.errors import ConfigWarning
from rlframe.experiment.seeds import SeedRun, mean_interval, parse_seeds, train_seeds
from rlframe.run.stop_signal import StopSignal

if TYPE_CHECKING:
    from rlframe.pipeline.resume import Pair

COLUMNS = ('seed', 'state', 'env steps', 'steps/s', 'return', 'eval', 'time')
LIVE_SECONDS, PLAIN_SECONDS = 0.2, 5.0
"""Seconds between two updates of the live table, and between two plain lines."""


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
            on_change=display.show,
            should_stop=lambda: stop.received is not None,
            **named,
        )
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        sys.stderr.write(f'rlframe: warning: {text}\n')
    for line in last_lines(runs, perf_counter() - start):
        say(line)
    failed = [run for run in runs if run.state == 'failed']
    for run in failed:
        sys.stderr.write(f'rlframe: seed {run.seed} failed: {run.error}\n')
    return stop.exit_code or (1 if failed else 0)


class SeedDisplay:
    """Shows how far the runs are: a table on a terminal, occasional lines elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live = Live(console=self._console, auto_refresh=False) if is_live else None
        self._last = monotonic()
        self._runs: Sequence[SeedRun] = ()

    def __enter__(self) -> SeedDisplay:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, runs: Sequence[SeedRun]) -> None:
        """Shows the present state if it is time to."""
        now, is_over = monotonic(), all(run.state not in ('waiting', 'running') for run in runs)
        if not is_over and now - self._last < (PLAIN_SECONDS if self._live is None else LIVE_SECONDS):
            return
        self._last = now
        if self._live is not None:
            self._live.update(table_of(runs), refresh=True)
        elif not is_over:
            self._console.print(line_of(runs), highlight=False, soft_wrap=True)


def table_of(runs: Sequence[SeedRun]) -> Table:
    """Returns a table with a row for each run."""
    table = Table(box=None, pad_edge=False, header_style='bold')
    for name in COLUMNS:
        table.add_column(name, justify='left' if name == 'state' else 'right', no_wrap=True)
    for run in runs:
        speed = f'{run.envstep / run.seconds:,.0f}' if run.seconds and run.envstep else ''
        numbers = [speed, _number(run.mean_return), _number(run.score), _duration(run.seconds)]
        table.add_row(str(run.seed), run.state, f'{run.envstep:,}' if run.envstep else '', *numbers)
    return table


def line_of(runs: Sequence[SeedRun]) -> str:
    """Returns how far the runs are in one line."""
    parts = []
    for run in runs:
        text = f'seed {run.seed} {run.state}'
        if run.state == 'running':
            score = _number(run.score)
            text = f'seed {run.seed}: {run.envstep:,} env steps{f", eval {score}" if score else ""}'
        parts.append(text)
    return ' | '.join(parts)


def last_lines(runs: Sequence[SeedRun], seconds: float) -> Iterator[str]:
    """Yields lines with how the runs ended, their mean score and how to go on."""
    for run in runs:
        if run.state == 'waiting':
            yield f'seed {run.seed}: not started'
            continue
        where = '' if run.folder is None else f'. Results: {short_path(run.folder)}'
        score = _number(run.score)
        yield f'seed {run.seed}: {run.state}{f", last evaluation {score}" if score else ""}, {run.envstep:,} env steps{where}'
    scores = [run.score for run in runs if run.is_complete and math.isfinite(run.score)]
    if scores:
        mean, low, high = mean_interval(scores)
        text = f'mean of the last evaluations: {_number(mean)} over {count_of(len(scores), "seed")}'
        if len(scores) > 1:
            text += f", 95 % interval {_number(low)} to {_number(high)} (Student's t)"
        yield f'{text}, {_duration(seconds)}'
    interrupted = [run for run in runs if run.state == 'interrupted' and run.folder is not None]
    for run in interrupted:
        yield f'resume: {_command("train --resume", [run])}'
    complete = [run for run in runs if run.is_complete]
    for verb in ('plot', 'compare'):
        if len(complete) > 1 and verb in VERBS:
            yield f'{verb}: {_command(verb, complete)}'


def _command(verb: str, runs: Sequence[SeedRun]) -> str:
    folders = ' '.join(shlex.quote(short_path(run.folder)) for run in runs if run.folder is not None)
    return f'rlframe {verb} {folders}'


def _number(value: float) -> str:
    return '' if math.isnan(value) else f'{value:.2f}' if abs(value) < 10 else f'{value:.1f}'


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f'{minutes}:{rest:02}'
