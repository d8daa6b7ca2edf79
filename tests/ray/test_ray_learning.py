"""CartPole is solved with collection in two actors."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlframe.entry.__main__ import main

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def test_cartpole_is_solved(
    ray_of_tests: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ['collector.backend=ray', 'collector.num_collectors=2']
    words += ['env.stop_value=300', 'env.n_evaluator_episode=10']
    assert main(['-c', str(ROOT / 'configs' / 'cartpole_ppo.py'), '--env-step', '150000', *words]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith('solved:')]
