"""CartPole is solved with collection in two actors."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlframe.entry.__main__ import main

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize('config', ['cartpole_dqn', 'cartpole_ppo'])
def test_cartpole_is_solved(
    config: str,
    ray_of_tests: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ['collector.backend=ray', 'collector.num_collectors=2']
    words += ['env.stop_value=475', 'env.n_evaluator_episode=20']  # the env's own threshold
    assert main(['-c', str(ROOT / 'configs' / f'{config}.py'), '--env-step', '150000', *words]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith('solved:')]
