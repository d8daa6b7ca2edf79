"""The page about the tools shows what its commands print."""

from __future__ import annotations

import re
import shlex

import pytest
from runs import ROOT

from rlframe.entry.__main__ import main

PAGE = (ROOT / 'docs' / 'tools.md').read_text(encoding='utf-8')
SHOWN = [
    (command, output.splitlines())
    for block in re.findall(r'^```console\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
    for command, output in re.findall(r'^\$ (.*)\n((?:(?!\$ ).*\n)*)', block, re.MULTILINE)
]


def test_the_commands_of_the_page_print_what_it_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('COLUMNS', '80')
    assert len(SHOWN) >= 5
    for command, expected in SHOWN:
        program, *words = shlex.split(command)
        assert program == 'rlframe' and main(words) == 0, command
        printed = capsys.readouterr().out.splitlines()
        for line in expected:
            assert line == '...' or line in printed, f'{command}: {line}'
        assert '...' in expected or printed == expected, command
