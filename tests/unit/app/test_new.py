"""``rlframe new``: files that run as they are, with the commands that it prints."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlframe import config
from rlframe.app.new import TEMPLATES, new_config, new_file
from rlframe.entry.__main__ import main
from rlframe.entry.verbs import KINDS, VERBS
from rlframe.registry import REGISTRIES

TEMPLATE_KINDS = [kind for kind in KINDS if kind != 'config']
QUICK = ['--env-step', '200', 'env.n_evaluator_episode=2', 'env.evaluator_env_num=2']


@pytest.fixture(autouse=True)
def registered(cwd: Path) -> Iterator[None]:
    """Forgets what modules in the working directory registered."""
    yield
    own = [file.stem for file in cwd.glob('*.py')]
    for registry in REGISTRIES.values():
        for name in [name for name, cls in registry._classes.items() if cls.__module__ in own]:
            del registry._classes[name]
    for name in own:
        sys.modules.pop(name, None)


def test_there_is_a_template_for_each_kind() -> None:
    assert {file.stem for file in TEMPLATES.glob('*.py')} == {'__init__', *TEMPLATE_KINDS}


@pytest.mark.parametrize(
    'kind', [pytest.param(kind, marks=[] if kind == 'learner_hook' else [pytest.mark.slow]) for kind in TEMPLATE_KINDS]
)  # fmt: skip
def test_a_new_file_runs_by_the_commands_that_are_printed(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(['new', kind, f'own_{kind}']) == 0
    first, *commands = capsys.readouterr().out.splitlines()
    assert first == f'wrote own_{kind}.py; it runs as it is:' and commands
    text = Path(f'own_{kind}.py').read_text(encoding='utf-8')
    assert 'new_' not in text and 'New' not in text and 'Own' in text
    for command in commands:
        program, verb, *words = shlex.split(command)
        assert program == 'rlframe' and verb in VERBS
        assert main([verb, *words, *(QUICK if verb == 'train' else [])]) == 0
    (run,) = [folder for folder in Path.cwd().iterdir() if folder.is_dir() and folder.name != '__pycache__']
    written = (run / 'metrics.jsonl').read_text(encoding='utf-8')
    if kind == 'learner_hook':
        assert 'smooth_loss' in written
    if kind == 'logger':
        assert 'env steps: ' in (run / 'scores.txt').read_text(encoding='utf-8')


def test_a_new_config_says_what_each_option_means_and_compiles_to_the_starting_config(cwd: Path) -> None:
    file, commands = new_config('own_file', cwd, 'Pendulum-v1', 'sac')
    assert commands[0] == 'rlframe train -c own_file.py'
    text = file.read_text(encoding='utf-8')
    assert 'Box (3,) float32 in [-8, 8]' in text
    assert 'max_env_step=200000,  # the run ends after the round that reaches it (env steps)' in text
    from rlframe.app.starting import starting_config

    main_config, create_config = starting_config('Pendulum-v1', 'sac')
    expected = config.compile_config({**main_config, 'exp_name': 'own_file'}, create_config)
    assert config.compile_config(*config.read_config(file)) == expected


@pytest.mark.parametrize(
    'words',
    [
        ['policy', 'torch'],
        ['policy', 'a-b'],
        ['run_hook', '../up'],
        ['config', 'own_file', '--env', 'CartPol-v1'],
        ['config', 'own_file', '--env', 'CartPole-v1', '--policy', 'sac'],
        ['config', 'own_file'],
        ['polcy', 'own_file']
    ]
)  # fmt: skip
def test_bad_input_writes_nothing(words: list[str], refused: Callable[..., str]) -> None:
    refused('new', *words)


def test_nothing_is_overwritten(cwd: Path, refused: Callable[..., str]) -> None:
    new_file('learner_hook', 'own_file', cwd)
    refused('new', 'policy', 'own_file')
