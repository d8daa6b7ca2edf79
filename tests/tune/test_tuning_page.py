"""docs/tuning.md works: its commands, each with a small budget, and its search from Python."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from runs import ROOT

from rlframe.entry.__main__ import main

PAGE = (ROOT / 'docs' / 'tuning.md').read_text(encoding='utf-8')
SMALL = ['--env-step', '600', 'env.n_evaluator_episode=2', 'env.evaluator_env_num=2']

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures('two_cpus')]


def blocks(language: str) -> list[str]:
    return re.findall(rf'^```{language}\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings('ignore:Consider boosting PBT')  # by what a resumed search says
def test_commands_and_the_search_from_python(cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [shlex.split(line) for block in blocks('bash') for line in block.splitlines()]
    assert len(commands) == 5
    for program, *words in (command[2:] for command in commands):
        assert program == 'rlframe.entry'
        few = ['--num-samples', '2'] if 'tune' in words else []
        assert main(words if '--resume' in words else [*words, *few, *SMALL]) == 0
        assert 'Results: ' in capsys.readouterr().out
    made = {path.name for path in (cwd / 'cartpole_dqn_tune').iterdir()}
    assert {'best_config.py', 'best_policy', 'trials.csv'} <= made

    script, _ = blocks('python')
    found: dict[str, object] = {}
    exec(script.replace('2_000', '600'), found)
    assert 'policy.learn.learning_rate' in found['best'].options  # type: ignore[attr-defined]
