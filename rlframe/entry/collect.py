"""``rlframe collect``: records data, and shows the progress on standard error."""

from __future__ import annotations

import json
import shlex
import sys
from time import monotonic

from rlframe.app.collect import Collected, CollectRequest, collect, collect_replay
from rlframe.display.text import program, say
from rlframe.entry.arguments import Args
from rlframe.run.exit_guard import StopSignal, exits_as_errors
from rlframe.scores import clock_text, number_text

NOTICE = b'\nstopping: the episodes that have ended are written; a second signal ends the process at once\n'
WIDTH = 24
"""Columns of the bar."""
EVERY = (0.2, 5.0)
"""Seconds between two states of the bar, in a terminal and elsewhere."""


class Bar:
    """Shows how much is recorded.

    Args:
        steps: Env steps that are recorded in all.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._is_terminal = sys.stderr.isatty()
        self._begun = self._shown = monotonic()

    def show(self, rows: int, returns: list[float]) -> None:
        """Draws the bar if it is due."""
        now = monotonic()
        if now - self._shown < EVERY[not self._is_terminal]:
            return
        self._shown = now
        share = min(rows / self._steps, 1.0)
        left = (now - self._begun) * (1 - share) / max(share, 1e-9)
        recent = f' | return {number_text(sum(returns[-100:]) / len(returns[-100:]))}' if returns else ''
        text = f'{rows:,} of {self._steps:,} env steps | {len(returns):,} episodes{recent} | {clock_text(left)} left'
        if self._is_terminal:
            done = round(share * WIDTH)
            sys.stderr.write(f'\r\x1b[K[{"#" * done}{"." * (WIDTH - done)}] {text}')
        else:
            sys.stderr.write(f'{text}\n')
        sys.stderr.flush()

    def clear(self) -> None:
        """Removes the bar."""
        if self._is_terminal:
            sys.stderr.write('\r\x1b[K')


def run(args: Args) -> int:
    """Runs the verb and returns the exit code."""
    _check(args)
    request = CollectRequest(
        args.steps,
        args.out,
        args.format,
        args.seed,
        args.explore,
        args.eps,
        tuple(args.overrides),
        args.trust,
    )
    bar = Bar(args.steps)
    with exits_as_errors(), StopSignal(notice=NOTICE) as stop:
        if args.replay:
            found = collect_replay(args.checkpoint, request)
        else:
            found = collect(args.checkpoint, request, args.env, bar.show, lambda: stop.received is not None)
    bar.clear()
    say(json.dumps(found.facts()) if args.json else _lines(found))
    return stop.exit_code


def _check(args: Args) -> None:
    """Refuses arguments that do not go together."""
    if (
        args.random and isinstance(args.checkpoint, str) and '=' in args.checkpoint
    ):  # the first of the overrides
        args.overrides = [args.checkpoint, *args.overrides]
        args.checkpoint = None
    refused = (
        (args.random and args.checkpoint, '--random records no policy; leave out the run'),
        (args.random and not args.env, '--random needs --env'),
        (not args.random and not args.checkpoint, 'which run? Name its folder, or use --random --env ID'),
        (args.env and not args.random, '--env goes with --random: a run has its env'),
        (
            args.replay and (args.random or args.explore),
            '--replay writes what was recorded: leave out --random, --explore',
        ),
    )
    for is_refused, text in refused:
        if is_refused:
            args.parser.error(text)


def _lines(found: Collected) -> str:
    """Returns the last lines: what was recorded, and what to do with it."""
    data = shlex.quote(str(found.path))
    begun = 'interrupted: ' if found.interrupted else ''
    return (
        f'{begun}{found!r}\nwrote {data}\nlook at it: {program()} data {data}\n'
        f'learn from it: {program()} train --data {data} --policy bc'
    )
