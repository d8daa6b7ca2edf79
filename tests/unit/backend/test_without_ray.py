"""What a user sees where Ray is asked for and not installed: one line that names the key and the remedy; row 33 is a collector."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fakes import config_pair

from rlframe import tune
from rlframe.config import compile_config
from rlframe.entry.__main__ import main
from rlframe.errors import MissingDependencyError
from rlframe.pipeline import SerialPipeline


def test_an_evaluator_that_needs_ray_says_so_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, cwd: Path
) -> None:
    monkeypatch.setitem(sys.modules, 'ray', None)
    for name in [name for name in sys.modules if name.startswith('rlframe.worker.collector.ray_')]:
        monkeypatch.delitem(sys.modules, name)
    cfg = compile_config(*config_pair(evaluator={'backend': 'ray'}))
    with pytest.raises(MissingDependencyError) as caught:
        SerialPipeline(cfg)
    assert str(caught.value).startswith('policy.eval.evaluator.backend: Ray cannot be imported')
    assert "pip install 'ray" in str(caught.value) and '\n' not in str(caught.value)
    assert not list(cwd.iterdir())


def test_a_search_of_a_program_without_the_packages_of_tune_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, 'ray.tune', None)
    monkeypatch.delitem(sys.modules, 'rlframe.tune.tuner', raising=False)
    with pytest.raises(MissingDependencyError, match=r"Ray Tune cannot be imported.*'rlframe\[tune\]'"):
        tune.make_tuner('cartpole_dqn', {})


@pytest.mark.slow
def test_the_import_says_it_in_one_line(tmp_path: Path) -> None:
    program = "import sys; sys.modules['ray'] = None; from rlframe.worker import RayCollector"
    done = subprocess.run([sys.executable, '-c', program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert 'Ray cannot be imported' in done.stderr.splitlines()[-1] and "pip install 'ray" in done.stderr


def test_a_search_without_the_packages_of_tune_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, 'ray.tune', None)
    assert main(['tune', '--env', 'CartPole-v1', '--policy', 'ppo']) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert 'Ray Tune cannot be imported' in line and "pip install 'rlframe[tune]'" in line
    assert not list(cwd.iterdir())
