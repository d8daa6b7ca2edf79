"""``rlframe play``: shows a trained policy in its env."""

from __future__ import annotations

import argparse

from rlframe.entry.arguments import add_checkpoint, add_episodes, add_json, add_overrides, add_trust

HELP = 'show a trained policy in a window, as text, or as a film'
EXAMPLES = (
    'cartpole_dqn_seed0',
    'cartpole_dqn_seed0 --episodes 3 --human',
    'cartpole_dqn_seed0 --save film.gif',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    add_checkpoint(parser)
    add_episodes(parser, default=1)
    parser.add_argument('--fps', type=float, metavar='N', help='env steps shown per second, also in a film')
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        '--human',
        action='store_true',
        help='show a window (default: if there is a display; otherwise the text that the env draws, or a line per step)',
    )
    shown.add_argument(
        '--save', metavar='FILE', help='write a film instead: FILE.mp4 or FILE.gif (needs rlframe[video])'
    )
    add_trust(parser)
    add_json(parser)
    add_overrides(parser, 'run')


def run(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    import json
    import os
    import re
    import sys

    from rlframe.app.play import Wish, play_run
    from rlframe.run.read_checkpoint import open_checkpoint

    stream = sys.stderr if args.json else sys.stdout
    is_coloured = stream.isatty() and not os.environ.get('NO_COLOR')

    def say(line: str) -> None:
        line = line if is_coloured else re.sub(r'\x1b\[[0-9;]*m', '', line)
        stream.write(line + '\n')
        stream.flush()

    wish = Wish(args.episodes, args.seed, args.fps, args.human, args.save, args.overrides, args.trust)
    opened = open_checkpoint(args.checkpoint)
    episodes = play_run(opened, wish, say)
    if args.json:
        found = {
            'checkpoint': str(opened.path),
            'returns': [episode.return_ for episode in episodes],
            'lengths': [episode.length for episode in episodes],
            'endings': [episode.ending for episode in episodes],
        }
        sys.stdout.write(json.dumps(found) + '\n')
    return 0
