"""docs/tuning.md works: its commands, each with a small budget, and its searches from Python."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / 'docs' / 'tuning.md').read_text(encoding='utf-8')
SMALL = ['--env-step', '600', '--num-samples', '2']
QUICK = ['env.n_evaluator_episode=2', 'env.evaluator_env_num=2']

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def blocks(language: str) -> list[str]:
    return re.findall(rf'^```{language}\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)


def run(words: list[str], folder: Path) -> str:
    environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_commands(tmp_path: Path) -> None:
    commands = [shlex.split(line) for block in blocks('bash') for line in block.splitlines()]
    assert len(commands) == 4
    for command in commands:
        assert command[:3] == ['python', '-m', 'rlframe.entry']
        words = [sys.executable, *command[1:]]
        if '--resume' not in words:
            words += [*(SMALL if 'tune' in words else SMALL[:2]), *QUICK]
        assert 'Results: ' in run(words, tmp_path)
    assert {'best_config.py', 'best_policy', 'trials.csv'} <= {
        path.name for path in (tmp_path / 'cartpole_dqn_tune').iterdir()
    }


def test_search_from_python(tmp_path: Path) -> None:
    script, _ = blocks('python')
    lines = run([sys.executable, '-c', script + "\nprint('best', best.score, best.options)"], tmp_path)
    assert re.search(r'^best [\d.]+ .*learning_rate', lines, re.MULTILINE)
