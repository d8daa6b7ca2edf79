"""Findings about an env: the observation, its place in the source, and the remedy."""

from __future__ import annotations

import ast
import inspect
import io
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

from rlframe.errors import NonFiniteError, RLFrameError

Severity = Literal['error', 'warning', 'note']
FIXES = (
    ('expected a bool', 'Return bool(...) of it.'),
    ('gave the reward', 'Return float(reward).'),
    ('gave the info', 'Return a dict; {} if there is nothing to tell.'),
    ('of shape', 'Return an array of the declared shape, or declare in observation_space what it returns.'),
    (
        'of dtype',
        'Convert it to the declared type with astype, or declare in observation_space what it returns.',
    ),
    ('gave an obs=', 'Return what observation_space declares.'),
    ('gave obs', 'Return what observation_space declares.'),
    ('gave an obs', 'Return a numpy array of what observation_space declares.'),
)
"""Words of an error about the contract, and the remedy."""
NOT_FINITE = 'Guard the division, root or logarithm that gives it, or end the episode before.'
LIBRARIES = (sysconfig.get_path('stdlib'), str(Path(__file__).parents[1]))
"""Folders whose code is not that of an env."""


class Finding(NamedTuple):
    """Something that a check saw."""

    severity: Severity
    """``error``: it cannot be trained in, or not repeatably; ``warning``: it costs something; ``note``: worth knowing."""
    check: str
    """The check."""
    seen: str
    """What was seen."""
    fix: str = ''
    """How to mend it."""
    where: str = ''
    """File and line."""


def of_error(error: Exception, check: str, env: Any, call: str) -> Finding:
    """Returns the finding about an exception: of the contract checks, or of the env itself."""
    if not isinstance(error, RLFrameError):
        seen = f'{call} raised {type(error).__name__}: {error}'
        return Finding('error', check, seen, 'Mend what raises it.', raised_at(error, env))
    fix = NOT_FINITE if isinstance(error, NonFiniteError) else error.remedy
    fix = fix or next((fix for words, fix in FIXES if words in error.message), '')
    seen = (
        error.message
        if not error.expected
        else f'{error.message}; got {error.got!r}, expected {error.expected}'
    )
    method = '__init__' if check == 'spaces' else 'reset' if call.startswith('reset') else 'step'
    return Finding('error', check, seen, fix, method_at(env, method))


def raised_at(error: BaseException, env: Any) -> str:
    """Returns the file and the line of an env that raised, directly or in what it called."""
    frames = traceback.extract_tb(error.__traceback__)
    return _place([(frame.filename, frame.lineno or 0) for frame in reversed(frames)], env)


def _place(frames: Sequence[tuple[str, int]], env: Any) -> str:
    """Returns the innermost frame in the file of the env, or else outside of libraries; innermost frames first."""
    own = [frame for frame in frames if frame[0] == _file_of(env)]
    users = [frame for frame in frames if not frame[0].startswith(LIBRARIES) or 'site-packages' in frame[0]]
    found = own or [frame for frame in users if '/gymnasium/' not in frame[0]] or frames
    return f'{found[0][0]}:{found[0][1]}' if found else ''


def method_at(env: Any, method: str) -> str:
    """Returns the file and the line of a method of an env: of its ``return``, if it has one only."""
    try:
        function = getattr(type(env.unwrapped), method)
        file, (lines, start) = inspect.getsourcefile(function), inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent(''.join(lines)))
    except (AttributeError, OSError, TypeError, SyntaxError):
        return ''
    returns = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Return)]
    return f'{file}:{start + returns[0] - 1 if len(returns) == 1 else start}'


def running_at(thread: int | None, env: Any) -> str:
    """Returns the file and the line at which a thread is, in the file of the env if it is there."""
    frame: FrameType | None = sys._current_frames().get(thread or 0)
    places = []
    while frame is not None:
        places.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return _place(places, env)


def _file_of(env: Any) -> str:
    try:
        return inspect.getsourcefile(type(env.unwrapped)) or ''
    except (AttributeError, TypeError):
        return ''


class Spy(io.TextIOBase):
    """Takes what is printed in place of stdout, and remembers the first line and the code that printed it."""

    def __init__(self) -> None:
        self.first, self.where, self.lines = '', '', 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if text.strip() and not self.first:
            frame = sys._getframe(1)
            self.first, self.where = (
                text.strip().splitlines()[0],
                f'{frame.f_code.co_filename}:{frame.f_lineno}',
            )
        self.lines += text.count('\n')
        return len(text)

    def finding(self) -> Finding | None:
        """Returns the finding about printed text, if there was any."""
        if not self.first:
            return None
        seen = f'it printed {self.lines or 1} lines to stdout, the first of them: {self.first[:60]!r}'
        fix = 'Use logging: what it prints mixes with the progress of a run and with --json.'
        return Finding('warning', 'output', seen, fix, self.where)
