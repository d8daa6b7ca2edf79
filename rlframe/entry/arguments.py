"""Declares the verbs of the command line, and the arguments that several verbs share."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

USE, LOOK, OWN, LOOK_UP = (
    'train and use a policy',
    'look at results',
    'write and check your own',
    'look things up',
)
"""Headings under which verbs are listed."""
Args = argparse.Namespace
"""A parsed command line; ``args.parser`` is the parser of the verb, whose ``error`` ends the process with its usage."""


Argument = tuple[list[str], dict[str, Any]]
"""Names and options of an argument, as ``ArgumentParser.add_argument`` takes them."""
VERBS: dict[str, Verb] = {}
"""All verbs by name, in the order in which they are listed."""
SETS = {
    'seed': 'seed',
    'seeds': 'seed',
    'env_step': 'max_env_step',
    'train_iter': 'max_train_iter',
    'exp_name': 'exp_name',
    'learners': 'policy.learn.num_learners',
}
"""Arguments that set an option, and the option."""
A_CONFIG = 'config: a .py, .json or .yaml file, or the name of a shipped one, such as cartpole_dqn'


class Verb(NamedTuple):
    """A verb of the command line."""

    group: str
    """Heading under which it is listed."""
    help: str
    """Its effect, in one line."""
    examples: tuple[str, ...]
    """Arguments of typical calls, without the verb."""
    arguments: tuple[Argument, ...]
    run: Callable[[Args], int]
    """Runs it and returns the exit code."""

    def parser(self, name: str) -> argparse.ArgumentParser:
        """Returns its parser."""
        examples = '\n'.join(f'  rlframe {name} {example}'.rstrip() for example in self.examples)
        parser = argparse.ArgumentParser(
            prog=f'rlframe {name}',
            description=f'{self.help[0].upper()}{self.help[1:]}.',
            epilog=f'examples:\n{examples}',
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # a new option would change what a short form means
        )
        for names, options in self.arguments:
            parser.add_argument(*names, **options)
        parser.add_argument('--debug', action='store_true', help='show the traceback of an error')
        parser.set_defaults(verb=name, parser=parser)
        return parser


def verb(group: str, help: str, examples: tuple[str, ...], *arguments: Argument) -> Callable[[Any], Any]:
    """Registers the function that runs a verb, whose name it has."""

    def register(run: Callable[[Args], int]) -> Callable[[Args], int]:
        name = run.__name__.strip('_').replace('_', '-')
        VERBS[name] = Verb(group, help, examples, arguments, run)
        return run

    return register


def overview() -> str:
    """Returns all verbs by group, for the help of the whole command line."""
    width = max(map(len, VERBS))
    lines = []
    for group in dict.fromkeys(verb.group for verb in VERBS.values()):
        rows = [f'  {name:{width}}  {verb.help}' for name, verb in VERBS.items() if verb.group == group]
        lines += [f'{group}:', *rows, '']
    return '\n'.join(lines)


def count(text: str) -> int:
    """Reads ``100000`` or ``1e5``.

    Raises:
        ArgumentTypeError: If it is no whole number of at least 1.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number.is_integer() or number < 1:
        raise argparse.ArgumentTypeError(f'{text!r} is not a whole number >= 1, such as 100000 or 1e5')
    return int(number)


def arg(names: str, help: str, metavar: str | None = None, **options: Any) -> Argument:
    """Describes an argument, whose names are separated by spaces."""
    return names.split(), {'help': help, 'metavar': metavar, **options}


def flag(name: str, help: str) -> Argument:
    """Describes a flag, an argument without a value."""
    return [name], {'help': help, 'action': 'store_true'}


def seed(of: str, **options: Any) -> Argument:
    """Describes ``--seed``."""
    return arg('-s --seed', f'seed of the {of}', type=int, **options)


def overrides(of: str) -> Argument:
    """Describes ``KEY=VALUE``: overrides of the options of a file or a run."""
    return arg('overrides', f'options that replace those of the {of}', 'KEY=VALUE', nargs='*')


def refuse_twice(args: Args, names: Iterable[str]) -> None:
    """Refuses those of the arguments ``names`` whose option is given as ``KEY=VALUE``, too."""
    for name in names:
        for key in (text.partition('=')[0].strip() for text in args.overrides):
            if vars(args)[name] is not None and f'.{SETS[name]}'.endswith(f'.{key}'):
                flag = f'--{name.replace("_", "-")}'
                args.parser.error(f'{flag} and {key}=... set the same option; leave out one of them')


def episodes(default: int) -> tuple[Argument, Argument]:
    """Describes ``--episodes`` and ``--seed``, for verbs that play episodes."""
    text = 'episodes to play (default: %(default)s)'
    return arg('-n --episodes', text, 'N', type=int, default=default), seed(
        'episodes (default: 0)', default=0
    )


CONFIG = arg('-c --config', A_CONFIG, 'FILE')
CHECKPOINT = arg('checkpoint', 'a run folder (its best checkpoint), or a checkpoint', 'RUN')
RUNS = arg(
    'runs',
    'run folder, or a folder that contains runs; those that differ only in the seed are one group',
    'RUN',
    nargs='+',
)
TRUST = flag(
    '--trust',
    'let the config of a foreign run import code, open files and start programs, and print each such value; your own runs do'
    ' not need it',
)
JSON = flag('--json', 'print the result as one line of JSON')
