"""Words on the command line that are empty, or names that Python uses otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlframe.entry.__main__ import main
from rlframe.entry.verbs import KINDS

READERS = ('plot', 'eval', 'check-config', 'import-ding')


@pytest.mark.parametrize('verb', READERS)
def test_an_empty_path_is_one_line(verb: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, ''])
    assert ended.value.code == 2 and 'is empty' in capsys.readouterr().err


@pytest.mark.parametrize(
    'words', [['-c', ''], ['-c', 'x', '--exp-name', ''], ['--env', 'CartPole-v1', '--policy', '']]
)
def test_no_option_of_training_may_be_empty(words: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(['train', *words])
    assert ended.value.code == 2 and 'is empty' in capsys.readouterr().err


@pytest.mark.parametrize('kind', [kind for kind in KINDS if kind != 'config'])
def test_new_writes_no_class_under_a_name_that_its_file_needs(cwd: Path, kind: str, capsys: Any) -> None:
    taken = {kind: kind for kind in ('learner_hook', 'run_hook')} | {
        'buffer': 'field',
        'logger': 'logger',
        'model': 'any',
        'policy': 'field',
    }
    for name in ('none', 'true', taken.get(kind, 'any')):
        assert main(['new', kind, name]) == 2, name
        assert capsys.readouterr().err.count('\n') == 1
    assert list(cwd.iterdir()) == []
