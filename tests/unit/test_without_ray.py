"""What a user sees where Ray is asked for and not installed: one line that names the key and the remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fakes import config_pair

from rlframe.config import compile_config
from rlframe.errors import MissingDependencyError
from rlframe.pipeline import SerialPipeline

ROOT = Path(__file__).parents[2]
NO_RAY = "import sys; sys.modules['ray'] = None; "
"""Makes a new process look as if Ray were not installed."""


@pytest.mark.parametrize(
    ('section', 'where'),
    [('collector', 'policy.collect.collector.backend'), ('evaluator', 'policy.eval.evaluator.backend')],
)
def test_a_config_that_needs_ray_says_so_and_leaves_nothing_behind(
    section: str, where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, 'ray', None)
    for name in [name for name in sys.modules if name.startswith('rlframe.worker.collector.ray_')]:
        monkeypatch.delitem(sys.modules, name)
    cfg = compile_config(*config_pair(**{section: {'backend': 'ray'}}))
    with pytest.raises(MissingDependencyError) as caught:
        SerialPipeline(cfg)
    assert str(caught.value).startswith(f'{where}: Ray cannot be imported')
    assert "pip install 'ray" in str(caught.value) and '\n' not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_command_line_and_the_import_say_it_in_one_line(tmp_path: Path) -> None:
    arguments = ['train', '-c', str(ROOT / 'configs' / 'cartpole_dqn.py'), 'collector.backend=ray']
    programs = {
        f'sys.argv = {arguments!r}; from rlframe.entry.__main__ import main; sys.exit(main())': 2,
        'from rlframe.worker import RayCollector': 1,
    }
    for program, code in programs.items():
        done = subprocess.run(
            [sys.executable, '-c', NO_RAY + program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert 'Ray cannot be imported' in done.stderr.splitlines()[-1] and "pip install 'ray" in done.stderr
        if code == 2:
            assert 'Traceback' not in done.stderr
    assert not list(tmp_path.iterdir())
