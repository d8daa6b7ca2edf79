"""Text of the command line: wrapped lines, spaces in short form, and useful commands after a run."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlframe import config
from rlframe.run.progress import BUDGETS, NO_BUDGET, Progress, set_budgets, spent_budgets
from rlframe.utils.trust_key import has_key

if TYPE_CHECKING:
    from gymnasium import Space

MOST_COLUMNS = 100
"""Width of text in wider terminals."""
LABEL = 11
"""Width of the column of labels."""
NEXT = {'evaluate': 'eval', 'plot': 'plot', 'report': 'report', 'export': 'export'}
"""Next steps with a scored run, and their verbs on the command line."""


def say(text: str) -> None:
    """Writes a line to standard output and flushes it."""
    sys.stdout.write(text + '\n')
    sys.stdout.flush()


def say_warnings(texts: Iterable[object]) -> None:
    """Writes warnings to standard error, each text once."""
    for text in dict.fromkeys(map(str, texts)):
        sys.stderr.write(f'rlframe: warning: {text}\n')


def say_result(found: Any, text_of: Callable[[Any, int], str], as_json: bool = False) -> None:
    """Writes the result of a verb to standard output.

    Args:
        found: The result, as JSON-able data.
        text_of: Returns the result as text of at most so many columns.
        as_json: Whether a program reads it, as one line of JSON.
    """
    width = min(shutil.get_terminal_size().columns, MOST_COLUMNS)
    say(json.dumps(found) if as_json else text_of(found, width))


def count_of(count: int, noun: str) -> str:
    """Returns a count with its noun, such as ``1 learner`` or ``2 collectors``."""
    return f'{count} {noun}' if count == 1 else f'{count} {noun}s'


def short_path(path: Path) -> str:
    """Returns a path relative to the working directory if it is inside, else as it is."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def begin_line(begun: Path | None) -> str:
    """Says that ``--resume auto`` resumes nothing: it starts again in this folder, or in a new one."""
    if begun is None:
        return 'found no run of this config to resume; starting a new one'
    return f'{short_path(begun)} ended before its first checkpoint; starting again in the same folder'


def program() -> str:
    """Returns the command that starts rlframe's command line, in the form in which it was started."""
    started = Path(sys.argv[0])
    if started.stem == 'rlframe' and started.suffix in ('', '.exe'):
        return 'rlframe'
    return (
        'python -m rlframe' if started.parts[-2:] == ('rlframe', '__main__.py') else 'python -m rlframe.entry'
    )


def row(label: str, text: str, width: int, indent: int = 0) -> list[str]:
    """Returns a label and its text, wrapped to ``width`` columns.

    Args:
        label: The label.
        text: The text.
        width: Columns.
        indent: Columns by which further lines of the text are indented.
    """
    return _wrap(text, width, f'  {label:{LABEL}}', ' ' * (2 + LABEL + indent))


def wrapped(text: str, indent: int, width: int) -> list[str]:
    """Returns a text indented and wrapped to ``width`` columns; nothing of an empty text."""
    return _wrap(text, width, ' ' * indent, ' ' * indent)


def _wrap(text: str, width: int, first: str, more: str) -> list[str]:
    plain = textwrap.TextWrapper(
        width, initial_indent=first, subsequent_indent=more, break_long_words=False, break_on_hyphens=False
    )
    return plain.wrap(text)


def space_text(space: Space[Any]) -> str:
    """Returns a space in one short line: bounds of a Box as its smallest and largest value."""
    if (whole := getattr(space, 'whole', None)) is not None:  # of a Composite
        return space_text(whole)
    low: Any = getattr(space, 'low', None)
    if low is not None:
        high: Any = space.high  # type: ignore[attr-defined]  # a Box has both
        bounds = f' in [{float(low.min()):.4g}, {float(high.max()):.4g}]' if low.size else ''
        return f'Box {space.shape} {space.dtype}{bounds}'
    parts: Any = getattr(space, 'spaces', None)
    if isinstance(parts, tuple):
        return f'Tuple({", ".join(map(space_text, parts))})'
    if parts is not None:
        return f'Dict({", ".join(f"{name}: {space_text(part)}" for name, part in parts.items())})'
    return str(space)


def steps_unit(cfg: Any) -> str:
    """Returns what a run counts as env steps: those, or the rows of recorded data that it reads."""
    return 'rows' if cfg.policy.collect.collector.type == 'dataset' else 'env steps'


def shell_commands(pipeline: Any, interrupted: bool) -> Iterator[str]:
    """Yields lines with the commands for a run that has ended, the most useful first.

    Args:
        pipeline: The run, serial or parallel.
        interrupted: Whether it was stopped before its end.
    """
    if config.own_parts(pipeline.cfg):
        return  # no command could create them
    folder = shlex.quote(short_path(pipeline.folder))
    data = config.config_data(*config.split_config(pipeline.cfg))
    start = program()
    if interrupted:
        yield f'resume: {start} --resume {folder}{trust_flag(data)}'
    if pipeline.evaluator.describe(pipeline.evaluator.best):
        flag = trust_flag(config.as_played(data))
        for words, verb in NEXT.items():
            if verb != 'eval' or pipeline.cfg.env.type != 'recorded':  # which nobody can play in
                yield f'{words}: {start} {verb} {folder}{flag}'
    if not interrupted and not pipeline.solved and (budgets := set_budgets(pipeline.cfg)):
        keys = spent_budgets(pipeline.cfg, pipeline.progress) or budgets[:1]
        larger = ' '.join(
            f'{BUDGETS[key][2]} {larger_budget(pipeline.cfg, pipeline.progress, key)}' for key in keys
        )
        yield f'train further: {start} --resume {folder} {larger}{trust_flag(data)}'


def larger_budget(cfg: Mapping[str, Any], progress: Progress, key: str) -> int:
    """Returns a budget that leaves at least about half of the present one to train; twice the used one if there is none."""
    used = getattr(progress, BUDGETS[key][0])
    budget = cfg[key] if cfg[key] < NO_BUDGET else used
    return int(budget * max(2, 1 + round(used / budget)))


def trust_flag(data: Mapping[str, Any]) -> str:
    """Returns the flag that later commands need if this user has no key, so the run is not recognised as their own."""
    return ' --trust' if not has_key() and config.reaching_values(data) else ''
