"""``rlframe import-ding``: the written config trains what loading the original would train."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_from_ding import FLAT, nested

from rlframe import config
from rlframe.app.new import import_ding
from rlframe.entry.__main__ import main

pytestmark = pytest.mark.usefixtures('cwd')


def written(name: str) -> str:
    """Writes a config of DI-engine as the Python file that its users have, and returns its name."""
    parts = [f'{part} = {nested(FLAT[name][part])!r}' for part in ('main_config', 'create_config')]
    text = '\n'.join(['import torch', *parts]).replace('Tanh()', 'torch.nn.Tanh()')
    Path(f'{name}_config.py').write_text(text + '\n', encoding='utf-8')
    return f'{name}_config.py'


def compiled(path: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        return config.compile_config(*config.read_config(path))


@pytest.mark.parametrize(
    'name', ['cartpole_r2d2', 'pendulum_ppo', 'lunarlander_cont_sac', 'cartpole_dqn_parallel']
)
def test_the_written_config_compiles_to_what_the_original_compiles_to(name: str) -> None:
    path = written(name)
    found = import_ding(path)
    assert found['file'] == f'{name}_config_rlframe.py'
    assert not config.is_ding(*reversed(config.read_config(found['file'])))
    assert compiled(found['file']) == compiled(path)


def test_what_was_renamed_converted_dropped_and_filled_in_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    path = written('cartpole_dqn')
    assert main(['import-ding', path, '--out', 'mine.py', '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    changes = config.from_ding(*config.read_config(path)).changes
    assert all(change.key in found['changes'] for change in changes)
    assert found['next'] == 'rlframe train -c mine.py'
    assert main(['import-ding', path, '--out', 'again.py']) == 0
    out = capsys.readouterr().out
    assert all(
        word in out for word in ('wrote again.py', 'not used:', 'docs/from_ding.md', 'next: rlframe train')
    )
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    'words',
    [
        ['cartpole_dqn'],
        ['none.py'],
        ['ding.py', '--out', 'ding.py'],
        ['ding.py', '--out', 'mine.json'],
        ['ding.py', '--out', 'no/mine.py'],
        ['atoc.py']
    ]
)  # fmt: skip
def test_bad_input_is_one_line_and_writes_nothing(words: list[str], refused: Callable[..., str]) -> None:
    Path(written('cartpole_dqn')).rename('ding.py')
    text = Path(written('cartpole_impala')).read_text().replace("'impala'", "'atoc'")
    Path('atoc.py').write_text(text)
    refused('import-ding', *words)
