"""``rlframe export``: a trained policy as one folder that acts by itself, and in other formats."""

from __future__ import annotations

import argparse

from rlframe.display.saying import say
from rlframe.export import FORMATS, export_policy


def export(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    written = export_policy(
        args.checkpoint, args.format, args.out, trust=args.trust, overrides=args.overrides
    )
    for name, path in written.items():
        say(f'{name}: {path}; use it: {FORMATS[name].usage.format(path=str(path))}')
    return 0
