"""``rlframe eval``: scores a checkpoint on episodes that training never saw."""

from __future__ import annotations

import argparse
import json
import sys
from time import monotonic

from rlframe.app.scoring import OnStep, Request, play
from rlframe.app.scoring import score as score
from rlframe.entry.arguments import add_checkpoint, add_episodes, add_json, add_overrides, add_trust
from rlframe.pipeline.saying import say
from rlframe.run.read_checkpoint import open_checkpoint

HELP = 'score a checkpoint on episodes that training never saw'
EXAMPLES = (
    'cartpole_dqn_seed0',
    'cartpole_dqn_seed0 --episodes 10 --json',
    'cartpole_dqn_seed0 --video films',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    add_checkpoint(parser)
    add_episodes(parser, default=100)
    parser.add_argument(
        '--video',
        metavar='DIR',
        help='write films of the worst, median and best episode to this folder; every step is drawn, which takes time',
    )
    add_trust(parser)
    add_json(parser)
    add_overrides(parser, 'run')


PLAIN_SECONDS = 5.0
"""Seconds between two lines about a long evaluation."""


def run(args: argparse.Namespace) -> int:
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
