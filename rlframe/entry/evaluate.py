"""``rlframe eval``: scores a checkpoint on episodes that training never saw."""

from __future__ import annotations

import argparse
import json
import sys
from time import monotonic

from rlframe.checkpoint import open_checkpoint
from rlframe.display.saying import say
from rlframe.experiment.scoring import OnStep, Request, play
from rlframe.experiment.scoring import score as score  # the name by which scripts know it

PLAIN_SECONDS = 5.0
"""Seconds between two lines about a long evaluation."""


def evaluate(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    request = Request(args.episodes, args.seed, args.video, args.overrides, args.trust, flag='--')
    request.check()
    found = play(open_checkpoint(args.checkpoint), request, on_step=_Progress())
    if args.json:
        say(json.dumps({**found.facts(), 'video': args.video}))
    else:
        path = found.checkpoint
        say(f'{path.parent.parent.name}/{path.name}: {found!r}')
        if args.video:
            say(f'films of the worst, median and best of them: {args.video}')
    return 0


class _Progress(OnStep):
    """Reports the progress of a long evaluation on stderr from time to time."""

    def __init__(self) -> None:
        super().__init__()
        self._last = monotonic()

    def __call__(self) -> None:
        if monotonic() - self._last > PLAIN_SECONDS:
            self._last = monotonic()
            sys.stderr.write(f'rlframe: {self.status()}\n')
