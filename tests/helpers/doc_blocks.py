"""Runs the commands and snippets of a documentation page, in order and in one folder, with small budgets.

HTML comments directly above a block, which no reader sees, say what the page cannot:

- ``<!-- file: my_env.py -->``: the block is a file; later blocks of the page use it.
- ``<!-- not run: REASON -->``: the block cannot run in a test.
"""

from __future__ import annotations

import re
import runpy
import shlex
import sys
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import registrations
from runs import ROOT

from rlframe.app import training as api
from rlframe.entry.__main__ import main
from rlframe.entry.verbs import VERBS
from rlframe.errors import ConfigWarning
from rlframe.pipeline import training

EXAMPLES = ROOT / 'docs' / 'examples'
QUICK = ('--env-step', '200', 'env.n_evaluator_episode=2', 'env.evaluator_env_num=2')
FENCE = re.compile(
    r'(?:^ *<!-- (?P<mark>not run|file): (?P<note>.*?) -->\n)?'
    r'^(?P<indent> *)```(?P<language>bash|python)\b[^\n]*\n(?P<text>.*?)^(?P=indent)```$',
    re.MULTILINE | re.DOTALL,
)
RUNNERS = (['rlframe'], ['python', '-m', 'rlframe'], ['python', '-m', 'rlframe.entry'])


class Block(NamedTuple):
    """A block of a page."""

    language: str
    text: str
    mark: str
    note: str


def blocks_of(page: Path) -> list[Block]:
    """Returns the blocks of bash and Python of a page."""
    return [
        Block(found['language'], textwrap.dedent(found['text']), found['mark'] or '', found['note'] or '')
        for found in FENCE.finditer(page.read_text(encoding='utf-8'))
    ]


@contextmanager
def page_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Works in a folder, with small budgets; what is registered and imported there is forgotten afterwards."""
    before = registrations.now()
    real = training.serial_pipeline

    def quick(*given: Any, **options: Any) -> Any:
        return real(*given, **{**options, 'max_env_step': 200})

    real_train = api.train

    def quick_train(*given: Any, **options: Any) -> Any:
        small = {'env.n_evaluator_episode': 2, 'env.evaluator_env_num': 2, **options.pop('overrides', {})}
        return real_train(*given, **{**options, 'max_env_step': 200}, overrides=small)

    monkeypatch.setattr(api, 'train', quick_train)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, 'path', [str(folder), str(EXAMPLES), *sys.path])
    monkeypatch.setattr(training, 'serial_pipeline', quick)
    yield
    registrations.restore(before)
    for name, module in list(sys.modules.items()):
        file = getattr(module, '__file__', None) or ''
        if file.startswith((str(folder), str(EXAMPLES))):
            del sys.modules[name]


def run_blocks(blocks: list[Block]) -> None:
    """Runs blocks in the working directory; the Python blocks of a page share their names."""
    names: dict[str, Any] = {'__name__': '__main__'}
    for block in blocks:
        if block.mark == 'file':
            Path(block.note).write_text(block.text, encoding='utf-8')
        elif block.mark == 'not run':
            continue
        elif block.language == 'python':
            with warnings.catch_warnings():
                # of small budgets, and of networks that are objects
                warnings.simplefilter('ignore', ConfigWarning)
                exec(compile(block.text, '<page>', 'exec'), names)
        else:
            for command in block.text.replace('\\\n', ' ').splitlines():
                run_command(command)


def run_command(command: str) -> None:
    """Runs one line of a bash block."""
    words = shlex.split(command, comments=True)
    if not words:
        return
    if words[0] == 'python' and words[1].endswith('.py'):
        runpy.run_path(words[1], run_name='__main__')
        return
    runner = next((runner for runner in RUNNERS[::-1] if words[: len(runner)] == runner), None)
    assert runner, f'{command!r} is no command of rlframe: mark its block "<!-- not run: REASON -->"'
    words = [word.replace('docs/examples', str(EXAMPLES)) for word in words[len(runner) :]]
    words = [name for word in words for name in (sorted(glob(word)) if word.endswith('*') else [word])]
    assert main(with_small_budget(words)) == 0, command


def with_small_budget(words: list[str]) -> list[str]:
    """Appends options that make a command quick; the last value of an option counts."""
    verb = words[0] if words[0] in VERBS else 'train'
    if verb == 'train' and '--help' not in words:
        return [*words, *(QUICK if '--resume' not in words else ('--train-iter', '300', *QUICK[2:]))]
    if verb == 'eval' and '--episodes' not in words:
        return [*words, '--episodes', '2']
    return words
