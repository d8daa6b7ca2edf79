"""Reads the command line and hands it to a verb. Nothing heavy is imported before the verb is known."""

from __future__ import annotations

import argparse
import io
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rlframe._version import __version__
from rlframe.entry.arguments import Args, overview
from rlframe.entry.verbs import VERBS
from rlframe.errors import RLFrameError
from rlframe.registry import nearest
from rlframe.run.exit_guard import readers_may_leave
from rlframe.utils.files import printable_lines


def _whole_parser() -> argparse.ArgumentParser:
    """Returns the parser for a command line without a verb: help and version."""
    parser = argparse.ArgumentParser(
        prog='rlframe',
        usage='rlframe VERB [argument ...]',
        description='Reinforcement learning from components that a config file puts together.',
        epilog=f'{overview()}\nArguments of a verb: rlframe VERB --help. Without a verb: train.\n'
        'Example: rlframe -c configs/cartpole_dqn.py',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('--version', action='version', version=f'rlframe {__version__}')
    return parser


def parse(words: list[str]) -> argparse.Namespace:
    """Reads a command line; overrides may stand anywhere behind the verb."""
    if not words or words[0] not in VERBS:
        whole = _whole_parser()
        if not words:
            whole.print_help()
            sys.exit(2)
        if words[0] in ('-h', '--help', '--version'):
            whole.parse_args(words[:1])  # ends the process
        if not words[0].startswith('-') and '=' not in words[0]:
            hint = nearest(words[0], VERBS) or ' A config file is given by -c FILE.'
            whole.error(f'no verb {words[0]!r}.{hint} Verbs: {", ".join(VERBS)}')
        words = ['train', *words]
    parser = VERBS[words[0]].parser(words[0])
    args, rest = parser.parse_known_args(words[1:])
    stray = [word for word in rest if word.startswith('-') or '=' not in word]
    if stray or (rest and 'overrides' not in args):
        flags = [word.partition('=')[0] for word in stray if word.startswith('--')]
        hint = nearest(flags[0], re.findall(r'--[\w-]+', parser.format_help())) if flags else ''
        if flags and not hint and 'overrides' in args:
            name = flags[0].strip('-').replace('-', '_')
            hint = (
                f' Options have no dashes: {name}=VALUE; rlframe explain {name} finds those with other names.'
            )
        parser.error(f'unrecognized arguments: {" ".join(stray or rest)}{hint and "."}{hint}')
    if rest:
        args.overrides = [*args.overrides, *rest]
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line; output after its reader has left, as in ``rlframe list | head -1``, is dropped.

    Returns:
        0 when done, 1 for a failure while running, 2 for bad input, 130 or 143 when stopped by Ctrl-C or SIGTERM.
    """
    with readers_may_leave():
        return _run(list(sys.argv[1:] if argv is None else argv))


def _run(words: list[str]) -> int:
    """Runs a command line, and returns the exit code."""
    args = parse(words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names that it cannot encode are no reason to fail
            stream.reconfigure(errors='backslashreplace')
    try:
        set_import_path(args)
        with telling_what_is_trusted(args):
            return VERBS[args.verb].run(args)
    except RLFrameError as error:
        if args.debug:
            raise
        notes = ''.join(f'\n  {note}' for note in getattr(error, '__notes__', ()))
        sys.stderr.write(f'rlframe: {type(error).__name__}: {printable_lines(f"{error}{notes}")}\n')
        return error.exit_code
    except KeyboardInterrupt:
        return 130


@contextmanager
def telling_what_is_trusted(args: Args) -> Iterator[None]:
    """Prints each value that ``--trust`` accepts to stderr before it is used."""
    logger = logging.getLogger('rlframe.trust')
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter('rlframe: %(message)s'))
    if getattr(args, 'trust', False):
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def set_import_path(args: Args) -> None:
    """Adds the working directory to the import path, or removes it if the command needs no module from it.

    ``python -m`` adds it, the program ``rlframe`` does not. For a foreign run, a file there could shadow a package that
    is not installed, such as one that an env needs. So it is removed until the checkpoint has turned out to be the
    user's own.

    Args:
        args: The parsed command line. The path of a checkpoint is replaced by the open checkpoint, as the verb must use
            the one that this decision is about.
    """
    here = os.getcwd()
    before = list(sys.path)
    if not _names_modules(args):
        sys.path[:] = [entry for entry in before if entry not in ('', here)]
        if not _is_own(args):
            return
        sys.path[:] = before
    if here not in sys.path and '' not in sys.path:
        sys.path.insert(0, here)


def _is_own(args: Args) -> bool:
    """Opens the checkpoint that the command uses, and returns whether this user wrote it; the verb reports errors."""
    try:
        if args.verb == 'train':
            from rlframe.pipeline.resume import find_start

            args.resume = find_start(args.resume)
            return bool(args.resume.manifest.is_own)
        from rlframe.run.read_checkpoint import open_checkpoint

        args.checkpoint = open_checkpoint(args.checkpoint)
        return bool(args.checkpoint.manifest.is_own)
    except RLFrameError:
        return False


def _names_modules(args: Args) -> bool:
    """Whether the command may need modules in the working directory, even if its checkpoint is foreign."""
    if 'trust' not in args:
        return True
    if args.verb == 'train' and (args.config or args.env or args.resume is None):
        return True
    if args.verb == 'collect' and args.checkpoint is None:
        return True
    return args.trust or any(':' in text or 'import_names' in text for text in args.overrides)


if __name__ == '__main__':
    sys.exit(main())
