"""The texts of the errors that tests expect, in ``tests/errors/ROOM.json``: prose can be mended without editing tests.

A test names the class of an error (``with raises(ConfigError):``) and how to provoke it. The text is compared with the entry of
the test, in which ``<tmp>`` stands for the folder of the test, and ``<any>``, put in by hand, for what differs from one machine
or run to the next. ``pytest --rewrite-errors FILES`` writes the entries of the tests that run, but for those that fit; the
difference is to be read like code. A text that is missing, differs or is not used fails its test.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from runs import ROOT

FOLDER = ROOT / 'tests' / 'errors'
REMEDY = (
    'If the new text is right, run `pytest --rewrite-errors` on the file of the test and read the difference'
)
LISTS = re.compile(
    r"((?:Registered|imported): )\[[^\]]*\]|((?:these policies have it|Policies (?:that fit|here|that learn by acting)): )[\w, ]+|(choose from )'[\w', ]+"
)
"""Lists of parts: another part, which a test of this process may have registered, is to change no text."""
Texts = dict[str, dict[str, list[str]]]
"""By module and test, the texts in the order in which the test provokes them."""


class Expected:
    """The texts of the test that runs, and of all tests whose texts are to be written.

    Args:
        rewrite: Whether texts are written, not compared.
    """

    def __init__(self, rewrite: bool) -> None:
        self.rewrite = rewrite
        self.item: Any = None
        self._seen: list[str] = []
        self._written: dict[str, Texts] = {}
        self._names: dict[str, set[str]] = {}

    def collected(self, items: list[pytest.Item]) -> None:
        """Notes all tests of modules, before any is left out."""
        for item in items:
            self._names.setdefault(item.path.stem, set()).add(item.name)

    def strangers(self) -> list[str]:
        """Returns the entries that belong to no test, of modules that were collected or are gone."""
        modules = {path.stem for path in (ROOT / 'tests').rglob('test_*.py')}
        return [
            f'{path.name}: {module}: {name}'
            for path in sorted(FOLDER.glob('*.json'))
            for module, tests in _read(path.stem).items()
            for name in tests
            if module not in modules or name not in self._names.get(module, tests)
        ]

    def begin(self, item: pytest.Item) -> None:
        """Begins a test."""
        self.item, self._seen = item, []

    def check(self, error: object) -> None:
        """Compares the text of an error, or whatever a user sees, with the next entry of the test."""
        text = without_places(str(error), self.item)
        entries = self._entries()
        wanted = entries[len(self._seen)] if len(self._seen) < len(entries) else None
        fits = wanted is not None and _fits(wanted, text)
        self._seen.append(wanted if fits else text)
        if self.rewrite or fits:
            return
        if wanted is None:
            pytest.fail(f'{self._name()} has no entry for this text:\n{text}\n{REMEDY}.')
        else:
            lines = difflib.ndiff(wanted.splitlines(), text.splitlines())
            pytest.fail('\n'.join([f'{self._name()} has another text:', *lines, f'{REMEDY}.']))

    def end(self) -> None:
        """Ends a test that passed: it has used all of its entries."""
        if self.rewrite:
            module = self._written.setdefault(room_of(self.item.path), {}).setdefault(self.item.path.stem, {})
            module[self.item.name] = self._seen
        elif unused := self._entries()[len(self._seen) :]:
            pytest.fail(f'{self._name()} has entries that the test did not use: {unused}. {REMEDY}.')

    def write(self) -> None:
        """Writes the texts of the tests that ran, and forgets those of tests that are gone."""
        for room, modules in self._written.items():
            texts = _read(room)
            for module, tests in modules.items():
                entries = texts.get(module, {}) | tests
                names = self._names.get(module, entries.keys())
                texts[module] = {
                    name: entries[name] for name in sorted(entries) if entries[name] and name in names
                }
            kept = {module: tests for module, tests in sorted(texts.items()) if tests}
            FOLDER.mkdir(exist_ok=True)
            _path(room).write_text(json.dumps(kept, indent=1, ensure_ascii=False) + '\n', encoding='utf-8')

    def _entries(self) -> list[str]:
        return _read(room_of(self.item.path)).get(self.item.path.stem, {}).get(self.item.name, [])

    def _name(self) -> str:
        return f'{_path(room_of(self.item.path)).relative_to(ROOT)}: {self.item.path.stem}: {self.item.name}'


EXPECTED = Expected('--rewrite-errors' in sys.argv)


@contextmanager
def raises(*errors: Any) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Like ``pytest.raises``, and the text of the error has to be the next entry of the test."""
    with pytest.raises(errors) as caught:
        yield caught
    check(caught.value)


def check(error: object) -> None:
    """Compares the text of an error, or whatever a user sees, with the next entry of the test."""
    EXPECTED.check(error)


def room_of(path: Path) -> str:
    """Returns the room whose errors a test module provokes, or the folder of tests that it lies in."""
    folders = path.relative_to(ROOT / 'tests').parts[:-1]
    return folders[1] if folders[:1] == ('unit',) and len(folders) > 1 else (folders or ('root',))[0]


@cache
def _read(room: str) -> Texts:
    return json.loads(_path(room).read_text(encoding='utf-8')) if _path(room).exists() else {}


def _path(room: str) -> Path:
    return FOLDER / f'{room}.json'


def _fits(wanted: str, text: str) -> bool:
    """Whether a text is the one that is wanted, whatever stands where that has ``<any>``."""
    return re.fullmatch('.*'.join(map(re.escape, wanted.split('<any>'))), text, re.DOTALL) is not None


def without_places(text: str, item: Any) -> str:
    """Puts names in place of folders, addresses, processes, lines and tracebacks, and leaves out progress and the usage of a verb."""
    base = item.config._tmp_path_factory.getbasetemp()
    text = re.sub(rf'(?:{re.escape(str(base))}|{re.escape(str(base.resolve()))})/[\w-]+', '<tmp>', text)
    text = text.replace(str(ROOT), '<rlframe>').replace(sys.prefix, '<python>')
    text = LISTS.sub(lambda found: next(filter(None, found.groups())) + '<any>', text)
    text = re.sub(r'\b0x[0-9a-f]{6,}\b', '0x<address>', text)
    text = re.sub(r'\bpid("?:?) \d+', r'pid\1 <pid>', text)
    text = re.sub(r'(<rlframe>/\S+\.py|\(\w+\.py):\d+', r'\1:<line>', text)
    text = re.sub(r'(?m)^Traceback \(most recent call last\):\n(?:[ \t].*\n)*', '<traceback>\n', text)
    return re.sub(r'^(?:\d+:\d\d \|.*|usage: .*(?:\n +.*)*)(?:\n|$)', '', text, flags=re.MULTILINE)
